"""``results.jsonl``: one line per finished run, written whole and at once."""

from __future__ import annotations

import json
import math
import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from .._shared import UserError, lock

Record = dict[str, Any]


class Results:
    """The lines of a sweep's folder, or of another file in it."""

    def __init__(self, out: Path) -> None:
        self.path = out / "results.jsonl"

    def read(self) -> dict[str, Record]:
        """The lines by their points' identities. A line that a kill cut off is skipped: its run is made again.

        So is the line of a run that a search has stopped early: it says little about its point.
        """
        return {record["id"]: record for record in self.all() if not record.get("pruned")}

    def all(self) -> list[Record]:
        """Every line that can be read, in the order in which they were written."""
        records: list[Record] = []
        for line in self._text().splitlines():
            try:
                record = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if _is_whole(record):
                records.append(record)
        return records

    def append(self, record: Record) -> Record:
        """Write a line, which is on the disk when this returns. Returns the record as it will be read."""
        line = json.dumps(record, ensure_ascii=False) + "\n"
        text = self._text()
        if text and not text.endswith("\n"):
            line = "\n" + line  # ends a line that was cut off
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        read: Record = json.loads(line)
        return read

    def _text(self) -> str:
        try:
            return self.path.read_text(encoding="utf-8", errors="replace") if self.path.exists() else ""
        except OSError as error:
            raise UserError(f"cannot read {self.path}: {error.strerror or error}") from error


def _is_whole(record: Any) -> bool:
    """Whether it names a point, and says what came out; what is damaged is made again."""
    if not isinstance(record, dict) or not isinstance(record.get("id"), str):
        return False
    accuracy = record.get("readout_accuracy", record.get("holdout_accuracy"))
    return "failed" in record or (isinstance(accuracy, int | float) and math.isfinite(accuracy))


def sole_user(out: Path) -> AbstractContextManager[None]:
    """Make the sweep's folder and lock it: two sweeps in one folder would make each other's runs twice."""
    return lock(out)


def one_of_many(out: Path) -> AbstractContextManager[None]:
    """The same for a worker of a search: others may work in the folder too, because a database says who does what."""
    return lock(out, shared=True)


def writing(out: Path) -> AbstractContextManager[None]:
    """While a worker of a search writes a line: one at a time."""
    return lock(out / "runs", patience=60.0)
