"""The one kind of error that a person caused and a person can fix."""

from __future__ import annotations


class UserError(ValueError):
    """One sentence: what is wrong, where, and what to do. The command line shows it without a traceback."""
