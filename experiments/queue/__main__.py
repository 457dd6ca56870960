"""Everything that the docs still wait for, in one queue: for a GPU that is lent for a short time.

    python -m experiments.queue                                         # what is left, in order, and what it takes
    setsid python -m experiments.queue run --seconds 1500 --parallel 6 >queue.log 2>&1 &
    python -m experiments.queue look --seconds 500 --log queue.log --to new.tar.gz
    python -m experiments.queue take new.tar.gz --commit HEAD           # on your own machine

``run`` makes studies first, which choose recipes, and then the ledger's rows. A run that would not end in time is not
started. ``look`` waits until the queue has ended or its seconds are over, packs all results so far, and shows the end
of the log. So a machine that is taken back costs the runs in hand and no more. ``take`` puts results where they belong;
what is there already stays.
"""

from __future__ import annotations

import argparse
import subprocess
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from vmcr2.sweep import Outcome

from ..defaults import studies as defaults
from ..defaults._lines import keep_line
from ..ledger import rows as ledger
from ..ledger._pool import make_all
from ..ledger.finals import Task, keep_result
from ._maker import Maker
from ._parcel import pack, unpack
from ._pieces import Clock, Piece, alone, pieces

ENDED = "the queue has ended"
RUNS = Path("runs/queue")


def show(options: argparse.Namespace) -> None:
    """What is left."""
    left = pieces(RUNS, options.only, options.but)
    for piece in left:
        print(f"{alone(piece.config):6.0f} s  {piece.name}")
    finals = [row.of(seed) for row in ledger.rows().values() for seed in row.seeds]
    print(
        f"{sum(alone(piece.config) for piece in left):6.0f} s  {len(left)} runs, one after another on one H200; "
        f"the ledger's {len(finals)} runs, with those that are done: {sum(map(alone, finals)):.0f} s"
    )


def run(options: argparse.Namespace) -> None:
    """Make it."""
    clock = Clock(options.parallel)
    RUNS.mkdir(parents=True, exist_ok=True)
    (RUNS / "begun").touch()  # what is newer than this is packed

    def ended(piece: Piece, outcome: Outcome, since: float) -> None:
        seconds = outcome.figures.get("wall_seconds")
        if seconds is not None:
            clock.ended(piece, seconds)
        if isinstance(piece.source, Task):
            said = keep_result(piece.source, outcome, ledger.RESULTS)
        else:
            said = keep_line(piece.source, outcome, defaults.RESULTS)
        print(f"{since:4.0f} s  {said}", flush=True)

    left = pieces(RUNS, options.only, options.but)
    try:
        make_all(
            *(left, partial(Maker, RUNS), ended),
            folder=RUNS,
            parallel=options.parallel,
            seconds=options.seconds,
            takes=clock.takes,
        )
    finally:
        print(ENDED, flush=True)


def look(options: argparse.Namespace) -> None:
    """Wait, pack, and show the end of the log."""
    until = time.monotonic() + options.seconds
    log: Path = options.log
    while time.monotonic() < until and not (log.exists() and ENDED in log.read_text()):
        time.sleep(min(1.0, max(0.0, until - time.monotonic())))
    begun = RUNS / "begun"
    files = pack(ledger.RESULTS.parent, begun.stat().st_mtime, options.to) if begun.exists() else 0
    print(f"{files} files in {options.to}" if files else "no results yet")
    print("\n".join(log.read_text().splitlines()[-options.lines :]) if log.exists() else f"there is no {log}")


def take(options: argparse.Namespace) -> None:
    """Put results where they belong."""
    commit = options.commit and _full(options.commit)
    new = unpack(options.parcel, ledger.RESULTS.parent, commit)
    print("\n".join([*new, f"{len(new)} new results"]))


def _full(commit: str) -> str:
    asked = subprocess.run(["git", "rev-parse", "--verify", commit], capture_output=True, text=True, check=False)
    if asked.returncode:
        raise SystemExit(f"git knows no commit {commit!r}")
    return asked.stdout.strip()


def main(arguments: Sequence[str] | None = None) -> None:
    """As the first lines of this file say."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m experiments.queue", description=__doc__, formatter_class=form)
    parser.set_defaults(command=show, only=["*"], but=[])
    commands = parser.add_subparsers(metavar="COMMAND")
    chosen = argparse.ArgumentParser(add_help=False)
    only = "runs of these names, in this order; * for anything"
    chosen.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help=only)
    chosen.add_argument("--but", nargs="+", default=[], metavar="NAME", help="and not these")
    commands.add_parser("show", parents=[chosen], help="what is left").set_defaults(command=show)
    making = commands.add_parser("run", parents=[chosen], help="make it")
    making.add_argument("--seconds", type=float, required=True, help="start nothing that would end after so many")
    making.add_argument("--parallel", type=int, default=1, help="runs at a time")
    making.set_defaults(command=run)
    looking = commands.add_parser("look", help="wait, pack what is new, show the end of the log")
    looking.add_argument("--seconds", type=float, default=0.0, help="wait so long at most")
    looking.add_argument("--log", type=Path, required=True)
    looking.add_argument("--to", type=Path, required=True, metavar="FILE.tar.gz")
    looking.add_argument("--lines", type=int, default=40)
    looking.set_defaults(command=look)
    taking = commands.add_parser("take", help="put packed results where they belong")
    taking.add_argument("parcel", type=Path, metavar="FILE.tar.gz")
    taking.add_argument("--commit", help="enter this commit: the one that was made of the tree that ran")
    taking.set_defaults(command=take)
    options = parser.parse_args(arguments)
    options.command(options)


if __name__ == "__main__":
    main()
