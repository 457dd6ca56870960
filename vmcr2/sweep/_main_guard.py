"""Scripts without ``if __name__ == "__main__":``. A worker imports the script, and would start the sweep once more."""

from __future__ import annotations

import multiprocessing
import os
import sys

UNGUARDED = 78
"""The exit code by which such a worker tells its parent."""


def end_if_imported() -> None:
    """End this process if it is a worker that still imports its parent's script; the parent says why.

    multiprocessing marks a process by ``_inheriting`` while it does so, and refuses to start processes from it.
    """
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        os._exit(UNGUARDED)


def unguarded() -> SystemExit:
    """What ends the script: a sentence on stderr and exit code 1. An error would print a traceback through vmcr2."""
    script = getattr(sys.modules["__main__"], "__file__", None) or "this script"
    return SystemExit(
        f"vmcr2: {script} starts its sweep whenever it is imported, and the workers of a sweep import it: "
        'put its work under `if __name__ == "__main__":`'
    )
