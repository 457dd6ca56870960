"""Runs a piece of Python with little memory: what is meant to stay small must not need more."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent

_START = """
import json, resource, sys
{imports}
taken = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + {room}, taken + {room}))
answers = {{}}
def attempt(name, function):
    try:
        answers[name] = ["made", str(function())[:200]]
    except Exception as error:
        answers[name] = [type(error).__name__, str(error)]
{body}
print(json.dumps(answers))
"""


def with_little_memory(imports: str, body: str, *, room: int, seconds: float = 240) -> dict[str, Any]:
    """The answers of ``attempt(name, function)`` in ``body``: the kind of error and its words, or "made".

    ``room`` is in bytes, beyond what Python and the imports take. A process that takes more gets a MemoryError.
    """
    script = _START.format(imports=imports, body=body, room=room)
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=seconds,
        env=environment,
        check=False,
    )
    if done.returncode:
        raise AssertionError(f"ended with {done.returncode}: {done.stderr[-2000:]}")
    answers: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answers
