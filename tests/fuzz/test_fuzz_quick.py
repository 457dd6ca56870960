"""The quick profile: fixed seeds, a few hundred inputs for each reader, in little memory. The long one is by hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .driver import READERS

ROOT = Path(__file__).parent.parent.parent
RUNS = 150


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of memory is Linux's")
@pytest.mark.timeout(600)
def test_damaged_inputs_are_accepted_or_refused_by_a_documented_error() -> None:
    """All readers in one process, whose memory is limited."""
    path = os.pathsep.join(map(str, (ROOT, ROOT / "tests")))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", "fuzz", "--quick", "--runs", str(RUNS)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    outcomes = json.loads(done.stdout.splitlines()[-1])
    assert sorted(outcomes) == sorted(READERS)
    for name, (runs, accepted, refused) in outcomes.items():
        assert (runs, accepted + refused) == (RUNS, RUNS), name
        assert refused > RUNS // 10, name  # otherwise the changes reach nothing
