"""The one kind of error that a person caused and a person can fix, and the one warning."""

from __future__ import annotations


class UserError(ValueError):
    """One sentence: what is wrong, where, and what to do. The command line shows it without a traceback."""


class CollapseWarning(UserWarning):
    """Training goes on, but the features of all classes point almost the same way. It says what to try."""
