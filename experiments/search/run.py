"""The search for the recipes: runs studies of studies.py that have no line in experiments/search/NAME.jsonl yet.

    python experiments/search/run.py rates forces --parallel 5
    python experiments/search/run.py --show rates

Data are found as everywhere (VMCR2_DATA). Each run holds 5,000 training images out; the test set is not opened. The
lines go to --lines (this folder), the runs' curves to --runs. A run without a line is made again by the same command.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

from _pool import lost, make_all  # noqa: E402
from studies import Try, studies  # noqa: E402
from variants import VARIANTS  # noqa: E402

from vmcr2.sweep._points import changes  # noqa: E402
from vmcr2.sweep._results import Results  # noqa: E402
from vmcr2.sweep._runs import Job, Outcome, Runner, prune  # noqa: E402
from vmcr2.train._folder import RunFolder  # noqa: E402


class Task(NamedTuple):
    """A run of a study, and where its curves go."""

    study: str
    attempt: Try
    folder: Path


class Maker:
    """In a worker: one run after another, each with its variant of the code."""

    def __init__(self) -> None:
        self._runner = Runner()

    def __call__(self, task: Task, told_to_stop: Callable[[], bool]) -> Outcome:
        """Make a run."""
        with VARIANTS[task.attempt.variant]():
            return self._runner(Job(task.attempt.config, task.folder, for_report=False), told_to_stop)


def lines_of(folder: Path, study: str) -> Results:
    """The lines of a study, kept as a sweep's are: one that was cut off is passed over, and its run made again."""
    return Results(folder, f"{study}.jsonl")


def course_of(folder: Path) -> dict[str, Any]:
    """What the metrics say and the summary does not.

    ``curve``: [epoch, hold-out accuracy, ΔR of all training images, ΔR of the last batch] wherever a run was measured;
    ``trained_batch_delta_r``: the last batch's as the objective saw it, augmented and with dropout.
    """
    keys = ("epoch", "holdout_accuracy", "train_delta_r", "batch_delta_r")
    records = RunFolder(folder).read_metrics()
    measured = [[round(record[key], 4) for key in keys] for record in records if "holdout_accuracy" in record]
    last = {"trained_batch_delta_r": round(records[-1]["batch_delta_r"], 4)} if records else {}
    return {"curve": measured, **last}


def line_of(attempt: Try, outcome: Outcome, folder: Path) -> dict[str, Any]:
    """What is kept of a run."""
    return {
        "id": attempt.id,
        "called": attempt.called,
        "variant": attempt.variant,
        "recipe": attempt.config.recipe,
        "seed": attempt.config.seed,
        "epochs": attempt.config.epochs,
        "changes": changes(attempt.config),
        **outcome.figures,
        **course_of(folder),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def run(names: list[str], only: str, lines: Path, runs: Path, parallel: int, seconds: float) -> None:
    """Make what has no line; begin nothing after ``seconds``."""
    tasks = []
    for name in dict.fromkeys(names):  # a study named twice is one
        known = lines_of(lines, name).read()
        tasks += [
            Task(name, attempt, runs / name / attempt.id)
            for attempt in studies()[name]
            if attempt.id not in known and only in attempt.called
        ]
    lines.mkdir(parents=True, exist_ok=True)

    def ended(task: Task, outcome: Outcome, since: float) -> None:
        name, attempt, folder = task
        if lost(f"{name} {attempt.called}", outcome):
            return
        line = line_of(attempt, outcome, folder)
        lines_of(lines, name).append(line)
        prune(folder)
        print(f"{since:4.0f} s  {name:10} {shown(line)}", flush=True)

    make_all(tasks, Maker, ended, folder=runs, parallel=parallel, seconds=seconds)


def shown(line: dict[str, Any]) -> str:
    """A line for people."""
    if "failed" in line:
        return f"{line['called']}: failed, {line['failed']}"
    parts = line["holdout_accuracy_by_components"]
    best = max(parts, key=lambda count: parts[count])
    words = [
        f"{line['holdout_accuracy']:.4f}",
        f"ΔR {line['train_delta_r']:6.1f} / {line['batch_delta_r']:6.1f}",
        f"train {line['train_accuracy']:.3f}",
        f"mean {line['holdout_class_mean_accuracy']:.3f}",
        f"best at {best}: {parts[best]:.3f}",
    ]
    for key, text in (("head_accuracy", "head"), ("holdout_dictionary_accuracy", "Γ"), ("codes_trace", "trace")):
        if key in line:
            words.append(f"{text} {line[key]:.3f}")
    if "variational_expansion" in line:
        words.append(f"R^v−R^v_c {line['variational_expansion'] - line['variational_compression']:.0f}")
    called = line["called"] + (f" [{line['variant']}]" if line["variant"] else "")
    return "  ".join([*words, f"{line['seconds']:.0f} s", called])


def main() -> None:
    """As the first lines of this file say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="+", choices=list(studies()), metavar="STUDY")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--lines", type=Path, default=HERE)
    parser.add_argument("--runs", type=Path, default=Path("runs/search"))
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing after so long")
    parser.add_argument("--only", default="", help="only runs whose name has this in it")
    parser.add_argument("--show", action="store_true", help="print the lines that are there, best first")
    given = parser.parse_args()
    if given.show:
        for name in given.names:
            print(name)
            found = [line for line in lines_of(given.lines, name).read().values() if given.only in line["called"]]
            for line in sorted(found, key=lambda line: -line.get("holdout_accuracy", 0.0)):
                print("  " + shown(line))
        return
    run(given.names, given.only, given.lines, given.runs, given.parallel, given.seconds)


if __name__ == "__main__":
    main()
