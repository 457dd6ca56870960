"""JSON files and lines that carry a checksum: what was damaged on a disk is noticed, and never believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._shared import CHECKSUM, UserError, atomic

_MOST_BYTES = 64 * 2**20
_MOST_LINE = 2**20
_MOST_METRICS = 256 * 2**20


class DamagedError(UserError):
    """A file that is not what was written."""


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically, in UTF-8. Names of files may have bytes that are no UTF-8: they are escaped."""
    with atomic(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a JSON object with its checksum, atomically."""
    write_text(path, json_text(sealed(record), indent=1) + "\n")


def read_record(path: Path) -> dict[str, Any]:
    """A JSON object that :func:`write_record` wrote, without the checksum; a damaged one is a :class:`DamagedError`."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror or error}") from error
    try:
        found = json.loads(text.decode()) if len(text) <= _MOST_BYTES else None
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or brackets in brackets in brackets
        found = None
    if not isinstance(found, dict):
        raise DamagedError(f"{path} is damaged")
    if (whole := unsealed(found)) is None:
        raise DamagedError(
            f"{path} is damaged or was changed by hand: its checksum is not that of its content. If the change is "
            f'right, remove "{CHECKSUM}" from it'
        )
    return whole


def line_of_record(record: Mapping[str, Any]) -> str:
    """A record as one line, with a short checksum."""
    return json_text(sealed(record, letters=8)) + "\n"


def read_lines(path: Path) -> tuple[list[dict[str, Any]], int]:
    """The whole records of a file of lines that have an epoch, and how many lines were damaged.

    A last line without an end was cut off by a kill: that is no damage.
    """
    records: list[dict[str, Any]] = []
    damaged = 0
    try:
        with path.open("rb") as file:
            while file.tell() < _MOST_METRICS and (line := file.readline(_MOST_LINE)):
                if (record := _record_of_line(line)) is not None:
                    records.append(record)
                elif line.strip() and (line.endswith(b"\n") or len(line) == _MOST_LINE):
                    damaged += 1
                while not line.endswith(b"\n") and len(line) == _MOST_LINE:  # the rest of a huge line
                    line = file.readline(_MOST_LINE)
            damaged += bool(file.read(1))
    except FileNotFoundError:
        return [], 0
    except OSError as error:
        raise DamagedError(f"{path} cannot be read: {error.strerror or error}") from error
    return records, damaged


def _record_of_line(line: bytes) -> dict[str, Any] | None:
    try:
        record = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    record = unsealed(record) if isinstance(record, dict) else None
    epoch = record.get("epoch") if record is not None else None
    return record if isinstance(epoch, int) and not isinstance(epoch, bool) and epoch >= 0 else None


def sealed(record: Mapping[str, Any], letters: int = 64) -> dict[str, Any]:
    """The record with its checksum as the last key."""
    return {**record, CHECKSUM: _checksum(record)[:letters]}


def unsealed(found: Mapping[str, Any]) -> dict[str, Any] | None:
    """The record without its checksum; None if that is not its checksum."""
    record = {name: value for name, value in found.items() if name != CHECKSUM}
    kept = found.get(CHECKSUM, "")
    if CHECKSUM in found and not (isinstance(kept, str) and len(kept) >= 8 and _checksum(record).startswith(kept)):
        return None
    return record


def json_text(record: Any, indent: int | None = None) -> str:
    """JSON that people can read; with escapes where a name has bytes that are no UTF-8."""
    text = json.dumps(record, indent=indent, ensure_ascii=False)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(record, indent=indent)
    return text


def _checksum(record: Mapping[str, Any]) -> str:
    """SHA-256 of what a reader gets, in one order: spaces and line ends do not count."""
    as_read = json.loads(json.dumps(record))
    return hashlib.sha256(json.dumps(as_read, sort_keys=True).encode()).hexdigest()
