"""Every block of code in the documents runs in a test, or says why it does not; every command in them exists."""

from __future__ import annotations

import re
import shlex
from typing import Any

import pytest
import torch
from doc_blocks import PAGES, ROOT, Block, blocks, commands

import vmcr2

# tests that read a page and run its blocks of Python; test_shell_blocks.py runs those for a shell
PYTHON = {
    "README.md": "tests/test_docs.py",
    "docs/exporting.md": "tests/inference/test_export.py",
    "docs/networks.md": "tests/test_docs.py",
    "docs/new-classes.md": "tests/experiments/test_new_classes_study.py",
    "docs/objectives.md": "tests/pages/test_blocks.py",
    "docs/other-stacks.md": "tests/pages/test_blocks.py",
    "docs/own-data.md": "tests/test_docs.py",
    "docs/report.md": "tests/test_docs.py",
    "docs/skewed-data.md": "tests/pages/test_blocks.py",
    "docs/sklearn.md": "tests/test_docs.py",
    "docs/sweeps.md": "tests/sweep/test_main_guard.py",
    "docs/tutorial.md": "tests/pages/test_tutorial.py",
    "docs/using.md": "tests/test_docs.py",
    "docs/watching.md": "tests/test_docs.py",
}
# pages whose blocks other tests run in their own way, or that need several processes
ELSEWHERE = {
    "README.md": "tests/test_story.py",
    "docs/reliability.md": "tests",  # its commands are tests
    "docs/scaling.md": "tests/distributed",
    "experiments/search/README.md": "tests/experiments/test_search.py",
}
SHOWN = [block for page in PAGES for block in blocks(page, "python", "py", "sh")]


def page_name(block: Block) -> str:
    return str(block.page.relative_to(ROOT))


@pytest.mark.parametrize("block", SHOWN, ids=[block.name for block in SHOWN])
def test_a_block_runs_or_says_why_not(block: Block) -> None:
    if block.why is not None:
        assert len(block.why.split()) > 3, "the reason"
    elif page_name(block) in ELSEWHERE:
        assert (ROOT / ELSEWHERE[page_name(block)]).exists()
    elif block.language == "sh":
        assert commands(block), "test_shell_blocks.py runs `vmcr2 …` only: say why this does not run"
    else:
        place = PYTHON.get(page_name(block))
        assert place is not None, (
            "let a test run it and name the test in PYTHON, or write <!-- not run: why --> above it"
        )
        assert block.page.name in (ROOT / place).read_text(), f"{place} does not read this page"


def test_no_command_hides_in_a_block_without_a_language() -> None:
    for page in PAGES:
        for block in blocks(page, ""):
            assert not re.search(r"^(\w+=\S+ )*vmcr2 [a-z]", block.code, re.M), f"{block.name}: start it with ```sh"


COMMANDS = sorted({" ".join(words) for block in SHOWN if block.language == "sh" for words in commands(block)})


@pytest.mark.parametrize("line", COMMANDS)
def test_a_command_and_its_options_exist(line: str) -> None:
    """Also of commands that need a GPU or large data, and do not run here."""
    from typer.main import get_command

    from vmcr2.cli import app

    command: Any = get_command(app)
    words = [word for word in shlex.split(line) if word != "…"]
    while hasattr(command, "commands"):
        command = command.commands[words.pop(0)]
    context = command.make_context(command.name, words)
    assert context.command is command


def code_of(name: str, *languages: str) -> list[str]:
    return [block.code for block in blocks(ROOT / "docs" / name, *languages) if block.why is None]


def test_the_objectives_blocks() -> None:
    """Each makes a loss and calls it on features that the page does not show: of as many classes as the loss has."""
    found = code_of("objectives.md", "python")
    assert len(found) >= 2
    for code in found:
        numbers = [
            int(number.replace("_", "")) for number in re.findall(r"[( =](\d[\d_]*)\b", code.partition("Loss")[2])
        ]
        classes, dim = numbers[0], numbers[1] if "dim=" in code or "block=" in code else 20
        labels = torch.arange(2 * classes) % classes
        features = torch.randn(2 * classes, dim, requires_grad=True)
        scope: dict[str, Any] = {"vmcr2": vmcr2, "features": features, "labels": labels}
        scope |= {"features_of_all": features.detach(), "labels_of_all": labels}
        exec(code, scope)
        assert features.grad is not None, code
        assert features.grad.norm() > 0, code


def test_a_large_batch_in_parts() -> None:
    from torch.utils.checkpoint import checkpoint

    (code,) = code_of("other-stacks.md", "py")
    network = torch.nn.Sequential(torch.nn.Linear(6, 12), torch.nn.Tanh(), torch.nn.Linear(12, 8)).double()
    images, labels = torch.randn(64, 6, dtype=torch.float64), torch.arange(64) % 4
    loss = vmcr2.MCR2Loss(4)
    exec(
        code,
        {
            "torch": torch,
            "checkpoint": checkpoint,
            "network": network,
            "images": images,
            "labels": labels,
            "loss": loss,
        },
    )
    in_parts = [p.grad.clone() for p in network.parameters() if p.grad is not None]
    network.zero_grad()
    loss(network(images), labels).backward()
    for part, whole in zip(in_parts, network.parameters(), strict=True):
        assert torch.allclose(part, whole.grad, rtol=1e-9)


def test_rare_classes_are_found_more_often(capsys: pytest.CaptureFixture[str]) -> None:
    """Over the seeds 0 to 2 the rare digits gained 0.08 to 0.12, and the frequent ones lost at most 0.007."""
    (code,) = code_of("skewed-data.md", "python")
    scope: dict[str, Any] = {}
    exec(code, scope)
    plain, balanced = scope["recalls"][None], scope["recalls"]["balanced"]
    assert balanced[5:].mean() > plain[5:].mean() + 0.02
    assert balanced[:5].mean() > 0.95


def test_the_figures_of_what_did_not_work() -> None:
    """Every figure with a point stands on a page that its entry links to."""
    page = ROOT / "docs/did-not-work.md"
    entries = [part.split("\n\n")[0] for part in re.split(r"^- ", page.read_text(), flags=re.M)[1:]]
    assert len(entries) > 25
    for entry in entries:
        links = re.findall(r"\]\(([^)#]+\.md)", entry)
        assert links, entry
        sources = "".join((page.parent / link).resolve().read_text() for link in links)
        for figure in re.findall(r"(?<![\d.])\d+\.\d+(?![\d.])", entry):
            assert figure in sources, f"{figure} of «{entry[:60]}…» is not on {links}"
