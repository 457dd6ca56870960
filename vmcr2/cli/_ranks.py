"""`torchrun -m vmcr2 train`: one of the processes speaks, and a restarted one goes on."""

from __future__ import annotations

import io
import os
import sys
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NoReturn

import typer

from ..distributed import Ranks, joined, losses_as, processes
from ..runs import TrainingError, UserError

_PATIENCE_SECONDS = 60.0


@contextmanager
def said_once() -> Iterator[None]:
    """A mistake in the command itself, which every process finds before they meet: the first of a machine says it.

    The others wait until torchrun ends them, which it does when the first one has ended. If it does not, the mistake is
    theirs alone, and they say it.
    """
    if _number("LOCAL_RANK") == 0 or _number("WORLD_SIZE") < 2:
        yield
        return
    heard = io.StringIO()
    try:
        with redirect_stderr(heard):
            yield
    except UserError:
        if processes() == 1:
            time.sleep(_PATIENCE_SECONDS)
        raise
    except SystemExit as end:
        if end.code and heard.getvalue():
            time.sleep(_PATIENCE_SECONDS)
        raise
    finally:
        sys.stderr.write(heard.getvalue())


def refuse_torchrun(command: str) -> None:
    """A command that starts its own processes, and would do the same work in each of torchrun's, is an error there."""
    if _number("WORLD_SIZE") > 1 and "TORCHELASTIC_RUN_ID" in os.environ:
        raise UserError(
            f"torchrun is for `vmcr2 train`: start `vmcr2 {command}` without it (--parallel N makes N runs at a time)"
        )


@contextmanager
def one_speaks() -> Iterator[Ranks]:
    """The processes of this command. Those other than rank 0 print nothing, except an error that is theirs alone."""
    with joined() as ranks:
        if ranks.leads:
            early = f"another of the {ranks.count} processes has ended before the run began; its own message, or "
            with losses_as(TrainingError, ranks.count, lambda: early + "torchrun's, says why"):
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
