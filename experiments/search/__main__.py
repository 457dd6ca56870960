"""Print the runs of the finished search, best first.

python -m experiments.search                   # every study: how many runs it has, and its best run
python -m experiments.search rates forces      # every run of these studies
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from . import Line, held_out, read, studies

FIGURES = {
    "holdout_accuracy": "nearest subspace {:.4f}",
    "head_accuracy": "head {:.4f}",
    "holdout_class_mean_accuracy": "class mean {:.4f}",
    "train_accuracy": "on training images {:.3f}",
    "train_delta_r": "ΔR {:.1f}",
    "codes_trace": "trace {:.1f}",
    "seconds": "{:.0f} s",
}


def shown(line: Line) -> str:
    """The figures of a run, and what it changed."""
    variant = f" [{line['variant']}]" if line.get("variant") else ""
    figures = [text.format(line[name]) for name, text in FIGURES.items() if name in line]
    return f"{', '.join(figures)}: {line['called']}{variant}"


def main(arguments: Sequence[str] | None = None) -> None:
    """As the first lines of this file say."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser("python -m experiments.search", description=__doc__, formatter_class=form)
    parser.add_argument("names", nargs="*", metavar="STUDY")
    named: list[str] = parser.parse_args(arguments).names
    for name in set(named) - set(studies()):
        parser.error(f"there is no study {name!r}; there are {', '.join(studies())}")
    for name in named or studies():
        best_first = sorted(read(name), key=held_out, reverse=True)
        print(f"{name}, {len(best_first)} runs")
        for line in best_first if named else best_first[:1]:
            print(f"  {shown(line)}")


if __name__ == "__main__":
    main()
