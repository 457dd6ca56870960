"""`vmcr2 predict | embed | neighbors` as a person types them."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import in_process
from picture_folders import Image, write_split
from seeds import SEED

from vmcr2.data import Block, Split, open_data
from vmcr2.runs import Run, fit, load_run, recipe

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
FEW = 30


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    config = recipe("digits", objective="ce+mcr2", epochs=20, device="cpu", seed=SEED)
    return fit(config, out=tmp_path_factory.mktemp("use") / "run")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder new/ with thirty digits as pictures, and one file that is none."""
    monkeypatch.chdir(tmp_path)
    test = open_data("digits").test()
    write_split(tmp_path / "new", Split(test.images[:FEW], test.labels[:FEW]), NAMES)
    (tmp_path / "new" / "one" / "broken.png").write_text("only text")
    return tmp_path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_answers_in_a_file(run: Run, place: Path) -> None:
    said = in_process("predict", str(run.folder), "new", "-o", "out.csv", "--refuse", "0.05")
    assert said.code == 1  # one file could not be read
    assert "cannot read new/one/broken.png: it is no picture of a known format" in said.err
    assert f"out.csv: {FEW} of {FEW + 1}" in said.err
    rows = rows_of(place / "out.csv")
    assert len(rows) == FEW
    paths = [row["input"] for row in rows]
    answers = run.answers(paths)
    assert [row["likeliest"] for row in rows] == run.predict(paths)
    assert [row["class"] or None for row in rows] == run.predict(paths, refuse=0.05)
    assert sum(NAMES[int(row["likeliest"])] == Path(row["input"]).parent.name for row in rows) > 0.8 * FEW
    likely = answers.probabilities.topk(2, dim=1)
    threshold = run.threshold(0.05)
    for at, row in enumerate(rows):
        assert float(row["probability"]) == pytest.approx(likely.values[at, 0].item(), abs=1e-5)
        assert float(row["second_probability"]) == pytest.approx(likely.values[at, 1].item(), abs=1e-5)
        assert row["second"] == run.class_names[likely.indices[at, 1]]
        assert float(row["residual"]) == pytest.approx(answers.residuals[at, int(row["likeliest"])].item(), abs=1e-5)
        assert float(row["novelty"]) == pytest.approx(answers.novelty[at].item(), abs=1e-5)
        assert row["refused"] == str(answers.novelty[at].item() > threshold)
    again = in_process("predict", str(run.folder), "new", "-o", "out.csv")
    assert again.code == 2
    assert "out.csv already exists" in again.err
    assert in_process("predict", str(run.folder), "new", "-o", "out.csv", "--force").code == 1


@pytest.mark.usefixtures("place")
def test_more_choices_of_each(run: Run) -> None:
    assert in_process("predict", str(run.folder), "new/six", "--top", "4", "-o", "top.jsonl").code == 0
    rows = [json.loads(line) for line in Path("top.jsonl").read_text().splitlines()]
    names = run.predict([row["input"] for row in rows], top=4)
    titles = ("class", "second", "choice_3", "choice_4")
    assert [[row[title] for title in titles] for row in rows] == names
    sure = ("probability", *(f"{title}_probability" for title in titles[1:]))
    assert all([row[name] for name in sure] == sorted((row[name] for name in sure), reverse=True) for row in rows)
    assert in_process("predict", str(run.folder), "new/six", "--top", "1", "-o", "one.jsonl").code == 0
    assert "second" not in json.loads(Path("one.jsonl").read_text().splitlines()[0])
    wrong = in_process("predict", str(run.folder), "new/six", "--top", "0")
    assert wrong.code == 2
    assert "--top must lie between 1 and 100, got 0" in wrong.err


def test_the_three_formats_say_the_same(run: Run, place: Path) -> None:
    pandas = pytest.importorskip("pandas")
    for name in ("a.csv", "a.jsonl", "a.parquet"):
        assert in_process("predict", str(run.folder), "new/six", "new/one", "-o", name).code == 1
    first, second, third = (
        pandas.read_csv("a.csv"),
        pandas.read_json("a.jsonl", lines=True),
        pandas.read_parquet("a.parquet"),
    )
    for frame in (second, third):
        assert list(frame.columns) == list(first.columns)
        assert list(frame["input"]) == list(first["input"])
        assert np.allclose(frame["probability"], first["probability"])
    assert "refused" not in first.columns


def test_a_first_block_that_is_refused_whole(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each picture is a block of its own here, and the first one is the most foreign."""
    parquet = pytest.importorskip("pyarrow.parquet")
    blocks = run.form.blocks

    def one_by_one(paths: Any, notes: list[str]) -> tuple[int, Iterator[Block]]:
        total, found = blocks(paths, notes)
        return total, (Block([name], own[None], []) for block in found for name, own in zip(*block[:2], strict=True))

    monkeypatch.setattr(type(run.form), "blocks", lambda self, paths, notes: one_by_one(paths, notes))
    paths = [str(path) for path in sorted((place / "new").rglob("*.png")) if path.name != "broken.png"]
    order = run.novelty(paths).argsort(descending=True).tolist()
    foreign, usual = paths[order[0]], paths[order[-1]]
    said = in_process("predict", str(run.folder), foreign, usual, "--refuse", "0.5", "-o", "a.parquet")
    assert said.code == 0, said.err
    assert parquet.read_table("a.parquet")["class"].to_pylist() == [None, *run.predict(usual)]


def test_on_the_screen(run: Run, place: Path) -> None:
    (picture,) = sorted((place / "new" / "six").iterdir())[:1]
    said = in_process("predict", str(run.folder), str(picture))
    assert (said.code, said.err) == (0, "")
    assert run.predict(picture)[0] in said.out
    assert f"{run.predict_proba(picture).max().item():.4f}" in said.out


def test_what_is_missing_does_not_stop_the_rest(run: Run, place: Path) -> None:
    (place / "empty").mkdir()
    said = in_process("predict", str(run.folder), "nowhere.png", "new/six", "empty", "-o", "out.csv")
    assert said.code == 1
    assert "cannot read nowhere.png: it does not exist: correct the path" in said.err
    assert "cannot read empty: the folder has no pictures" in said.err
    assert len(rows_of(place / "out.csv")) == len(list((place / "new" / "six").iterdir()))


def test_a_file_that_cannot_be_written_is_one_sentence(run: Run, place: Path) -> None:
    for words in (["predict", "-o", "/proc/x.csv"], ["embed", "-o", "/proc/x.npz"], ["neighbors", "-o", "/proc/x.png"]):
        said = in_process(words[0], str(run.folder), "new/six", *words[1:])
        assert said.code == 2
        assert "cannot write /proc/x" in said.err
        assert said.err.count("\n") == 1


def test_progress_is_shown_from_the_start(run: Run, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str, int, int]] = []

    @contextmanager
    def recorded() -> Iterator[Any]:
        yield lambda *said: seen.append(said)

    monkeypatch.setattr("vmcr2.cli._use.progress_bar", recorded)
    in_process("embed", str(run.folder), "new", "-o", "f.npz")
    assert seen[0] == ("embedding", 0, FEW + 1)
    assert seen[-1] == ("embedding", FEW + 1, FEW + 1)


def test_features_in_a_file(run: Run, place: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    for name in ("f.npz", "f.parquet"):
        assert in_process("embed", str(run.folder), "new", "-o", name).code == 1
    with np.load("f.npz") as found:
        names, features = found["names"].tolist(), found["features"]
    assert len(names) == FEW
    assert features.dtype == np.float32
    assert np.allclose(features, run.features(names).numpy(), atol=1e-6)
    assert np.allclose(np.linalg.norm(features, axis=1), 1, atol=1e-5)
    table = parquet.read_table("f.parquet").to_pydict()
    assert table["name"] == names
    assert np.allclose(np.array(table["features"]), features)


def test_neighbours_on_the_screen_and_in_a_picture(run: Run, place: Path) -> None:
    pictures = sorted((place / "new" / "six").iterdir())[:2]
    paths = [str(path) for path in pictures]
    said = in_process("neighbors", str(run.folder), *paths, "-n", "4", "-o", "near.png")
    assert said.code == 0
    found = run.neighbors(paths, 4)
    for path, names, cosines in zip(paths, found.names, found.cosines.tolist(), strict=True):
        (line,) = [line for line in said.out.splitlines() if line.startswith(f"{path}: ")]
        assert f"{names[0]} {cosines[0]:.3f}" in line
        assert line.count("#") == 4
    with Image.open("near.png") as sheet:
        assert sheet.size == (8 + 5 * 104, 8 + 2 * 132)
        assert len(sheet.getcolors(100_000)) > 10
    lines = in_process("neighbors", str(run.folder), *paths, "--json").out.splitlines()
    assert [json.loads(line)["input"] for line in lines] == paths
    assert len(json.loads(lines[0])["neighbors"]) == 5


def test_a_category_that_training_did_not_have_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{('red', 'blue')[at % 2]},{at % 5},{('low', 'high')[at % 2]}" for at in range(100)]
    Path("things.csv").write_text("\n".join(["colour,size,kind", *rows]))
    assert in_process("train", "things.csv", "--label", "kind", "--epochs", "2", "--out", "run", "--json").code == 0
    Path("new.csv").write_text("size,colour\n1,green\n2,red\n3,\n")
    said = in_process("predict", "run", "new.csv", "-o", "out.csv")
    assert said.code == 0
    assert "The column colour has values that training did not have: green." in said.err
    Path("known.csv").write_text("size,colour\n1,blue\n")
    assert "did not have" not in in_process("predict", "run", "known.csv").err


def test_rows_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{at % 2 + 0.1 * (at % 7):.2f},{'low' if at % 2 else 'high'}" for at in range(200)]
    Path("things.csv").write_text("\n".join(["size,kind", *rows]))
    assert in_process("train", "things.csv", "--label", "kind", "--epochs", "3", "--out", "run", "--json").code == 0
    said = in_process("predict", "run", "things.csv", "-o", "out.csv")
    assert said.code == 0
    assert "Ignored columns that training did not have: kind" in said.err
    assert [row["input"] for row in rows_of(Path("out.csv"))] == [str(at + 1) for at in range(200)]
    Path("other.csv").write_text("length\n1\n")
    said = in_process("predict", "run", "other.csv")
    assert said.code == 2
    assert said.err.startswith("vmcr2: none of the inputs can be read: other.csv (the rows have no column size: give")
    said = in_process("predict", "run", "other.csv", "things.csv", "-o", "both.csv")
    assert said.code == 1
    assert "cannot read other.csv: the rows have no column size" in said.err
    rows = rows_of(Path("both.csv"))
    assert len(rows) == 200
    assert rows[0]["input"] == "things.csv:1"  # also where the other file cannot be read
    said = in_process("neighbors", "run", "things.csv", "-o", "x.png")
    assert (said.code, "which have no pictures: leave -o out" in said.err) == (2, True)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("predict", "RUN", "nowhere.png"), "none of the inputs can be read: nowhere.png (it does not exist"),
        (("predict", "RUN", "https://x.org/a.png"), "it is an address, and vmcr2 reads only local files"),
        (("predict", "RUN", "empty"), "none of the inputs can be read: empty (the folder has no pictures)"),
        (
            ("predict", "RUN", "new/one/broken.png"),
            "none of the inputs can be read: new/one/broken.png (it is no picture",
        ),
        (("predict", "RUN", "new", "-o", "out.txt"), "out.txt must end in .csv, .jsonl or .parquet"),
        (("predict", "RUN", "new", "--refuse", "2"), "a false-alarm rate must lie between 0 and 1"),
        (("predict", "RUN", "new", "--refuse", "0.001"), "needs at least 999 calibration samples, and there are 143"),
        (("predict", "empty", "new"), "empty is not a run folder: it has no config.json"),
        (("embed", "RUN", "new", "-o", "f.csv"), "f.csv must end in .npz or .parquet"),
        (("neighbors", "RUN", "new", "-n", "0"), "count must be at least 1"),
        (("neighbors", "RUN", "new", "-o", "x.jpg"), "x.jpg must end in .png"),
    ],
)
def test_mistakes_are_one_sentence(arguments: tuple[str, ...], said: str, run: Run, place: Path) -> None:
    (place / "empty").mkdir()
    found = in_process(*(str(run.folder) if word == "RUN" else word for word in arguments))
    assert found.code == 2
    assert said in found.err
    assert found.err.count("\n") == 1
    assert not [path for path in place.iterdir() if path.is_file()]  # nothing was written


def test_a_run_without_calibration_says_so(place: Path) -> None:
    config = recipe("digits", objective="mcr2", epochs=2, device="cpu", calibration_share=0.0)
    folder = fit(config, out=place / "plain").folder
    said = in_process("predict", str(folder), "new/six", "-o", "out.csv")
    assert said.code == 0
    assert "This run is not calibrated: there are no probabilities" in said.err
    assert {row["probability"] for row in rows_of(place / "out.csv")} == {""}
    assert {row["novelty"] for row in rows_of(place / "out.csv")} != {""}
    assert load_run(folder, device="cpu").confidence is None


def test_a_novelty_that_is_a_probability_needs_calibration(place: Path) -> None:
    """As in Python and in the server: cross-entropy's novelty is 1 − its largest probability."""
    config = recipe("digits", objective="ce", epochs=2, device="cpu", calibration_share=0.0)
    folder = fit(config, out=place / "plain").folder
    for name in ("out.csv", "out.parquet"):
        assert in_process("predict", str(folder), "new/six", "-o", name).code == 0
    assert {row["novelty"] for row in rows_of(place / "out.csv")} == {""}
