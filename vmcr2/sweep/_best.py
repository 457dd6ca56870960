"""The best runs of a sweep's folder, for a report."""

from __future__ import annotations

from pathlib import Path

from ..runs import UserError
from ._results import Record, Results
from ._table import score


def best_runs(out: Path, most: int) -> tuple[list[Path], int]:
    """The folders of the best ``most`` runs, best first, and how many runs have a line.

    Runs that a search stopped early come after those that ended. Those that failed have nothing to show.
    """
    results = Results(out)
    lines = {record["id"]: record for record in results.all() if "failed" not in record}  # the last line counts
    folders = [out / str(record.get("folder")) for record in sorted(lines.values(), key=_order)]
    there = [folder for folder in folders if (folder / "config.json").exists()]
    if not there:
        raise UserError(f"{results.path} names no run that is still there: {out} has nothing to show")
    return there[:most], len(there)


def is_sweep(path: Path) -> bool:
    """Whether it is the folder of a sweep, not of a run."""
    return Results(path).path.is_file() and not (path / "config.json").exists()


def _order(record: Record) -> tuple[bool, float]:
    return bool(record.get("pruned")), -score(record)
