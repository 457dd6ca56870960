"""What studies of trained networks share: train by each configuration, measure, and write when all are there."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from vmcr2.data import hold_out, open_data
from vmcr2.runs import Config, Run, fit

from ._study import RESULTS, between_marks, save
from .defaults._trial import HELD_OUT

PAGE = Path(__file__).parents[1] / "docs" / "tuning-log.md"


class Study(NamedTuple):
    """Networks of one data set, and what is measured on the images that they were trained on."""

    name: str
    """Of its file in results, of its runs, and of the marks around its table."""
    data: str
    epochs: int
    configs: Callable[[int], dict[str, Config]]
    """By name, for so many epochs, with ``HELD_OUT`` images held out."""
    measured: Callable[[Run, Tensor, Tensor], dict[str, Any]]
    shown: Callable[[dict[str, Any]], str]
    """The table."""

    @property
    def results(self) -> Path:
        """Where they are kept."""
        return RESULTS / f"{self.name}.json"


def carry_out(study: Study, about: str | None) -> None:
    """The command: train what is not trained yet, measure, and write."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs") / study.name)
    parser.add_argument("--epochs", type=int, default=study.epochs)
    parser.add_argument("--only", metavar="NAME", help="train this one alone, and write nothing")
    options = parser.parse_args()
    configs = study.configs(options.epochs)
    if options.only not in (None, *configs):
        parser.error(f"--only takes one of {', '.join(configs)}")
    source = open_data(study.data, None)
    train, _ = hold_out(source.train(), HELD_OUT, source.num_classes)
    results = {}
    for name, config in configs.items():
        if options.only in (None, name):
            run = fit(config, out=options.runs / name.replace(" ", "-"), resume=True)
            results[name] = study.measured(run, train.images, train.labels)
            print(name, json.dumps(results[name]), flush=True)
    if options.only is None:
        save(study.results.name, {"epochs": options.epochs, "results": results})
        mark = study.name.replace("-", " ")
        page = between_marks(PAGE.read_text(), f"<!-- {mark} -->", f"<!-- end of {mark} -->", study.shown(results))
        PAGE.write_text(page)
        print(f"wrote {study.results} and the table of {PAGE}")
