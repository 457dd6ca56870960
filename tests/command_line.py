"""The command as a person runs it, in this process."""

from __future__ import annotations

import contextlib
import io
import sys
from typing import Any, NamedTuple

from vmcr2.cli import main


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
