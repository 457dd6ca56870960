"""The house: which room imports from which, through which door, and what an import may cost."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import vmcr2

PACKAGE = Path(vmcr2.__file__).parent
ROOT = PACKAGE.parent
ROOMS = sorted(path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists())


class Import(NamedTuple):
    """A module of the package, or another library, that a file imports; ``module`` is absolute."""

    file: Path
    line: int
    module: str
    names: tuple[str, ...]

    @property
    def where(self) -> str:
        return f"{self.file.relative_to(ROOT)}:{self.line}"


def imports(path: Path) -> Iterator[Import]:
    """All of a file, those inside functions too."""
    package = ["vmcr2", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(path, node.lineno, alias.name, ())
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield Import(path, node.lineno, module, tuple(alias.name for alias in node.names))


def of_room(room: str) -> list[Import]:
    return [found for path in sorted((PACKAGE / room).rglob("*.py")) for found in imports(path)]


# Against the flow, and only when a person asks: Run.plot hands its folder to the report, and takes figures back.
SHORTCUT = ("_run.py", "vmcr2.report", {("plots_of",), ("Plots",)})


def is_shortcut(found: Import) -> bool:
    return (found.file.name, found.module) == SHORTCUT[:2] and found.names in SHORTCUT[2]


def across(room: str) -> list[Import]:
    """Imports from other rooms; the package's version is nobody's."""
    inside = [found for found in of_room(room) if found.module.split(".")[0] == "vmcr2" and not is_shortcut(found)]
    return [f for f in inside if f.module.split(".")[1:2] != [room] and f.module != "vmcr2._version"]


def drawn() -> dict[str, list[str]]:
    """The picture in CONTRIBUTING.md: a room on each line, and after the arrow the rooms that it imports from."""
    picture = (ROOT / "CONTRIBUTING.md").read_text().split("```")[1]
    rows = re.findall(r"^(\w+)/ .*?<- ?(.*)$", picture, flags=re.MULTILINE)
    return {room: names.split() for room, names in rows}


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_talk_through_their_doors(room: str) -> None:
    for found in across(room):
        parts = found.module.split(".")
        assert len(parts) == 2, f"{found.where} imports {found.module}: import from {'.'.join(parts[:2])} instead"
        hidden = [name for name in found.names if name.startswith("_")]
        assert not hidden, f"{found.where} imports {hidden}, which is private"


def test_the_picture_of_the_house_is_true() -> None:
    picture = drawn()
    assert set(picture) == set(ROOMS)
    for room, names in picture.items():
        assert set(names) == {found.module.split(".")[1] for found in across(room)}, (
            f"CONTRIBUTING.md draws {room} wrong"
        )


def test_data_flows_one_way() -> None:
    order = list(drawn())
    for room, names in drawn().items():
        later = [name for name in names if order.index(name) >= order.index(room)]
        assert not later, f"{room} imports from {later}, which stand below it"


# what a room may import beside torch, the standard library and other rooms
LIBRARIES = {
    # lazily: triton, where it came with torch, and pyarrow, for .parquet files
    "data": {"numpy", "safetensors", "sklearn", "PIL", "triton", "pyarrow"},
    "functional": {"triton"},  # lazily, where it came with torch
    "training": {"triton"},  # likewise
    "models": {"triton", "safetensors", "timm", "torchvision"},  # lazily, all of them
    # lazily, for files that a person asks for: pyarrow, PIL, onnx; scipy, which scikit-learn brings, when calibrating
    "inference": {"numpy", "scipy", "pyarrow", "PIL", "onnx", "onnxruntime"},
    "runs": {"numpy", "safetensors", "wandb"},  # wandb, and torch's part for tensorboard: lazily, for --log
    "sweep": {"optuna", "sqlalchemy"},  # lazily, for a search
    "bench": {"safetensors"},
    "sklearn": {"numpy", "scipy", "sklearn", "rich"},  # rich: the progress bar, where asked for
    "serve": {"numpy", "PIL", "fastapi", "h11", "pydantic", "python_multipart", "starlette", "uvicorn"},
    "report": {"numpy", "safetensors", "matplotlib", "jinja2", "markupsafe", "PIL"},
    "cli": {"typer", "rich"},
}


@pytest.mark.parametrize("room", ROOMS)
def test_rooms_import_few_libraries(room: str) -> None:
    allowed = set(sys.stdlib_module_names) | {"torch", "vmcr2"} | LIBRARIES.get(room, set())
    for found in of_room(room):
        assert found.module.split(".")[0] in allowed, f"{found.where} imports {found.module}"


def test_functional_imports_torch_and_nothing_else() -> None:
    """Triton comes with torch. Only the module of kernels imports it, and that only on a GPU."""
    assert across("functional") == []
    assert {found.file.name for found in of_room("functional") if found.module.startswith("triton")} == {
        "_inverse_kernels.py"
    }


def test_the_package_costs_little_beyond_torch(tmp_path: Path) -> None:
    """0.02 of torch's own time, which is 0.02 s; a ratio of the processor's time, because machines are shared.

    Of compiled modules: some machines keep none, and compile them at every start.
    """
    script = (
        "import sys, time; start = time.process_time(); import torch; between = time.process_time(); "
        "before = set(sys.modules); import vmcr2; took = (time.process_time() - between) / (between - start); "
        "extra = {m.split('.')[0] for m in set(sys.modules) - before}; "
        "late = {'numpy', 'sklearn', 'typer', 'rich', 'matplotlib', 'jinja2', 'timm', 'torchvision'}; "
        "print(took, *sorted(extra & late))"
    )
    keeps = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    keeps["PYTHONPYCACHEPREFIX"] = str(tmp_path)
    runs = [
        subprocess.run(
            [sys.executable, "-c", script], check=True, capture_output=True, text=True, cwd=ROOT, env=keeps
        ).stdout.split()
        for _ in range(4)  # the first one compiles
    ]
    assert min(float(run[0]) for run in runs) < 0.07
    assert all(len(run) == 1 for run in runs), runs


def test_training_and_the_command_line_do_not_pay_for_the_report() -> None:
    script = (
        "import sys; import vmcr2.runs, vmcr2.cli; names = set(sys.modules); "
        "late = {'matplotlib', 'jinja2', 'PIL', 'selenium', 'tensorboard', 'wandb', 'optuna', 'sqlalchemy'}; "
        "print(*sorted(names & (late | {'vmcr2.report'})))"
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
