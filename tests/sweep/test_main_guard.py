"""Scripts that sweep: with the guard they work as the documents show them, without it people are told."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import vmcr2

ROOT = Path(vmcr2.__file__).parent.parent


def script(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "mine.py").write_text(text)
    return subprocess.run(
        [sys.executable, "mine.py"],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


UNGUARDED = """
from vmcr2 import recipe
from vmcr2.sweep import Range, grid, search, sweep
base = recipe("digits", epochs=1, hidden=(32,))
{call}
"""


@pytest.mark.parametrize(
    "call",
    [
        'sweep(grid(base, {"lr": [0.1, 0.3]}), "s", parallel=2)',
        'search(base, {"lr": Range(0.1, 0.3)}, "s", trials=2, parallel=2)',
    ],
)
def test_without_the_guard_one_sentence_and_an_error(call: str, tmp_path: Path) -> None:
    if "search" in call:
        pytest.importorskip("optuna")
    done = script(UNGUARDED.format(call=call), tmp_path)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith("vmcr2: ")
    assert "mine.py" in done.stderr
    assert 'under `if __name__ == "__main__":`' in done.stderr


def test_one_at_a_time_needs_no_guard(tmp_path: Path) -> None:
    done = script(UNGUARDED.format(call='print(len(sweep(grid(base, {"lr": [0.1]}), "s").lines))'), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "1\n", "")


def examples() -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs/sweeps.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("example", examples(), ids=["grid", "search"])
def test_the_documents_scripts_run_as_they_are_printed(example: str, tmp_path: Path) -> None:
    if "search" in example:
        pytest.importorskip("optuna")
    done = script(example, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    rows = [line for line in done.stdout.splitlines() if line.startswith("| 0.")]
    assert len(rows) >= 2
    assert all(float(row.split(" | ")[-5].split(" ")[0]) > 0 for row in rows), rows
