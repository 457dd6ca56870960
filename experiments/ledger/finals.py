"""The ledger: makes the runs of rows.py that have no result yet, and writes one JSON for each as it ends.

    python experiments/ledger/finals.py tuned-cifar100-vmcr2 tuned-cifar100-ce --parallel 4
    python experiments/ledger/finals.py --all --seed 0
    python experiments/ledger/finals.py tuned-cifar100-vmcr2 --again

Data are found as everywhere (VMCR2_DATA). Results go to experiments/results/ledger, run folders to --runs. The same
command goes on where it was cut off, from the last checkpoint. A result whose settings are no longer the row's is set
aside in earlier/ when the row has been made again. With --again rows that have results are made once more, into
runs/again, to compare. `python experiments/ledger/table.py` then writes the tables of experiments/README.md and
README.md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import torch

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

from _pool import lost, make_all  # noqa: E402
from rows import Row, rows  # noqa: E402

from vmcr2.data import Source, open_data  # noqa: E402
from vmcr2.sweep._points import changes  # noqa: E402
from vmcr2.sweep._runs import Job, Outcome, Runner  # noqa: E402
from vmcr2.train import Config  # noqa: E402
from vmcr2.train._folder import RunFolder, read_tensors, write_text  # noqa: E402

RESULTS = HERE.parent / "results" / "ledger"
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


def folder_of(runs: Path, row: Row, seed: int) -> Path:
    """Of one seed with all of the row's settings: a run of other ones is left where it is."""
    return runs / f"{row.named(seed)}-{digest(settings_of(row.of(seed)))}"


def digest(settings: dict[str, Any]) -> str:
    """Tells one set of settings from another in a file's name."""
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:8]


def settings_of(config: Config) -> dict[str, Any]:
    """Every setting as JSON has it, to tell whether a result is of the row as it is."""
    read: dict[str, Any] = json.loads(config.to_json())
    return read


class Maker:
    """In a worker: train and evaluate, or go on, with the test images, which a sweep does not have."""

    def __init__(self) -> None:
        self._runner = Runner(open_whole)

    def __call__(self, task: Task, told_to_stop: Callable[[], bool]) -> Outcome:
        """Make a run."""
        return self._runner(Job(task.row.of(task.seed), task.folder), told_to_stop)


def open_whole(config: Config) -> Source:
    """The data of a configuration, test images and all."""
    return open_data(config.data, config.data_path)


def result_from(task: Task, outcome: Outcome) -> dict[str, Any]:
    """What is kept of a run. One that broke is a result too."""
    config = task.row.of(task.seed)
    failed = {"failed": outcome.figures["failed"]} if "failed" in outcome.figures else {}
    folder = RunFolder(task.folder)
    return {
        "row": task.row.name,
        "seed": task.seed,
        "command": f"python experiments/ledger/finals.py {task.row.name} --seed {task.seed} --again",
        "changes": changes(config),
        "settings": settings_of(config),
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


def result_of(results: Path, row: Row, seed: int) -> dict[str, Any] | None:
    """What is written of a run, if it is of the row as it is now."""
    path = results / f"{row.named(seed)}.json"
    if not path.exists():
        return None
    result: dict[str, Any] = json.loads(path.read_text())
    return result if settings_in(result) == settings_of(row.of(seed)) else None


def settings_in(result: dict[str, Any]) -> dict[str, Any]:
    """The settings of a result; one that is newer than the result had its default."""
    return settings_of(Config()) | result["settings"]


def keep(results: Path, name: str, result: dict[str, Any]) -> None:
    """Write a result. One of other settings that has its place is not lost."""
    path = results / f"{name}.json"
    if path.exists():
        aside = results / "earlier" / f"{name}-{digest(json.loads(path.read_text())['settings'])}.json"
        aside.parent.mkdir(exist_ok=True)
        path.rename(aside)
    write_text(path, json.dumps(result, ensure_ascii=False) + "\n")


def run(tasks: list[Task], results: Path, runs: Path, parallel: int, seconds: float) -> None:
    """Make what has no result; begin nothing after ``seconds``."""
    results.mkdir(parents=True, exist_ok=True)

    def ended(task: Task, outcome: Outcome, since: float) -> None:
        if lost(task.name, outcome):
            return
        result = result_from(task, outcome)
        keep(results, task.name, result)
        print(f"{since:4.0f} s  {task.name}: {shown(result['summary'])}", flush=True)
        of_the_ledger = result_of(RESULTS, task.row, task.seed) if results != RESULTS else None
        if of_the_ledger is not None:
            print(f"        the ledger's: {shown(of_the_ledger['summary'])}", flush=True)

    todo = [task for task in tasks if result_of(results, task.row, task.seed) is None]
    if not todo:
        advice = f"--again makes them once more, into {AGAIN}" if results == RESULTS else "give another --results"
        print(f"0 runs: all have results in {results}; {advice}", flush=True)
        return
    make_all(todo, Maker, ended, folder=runs, parallel=parallel, seconds=seconds)


def shown(summary: dict[str, Any]) -> str:
    """A summary for people."""
    if "failed" in summary:
        return f"failed, {summary['failed']}"
    head = f", head {summary['head_accuracy']:.4f}" if "head_accuracy" in summary else ""
    rates = f"ΔR {summary['train_delta_r']:.1f}, of batches {summary['batch_delta_r']:.1f}"
    return f"{summary['test_accuracy']:.4f}{head}, {rates}, {summary['seconds']:.0f} s"


def main() -> None:
    """As the first lines of this file say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*rows(), []], metavar="ROW")
    parser.add_argument("--all", action="store_true", help="every row, in order")
    parser.add_argument("--seed", type=int, help="this seed of the rows alone")
    parser.add_argument("--parallel", type=int, default=1)
    parser.add_argument("--again", action="store_true", help=f"what has a result too; results and runs go to {AGAIN}")
    parser.add_argument("--results", type=Path)
    parser.add_argument("--runs", type=Path)
    parser.add_argument("--seconds", type=float, default=1e9, help="begin nothing after so long")
    given = parser.parse_args()
    if given.all == bool(given.names):
        parser.error(f"name rows, or --all: {', '.join(rows())}")
    chosen = [rows()[name] for name in (rows() if given.all else dict.fromkeys(given.names))]
    runs = given.runs or (AGAIN if given.again else Path("runs/ledger"))
    results = given.results or (AGAIN / "results" if given.again else RESULTS)
    tasks = [
        Task(row, seed, folder_of(runs, row, seed))
        for row in chosen
        for seed in row.seeds
        if given.seed in (None, seed)
    ]
    run(tasks, results, runs, given.parallel, given.seconds)


if __name__ == "__main__":
    main()
