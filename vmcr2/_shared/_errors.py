"""The one kind of error that a person caused and a person can fix, and the one warning."""

from __future__ import annotations


class UserError(ValueError):
    """One sentence: what is wrong, where, and what to do. The command line shows it without a traceback."""


class CollapseWarning(UserWarning):
    """The features of all classes point almost the same way, or ΔR stays far below its maximum. It says what to try."""
