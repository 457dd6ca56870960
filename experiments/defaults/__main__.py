"""Make the runs of a study that have no result yet; each adds a line to experiments/results/defaults/STUDY.jsonl.

    python -m experiments.defaults corner-cifar10 --parallel 4
    python -m experiments.defaults battery noise --only 'cifar10 *'
    python -m experiments.defaults.table              # the tables of docs/defaults.md

Data are found as everywhere (VMCR2_DATA). A run's folder is in --runs; only its figures are kept.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from fnmatch import fnmatch
from functools import partial
from pathlib import Path

from vmcr2.sweep import Outcome

from ..ledger._pool import make_all
from ._lines import keep_line, missing
from ._maker import Maker
from ._trial import Trial
from .studies import RESULTS, studies


def main(arguments: Sequence[str] | None = None) -> None:
    """As the first lines of this file say."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m experiments.defaults", description=__doc__, formatter_class=form)
    parser.add_argument("studies", nargs="+", choices=list(studies()), metavar="STUDY")
    parser.add_argument("--only", nargs="+", default=["*"], metavar="NAME", help="runs of these names, * for anything")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="try another value")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=3600.0, help="start no run after so many")
    parser.add_argument("--runs", type=Path, default=Path("runs/defaults"))
    options = parser.parse_args(arguments)
    wanted = [
        trial._replace(config=trial.config.with_settings(options.set))
        for name in options.studies
        for trial in studies()[name]
        if any(fnmatch(trial.name, pattern) for pattern in options.only)
    ]

    def ended(trial: Trial, outcome: Outcome, seconds: float) -> None:
        print(f"{seconds:6.0f} s  {keep_line(trial, outcome, RESULTS)}", flush=True)

    runs: Path = options.runs
    make_all(
        missing(wanted), partial(Maker, runs), ended, folder=runs, parallel=options.parallel, seconds=options.seconds
    )


if __name__ == "__main__":
    main()
