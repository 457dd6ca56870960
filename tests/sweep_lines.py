"""What a sweep says and writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from command_line import Said, in_process


def lines(out: Path | str = "s") -> list[dict[str, Any]]:
    """The lines of a sweep's folder."""
    return [json.loads(line) for line in Path(out, "results.jsonl").read_text().splitlines()]


def said_by(*args: str) -> Said:
    """`vmcr2 sweep` with these arguments."""
    return in_process("sweep", *args)
