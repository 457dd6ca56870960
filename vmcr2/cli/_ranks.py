"""`torchrun -m vmcr2 train`: one of the processes speaks, and a restarted one goes on."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NoReturn

import typer

from ..distributed import Ranks, joined, processes
from ..runs import TrainingError, UserError


@contextmanager
def one_speaks() -> Iterator[Ranks]:
    """The processes of this command. Those other than rank 0 print nothing, except an error that is theirs alone."""
    with joined() as ranks:
        if ranks.leads:
            yield ranks
            return
        try:
            with open(os.devnull, "w") as nowhere, ExitStack() as quiet:
                quiet.enter_context(redirect_stdout(nowhere))
                quiet.enter_context(redirect_stderr(nowhere))
                quiet.enter_context(warnings.catch_warnings(action="ignore"))
                yield ranks
        except TrainingError:  # rank 0 has it too, and says it
            raise typer.Exit(1) from None
        except UserError as error:
            raise UserError(f"rank {ranks.rank}: {error}") from error


def leave(code: int) -> NoReturn:
    """Exit with this code; at once if other processes are still connected, as after an error.

    Python would tidy up the connections, and may wait or abort there if the others are gone.
    """
    if processes() > 1:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


def restarted(out: Path | None) -> bool:
    """Whether torchrun has started this again after an error: then the run in ``--out`` goes on."""
    if _number("TORCHELASTIC_MAX_RESTARTS") and out is None:
        raise UserError("torchrun's --max-restarts needs --out: a restarted run finds its checkpoint there")
    return _number("TORCHELASTIC_RESTART_COUNT") > 0


def _number(name: str) -> int:
    return int(os.environ.get(name, "0"))
