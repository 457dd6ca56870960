"""Each picture as SVG and PNG for a paper, drawn by matplotlib. Imported by `--figures` alone."""

from ._write import write_figures

__all__ = ["write_figures"]
