"""The commands of the how-to pages, block by block, in a folder that has what they name. Only runs are shorter."""

from __future__ import annotations

import contextlib
import glob
import shutil
from pathlib import Path

import pytest
from command_line import in_process
from doc_blocks import PAGES, ROOT, Block, blocks, commands

TUTORIAL = ROOT / "docs/tutorial.md"  # test_tutorial.py runs it as it stands
NOT_HERE = {TUTORIAL, ROOT / "README.md", ROOT / "docs/scaling.md", ROOT / "docs/reliability.md"}
BLOCKS = [
    block
    for page in PAGES
    if page not in NOT_HERE
    for block in blocks(page, "sh")
    if block.why is None and commands(block)
]


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """photos/ as `vmcr2 data example` writes it, a table, a network, two short runs and a sweep."""
    from sklearn.datasets import load_iris

    place = tmp_path_factory.mktemp("pages")
    flowers = load_iris(as_frame=True)
    table = flowers.frame.assign(species=flowers.target_names[flowers.target]).drop(columns="target")
    table.to_csv(place / "flowers.csv", index=False)
    (network,) = blocks(ROOT / "docs/networks.md", "python")
    (place / "mynet.py").write_text(network.code)
    with contextlib.chdir(place):
        assert in_process("data", "example", "photos").code == 0
        for picture in place.glob("photos/*/*.png"):
            if int(picture.stem) > 400:  # fewer are enough here
                picture.unlink()
        (place / "more").mkdir()
        for copy in ("more/one.png", "new.jpg"):
            shutil.copy("photos-new/001-six.png", copy)
        for line in ("photos --out runs/mine", "digits --out runs/a", "digits --objective ce --out runs/b"):
            assert in_process("train", *line.split(), "--epochs", "2").code == 0
        assert in_process("sweep", "digits", "--grid", "lr=0.1", "--epochs", "1", "--out", "sweeps/a").code == 0
        shutil.copytree("runs/a", "runs/cifar100-a")
    return place


def short(words: list[str]) -> list[str]:
    """The same command with three epochs and two trials; a shell's patterns become names."""
    verb = words[0]
    options = [found for word in words for found in (sorted(glob.glob(word)) if "*" in word else [word])]
    for option, value in (("--epochs", "3"), ("--trials", "2")):
        if option in options:
            options[options.index(option) + 1] = value
    if verb in ("train", "sweep") and not {"--epochs", "--resume"} & set(options):
        options += ["--epochs", "3"]
    return options


@pytest.mark.parametrize("block", BLOCKS, ids=[block.name for block in BLOCKS])
def test_the_commands_of_a_block_run(
    block: Block, prepared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "here"
    shutil.copytree(prepared, place)
    monkeypatch.chdir(place)
    for words in commands(block):
        out = Path(words[words.index("--out") + 1]) if "--out" in words else None
        if out is not None and "--resume" not in words:
            shutil.rmtree(out, ignore_errors=True)  # a person starts without it
        said = in_process(*short(words))
        assert said.code == 0, f"vmcr2 {' '.join(words)}: {said.err}"
        if out is not None:
            assert any(out.iterdir()), out
        if "-o" in words:
            assert Path(words[words.index("-o") + 1]).stat().st_size > 100


def test_publishing_as_the_page_shows_it(prepared: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import vmcr2

    (code,) = (found.code for found in blocks(ROOT / "docs/exporting.md", "py") if "run = vmcr2" in found.code)
    shutil.copytree(prepared / "runs/mine", tmp_path / "runs/mine")
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {"vmcr2": vmcr2}
    exec(code, scope)
    assert {"config.json", "model.safetensors", "README.md"} <= {path.name for path in Path("published").iterdir()}
    assert isinstance(scope["run"], vmcr2.Run)
