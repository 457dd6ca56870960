"""What the rooms may import, and what an import may cost."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import vmcr2

PACKAGE = Path(vmcr2.__file__).parent
ROOT = PACKAGE.parent


def imported(path: Path) -> set[str]:
    """Absolute modules by their top name, and relative ones that leave the module's own folder as '..name'."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            module = (node.module or "").split(".")[0]
            names.add(module if node.level == 0 else "." * node.level + module if node.level > 1 else "")
    return names - {""}


def modules(room: str) -> list[Path]:
    return sorted((PACKAGE / room).rglob("*.py"))


def test_functional_imports_torch_and_nothing_else() -> None:
    allowed = set(sys.stdlib_module_names) | {"torch", ".._shared"}
    for path in modules("functional"):
        assert imported(path) <= allowed, path


ALLOWED = {
    "losses": {"torch", "..functional", ".._shared"},
    "classifiers": {"torch", "..functional", ".._shared"},
    "models": {"torch", "triton", "..functional", ".._shared"},  # triton: lazily, where it came with torch
    "data": {"torch", "triton", ".._shared", "numpy", "safetensors", "sklearn", "PIL"},
    "train": {
        "torch",
        "safetensors",
        "..functional",
        "..losses",
        "..classifiers",
        "..models",
        "..data",
        ".._version",
        ".._shared",
    },
    "sweep": {"torch", "..data", "..train", ".._shared"},
    "sklearn": {
        *("sklearn", "scipy", "numpy", "torch", "rich"),  # rich: the progress bar, where asked for
        *("..functional", "..losses", "..classifiers", "..models"),
    },
    "report": {
        *("numpy", "safetensors", "matplotlib", "jinja2", "markupsafe", "PIL"),
        *("..functional", "..data", "..train", ".._version", ".._shared"),
        *("..", "..._version", "...train", ".._classes", ".._convergence", ".._files", ".._groups"),
        *(".._inner", ".._pictures", ".._read"),  # inside the room: of its _figures
    },
    "bench": {"torch", "..functional", "..losses", "..models", "..data", "..train"},
    "cli": {
        *("typer", "rich", "torch"),
        *("..functional", "..data", "..train", "..report", "..sweep", "..bench", ".._version", ".._shared"),
    },
}


@pytest.mark.parametrize("room", ALLOWED)
def test_data_flows_one_way(room: str) -> None:
    for path in modules(room):
        assert imported(path) <= set(sys.stdlib_module_names) | ALLOWED[room], path


def test_nothing_imports_torchvision() -> None:
    for path in PACKAGE.rglob("*.py"):
        assert "torchvision" not in imported(path), path


def test_the_package_costs_little_beyond_torch() -> None:
    script = (
        "import time, torch; import sys; before = set(sys.modules); start = time.perf_counter(); import vmcr2; "
        "took = time.perf_counter() - start; extra = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "print(took, *sorted(extra & {'numpy', 'sklearn', 'typer', 'rich', 'matplotlib', 'jinja2', 'torchvision'}))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT
        ).stdout.split()
        for _ in range(3)
    ]
    assert min(float(run[0]) for run in runs) < 0.1
    assert all(len(run) == 1 for run in runs), runs


def test_training_and_the_command_line_do_not_pay_for_the_report() -> None:
    script = (
        "import sys; import vmcr2.train, vmcr2.cli; names = set(sys.modules); "
        "print(*sorted(names & {'matplotlib', 'jinja2', 'PIL', 'selenium', 'vmcr2.report'}))"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.strip() == ""


def test_a_page_is_made_without_matplotlib() -> None:
    script = (
        "import sys; import vmcr2.report, vmcr2.report._page, jinja2; print('matplotlib' in sys.modules, "
        "[m for m in sys.modules if m.startswith('vmcr2.report._figures._') and m != 'vmcr2.report._figures._write'])"
    )
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT)
    assert done.stdout.split() == ["False", "[]"]


def test_modules_stay_small() -> None:
    for path in PACKAGE.rglob("*.py"):
        lines = len(path.read_text().splitlines())
        assert lines <= 320, f"{path} has {lines} lines: move walls"


def test_everything_public_is_documented_with_an_example() -> None:
    from vmcr2 import functional

    for name in functional.__all__:
        thing = getattr(functional, name)
        if callable(thing) and not isinstance(thing, type) and thing.__module__.startswith("vmcr2"):
            assert thing.__doc__, name
            assert ">>>" in thing.__doc__ or name == "normalize_rows", f"{name} has no runnable example"


def test_the_package_lists_what_it_offers() -> None:
    assert set(dir(vmcr2)) == set(vmcr2.__all__), "for completion: what is imported late too, and nothing else"
    assert all(hasattr(vmcr2, name) for name in dir(vmcr2))
