"""The command line: thin commands that call the other packages."""

from ._app import app, main

__all__ = ["app", "main"]
