"""Each picture as SVG and PNG for a paper, drawn by matplotlib. Only `--figures` imports it."""

from ._write import write_figures

__all__ = ["write_figures"]
