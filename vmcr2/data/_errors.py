"""The one error of this room."""

from __future__ import annotations


class DataError(ValueError):
    """What a person can mend about their data: one sentence that says what is wrong, where, and what to do."""
