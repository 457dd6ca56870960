"""Make the ledger's runs that have no result yet; each ends as one JSON in experiments/results/ledger.

    python -m experiments.ledger.finals tuned-cifar100-vmcr2 tuned-cifar100-ce --parallel 4
    python -m experiments.ledger.finals --all --seed 0
    python -m experiments.ledger.finals tuned-cifar100-vmcr2 --again

Data are found as everywhere (VMCR2_DATA). Run folders go to --runs. After an interruption the same command continues
from the last checkpoint. If a row's settings have changed, its run is made again, and the old result is moved to
earlier/. With --again, rows that have results are made once more, into runs/again, and printed beside the ledger's.
`python -m experiments.ledger.table` then writes the tables of experiments/README.md and docs/results.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from vmcr2.data import Source, open_data
from vmcr2.runs import Config, RunFolder, read_tensors, write_text
from vmcr2.sweep import Job, Outcome, Runner, changes

from ._pool import make_all
from .rows import RESULTS, Result, Row, result_of, rows

AGAIN = Path("runs/again")
_CURVE = ("epoch", "seconds", "expansion", "compression", "batch_delta_r")


class Task(NamedTuple):
    """One seed of a row, and its run folder."""

    row: Row
    seed: int
    folder: Path

    @property
    def name(self) -> str:
        """Of the result's file, without its ending."""
        return self.row.named(self.seed)


def task_of(row: Row, seed: int, runs: Path) -> Task:
    """A run folder for each set of settings: a run by other settings is left where it is."""
    return Task(row, seed, runs / f"{row.named(seed)}-{digest(row.of(seed).flat())}")


def digest(settings: dict[str, Any]) -> str:
    """Tells one set of settings from another in a file's name."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


class Trainer:
    """In a worker: train and evaluate, or continue a run. It can open the test images, which a sweep cannot."""

    def __init__(self) -> None:
        self._runner = Runner(open_whole)

    def __call__(self, task: Task, told_to_stop: Callable[[], bool]) -> Outcome:
        """Make a run."""
        return self._runner(Job(task.row.of(task.seed), task.folder), told_to_stop)


def open_whole(config: Config) -> Source:
    """The data of a configuration, with the test images."""
    return open_data(config.data.name, config.data.path)


def result_from(task: Task, outcome: Outcome) -> Result:
    """What is kept of a run. A run whose training broke is a result too."""
    config = task.row.of(task.seed)
    failed = {"failed": outcome.figures["failed"]} if "failed" in outcome.figures else {}
    folder = RunFolder(task.folder)
    return {
        "row": task.row.name,
        "seed": task.seed,
        "command": f"python -m experiments.ledger.finals {task.row.name} --seed {task.seed} --again",
        "changes": changes(config),
        "settings": config.flat(),
        "manifest": json.loads(folder.manifest.read_text()),
        "summary": failed or folder.read_summary(),
        "curve": [[round(line[key], 4) for key in _CURVE] for line in folder.read_metrics()],
        "curve_has": list(_CURVE),
        "cosines": [] if failed else cosines(folder),
    }


def cosines(folder: RunFolder) -> list[list[int]]:
    """|cosines| in hundredths between ten training samples of each of ten classes, as in the paper's Figure 2."""
    tensors = read_tensors(folder.evaluation)
    labels = tensors["labels"]
    known = torch.bincount(labels).nonzero().flatten()
    classes = known[torch.linspace(0, len(known) - 1, min(10, len(known))).long()]
    chosen = torch.cat([torch.where(labels == label)[0][:10] for label in classes])
    z = torch.nn.functional.normalize(tensors["features"][chosen].float(), dim=1)
    found: list[list[int]] = (100 * (z @ z.T).abs()).round().int().tolist()
    return found


def keep(results: Path, name: str, result: Result) -> None:
    """Write a result. An older one by other settings is moved to earlier/."""
    path = results / f"{name}.json"
    if path.exists():
        aside = results / "earlier" / f"{name}-{digest(json.loads(path.read_text())['settings'])}.json"
        aside.parent.mkdir(exist_ok=True)
        path.rename(aside)
    write_text(path, json.dumps(result, ensure_ascii=False) + "\n")


def keep_result(task: Task, outcome: Outcome, results: Path) -> str:
    """Write the run's result, and say what came out."""
    if outcome.lost is not None:
        return f"lost: {task.name}: {outcome.lost}\n{outcome.trace or ''}"
    result = result_from(task, outcome)
    keep(results, task.name, result)
    return f"{task.name}: {shown(result['summary'])}"


def run(tasks: list[Task], results: Path, runs: Path, parallel: int, seconds: float) -> None:
    """Make what has no result; start nothing after ``seconds``."""
    results.mkdir(parents=True, exist_ok=True)

    def ended(task: Task, outcome: Outcome, since: float) -> None:
        print(f"{since:4.0f} s  {keep_result(task, outcome, results)}", flush=True)
        of_the_ledger = result_of(RESULTS, task.row, task.seed) if results != RESULTS else None
        if outcome.lost is None and of_the_ledger is not None:
            print(f"        the ledger's: {shown(of_the_ledger['summary'])}", flush=True)

    todo = [task for task in tasks if result_of(results, task.row, task.seed) is None]
    if not todo:
        advice = f"--again makes them once more, into {AGAIN}" if results == RESULTS else "give another --results"
        print(f"0 runs: all have results in {results}; {advice}", flush=True)
        return
    make_all(todo, Trainer, ended, folder=runs, parallel=parallel, seconds=seconds)


def shown(summary: dict[str, Any]) -> str:
    """A summary for people."""
    if "failed" in summary:
        return f"failed, {summary['failed']}"
    head = f", head {summary['head_accuracy']:.4f}" if "head_accuracy" in summary else ""
    rates = f"ΔR {summary['train_delta_r']:.1f}, of batches {summary['batch_delta_r']:.1f}"
    return f"{summary['test_accuracy']:.4f}{head}, {rates}, {summary['seconds']:.0f} s"


def main(arguments: Sequence[str] | None = None) -> None:
    """As the first lines of this file say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*rows(), []], metavar="ROW")
    parser.add_argument("--all", action="store_true", help="every row, in order")
    parser.add_argument("--seed", type=int, help="only this seed of the rows")
    parser.add_argument("--parallel", type=int, default=1, help="runs at a time")
    parser.add_argument("--again", action="store_true", help=f"also what has a result; results and runs go to {AGAIN}")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9, help="start nothing after so long")
    given = parser.parse_args(arguments)
    if given.all == bool(given.names):
        parser.error(f"name rows, or --all: {', '.join(rows())}")
    chosen = [rows()[name] for name in (rows() if given.all else dict.fromkeys(given.names))]
    runs = given.runs or (AGAIN if given.again else Path("runs/ledger"))
    results = given.results or (AGAIN / "results" if given.again else RESULTS)
    tasks = [task_of(row, seed, runs) for row in chosen for seed in row.seeds if given.seed in (None, seed)]
    run(tasks, results, runs, given.parallel, given.seconds)


if __name__ == "__main__":
    main()
