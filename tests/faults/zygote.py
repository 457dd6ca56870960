"""Runs `vmcr2` commands in forked processes: what takes seconds to import is imported once.

Reads a JSON object from each line of stdin: ``argv``, ``env``, ``cwd``, ``log`` and ``output``, which is where its
standard output goes: "log", "closed", a pipe that nobody reads ("unread"), or a file. Forks, answers with the pid,
waits for the child, and answers with its exit code, which is negative for a signal.
"""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import traceback
from pathlib import Path

import jinja2  # noqa: F401 -- what a command imports late
import PIL.Image  # noqa: F401
import torch

import vmcr2.cli
import vmcr2.report
from vmcr2.data import open_data

HOOK = Path(__file__).parent / "hook" / "sitecustomize.py"


def main() -> None:
    torch.set_num_threads(1)
    open_data("digits").test()  # scikit-learn's, which takes a second
    for line in sys.stdin:
        asked = json.loads(line)
        pid = os.fork()
        if pid == 0:
            run(**asked)
        answer(pid)
        _, status = os.waitpid(pid, 0)
        answer(os.waitstatus_to_exitcode(status))


def answer(value: int) -> None:
    print(value, flush=True)


def run(argv: list[str], env: dict[str, str], cwd: str, log: str, output: str = "log") -> None:
    """The command, in a process that has nothing else to do."""
    code = 70  # a traceback, which nobody should see
    try:
        os.setsid()
        os.environ.update(env)
        os.chdir(cwd)
        said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(said, 2)
        if output == "closed":
            os.close(1)
            sys.stdout = None  # type: ignore[assignment] # as Python has it then
        else:
            os.dup2(said if output == "log" else _unread() if output == "unread" else os.open(output, os.O_WRONLY), 1)
        hook = importlib.util.spec_from_file_location("kill_hook", HOOK)
        assert hook is not None
        assert hook.loader is not None
        hook.loader.exec_module(importlib.util.module_from_spec(hook))
        sys.argv = ["vmcr2", *argv]
        vmcr2.cli.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)


def _unread() -> int:
    reads, writes = os.pipe()
    os.close(reads)
    return writes


if __name__ == "__main__":
    main()
