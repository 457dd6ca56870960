"""Writes files. It replaces files that `vmcr2 report` made before, and no others."""

from __future__ import annotations

from pathlib import Path

from .._shared import UserError, atomic

MARK = "vmcr2 report"
"""In the first lines of every file written here: a page's generator, a picture's creator."""


def check_ours(path: Path) -> None:
    """A file that was not made by this tool is a :class:`UserError`."""
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file")
    if path.exists() and MARK.encode() not in _beginning(path):
        raise UserError(f"{path} exists and was not made by vmcr2 report: name another file, or move it")


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file atomically, and create its folder. It never replaces a file that this tool did not make."""
    check_ours(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic(path) as temporary:
            temporary.write_bytes(content)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def _beginning(path: Path) -> bytes:
    try:
        with path.open("rb") as handle:
            return handle.read(4096)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
