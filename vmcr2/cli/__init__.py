"""The command line: thin commands over the rooms."""

from ._app import app, main

__all__ = ["app", "main"]
