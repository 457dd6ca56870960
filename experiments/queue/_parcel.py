"""Results on their way from one machine to another: packed on the first, put where they belong on the second."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path
from typing import Any

from vmcr2.runs import Config, UserError

from ..defaults.studies import decided
from ..ledger.finals import keep


def pack(root: Path, since: float, to: Path) -> int:
    """Every result of the ledger and of studies that was written since; the number of files."""
    found = [
        path
        for pattern in ("ledger/*.json", "defaults/*.jsonl")
        for path in sorted(root.glob(pattern))
        if path.stat().st_mtime >= since
    ]
    with tarfile.open(to, "w:gz") as parcel:
        for path in found:
            parcel.add(path, path.relative_to(root).as_posix())
    return len(found)


def unpack(parcel: Path, root: Path, commit: str | None) -> list[str]:
    """Add what is new to the results, and name it. ``commit`` is the one that was made of the tree that ran."""
    new: list[str] = []
    with tarfile.open(parcel) as packed:
        for member in packed:
            path = Path(member.name)
            reading = packed.extractfile(member)
            if reading is None or (path.parent.as_posix(), path.suffix) not in (
                ("ledger", ".json"),
                ("defaults", ".jsonl"),
            ):
                raise SystemExit(f"{parcel} holds {member.name}, which is no result of a study or of the ledger")
            text = io.TextIOWrapper(reading, "utf-8").read()
            new += (_result if path.suffix == ".json" else _lines)(root / path, text, commit)
    return new


def _result(path: Path, text: str, commit: str | None) -> list[str]:
    result: dict[str, Any] = json.loads(text)
    if commit is not None:
        result["manifest"]["git_commit"] = commit
    if path.exists() and json.loads(path.read_text()) == result:
        return []
    keep(path.parent, path.stem, result)
    return [path.stem]


def _lines(path: Path, text: str, commit: str | None) -> list[str]:
    """A run counts as known by its settings: what is here stays."""
    known = [_settings(line) for line in path.read_text().splitlines()] if path.exists() else []
    new = [json.loads(line) for line in text.splitlines() if _settings(line) not in known]
    with path.open("a") as lines:
        for line in new:
            lines.write(json.dumps(line | ({} if commit is None else {"git_commit": commit})) + "\n")
    return [f"{path.stem}: {line['name']}" for line in new]


def _settings(line: str) -> dict[str, Any]:
    """Also of an older line, whose settings were then as their defaults are."""
    settings: dict[str, Any] = json.loads(line)["settings"]
    try:
        return decided(Config.from_flat(settings))
    except UserError:  # it used a setting that is gone
        return settings
