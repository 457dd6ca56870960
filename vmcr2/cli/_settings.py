"""Settings on a command line: options of their own, and --set for all others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..train import UserError


def given_changes(data: Path | None, **options: Any) -> dict[str, Any]:
    """What the options change; those that were not given do not."""
    changes = {name: value for name, value in options.items() if value is not None}
    if data is not None:
        changes["data_path"] = str(data.expanduser().resolve())
    return changes


def refuse_twice(names: Iterable[str], settings: list[str], by: str) -> None:
    """A setting that two options say is somebody's mistake: which one did they mean?"""
    for setting in settings:
        name = setting.partition("=")[0].strip()
        if name in names:
            raise UserError(f"{name} is set twice, by {by} and by --set {setting}: leave one out")
