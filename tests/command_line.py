"""The command as a person runs it, in this process."""

from __future__ import annotations

import contextlib
import io
import shlex
import sys
from typing import Any, NamedTuple

import pytest

from vmcr2.cli import _train, main
from vmcr2.runs import Config


class Said(NamedTuple):
    code: int
    out: str
    err: str


def in_process(*args: str) -> Said:
    """``main()`` as the installed command runs it. Any other error than an exit would show the user a traceback."""
    out, err = io.StringIO(), io.StringIO()
    before = sys.argv
    sys.argv = ["vmcr2", *args]
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
        code: Any = 0
    except SystemExit as error:
        code = error.code or 0
    finally:
        sys.argv = before
    return Said(code, out.getvalue(), err.getvalue())


class Parsed(Exception):  # noqa: N818
    def __init__(self, config: Config) -> None:
        self.config = config


def parsed(command: str, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The configuration that `vmcr2 train …` would train by."""

    def stop(config: Config, **_: Any) -> None:
        raise Parsed(config)

    program, *words = shlex.split(command)
    assert program == "vmcr2"
    with monkeypatch.context() as patch:
        patch.setattr(_train, "fit", stop)
        with pytest.raises(Parsed) as found:
            in_process(*words)
    return found.value.config
