"""What a sweep has written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def lines(out: Path | str = "s") -> list[dict[str, Any]]:
    """The lines of a sweep's folder."""
    return [json.loads(line) for line in Path(out, "results.jsonl").read_text().splitlines()]
