"""``results.jsonl``: one line per finished run. One process writes it, each line whole and at once."""

from __future__ import annotations

import json
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
        """The lines by their points' identities. A line that a kill cut off is skipped: its run is made again."""
        records: dict[str, Record] = {}
        for line in self._text().splitlines():
            try:
                record = json.loads(line)
                records[record["id"]] = record
            except (ValueError, TypeError, KeyError):
                continue
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


def sole_user(out: Path) -> AbstractContextManager[None]:
    """Make the sweep's folder and lock it: two sweeps in one folder would make each other's runs twice."""
    return lock(out)
