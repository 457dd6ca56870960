"""The error of this package."""

from __future__ import annotations

from .._shared import UserError


class DataError(UserError):
    """Something about the data that a person can fix: one sentence that says what is wrong, where, and what to do."""
