"""Standard output and errors that cannot end a command: a closed pipe, a full disk, letters a terminal cannot show."""

from __future__ import annotations

import errno
import io
import os
import sys


class ForgivingText(io.TextIOWrapper):
    """A stream that remembers the first error of writing. What comes after it goes to the null device."""

    error: OSError | None = None

    def write(self, text: str) -> int:
        """As many letters as were given, whatever became of them."""
        try:
            return super().write(text)
        except OSError as error:
            self._give_up(error)
            return len(text)

    def flush(self) -> None:
        """Also what is left after an error."""
        try:
            super().flush()
        except OSError as error:
            self._give_up(error)

    def _give_up(self, error: OSError) -> None:
        self.error = self.error or error
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self.fileno())
        os.close(nowhere)
        super().flush()


def make_sturdy() -> ForgivingText | None:
    """Put such streams in the place of standard output and errors. Returns that of the output, if it is a file."""
    _open_closed()
    for name in ("stderr", "stdout"):
        found: ForgivingText | None = None
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue
        stream.reconfigure(errors="replace")  # a terminal that cannot show Δ must not end a run
        # with PYTHONUNBUFFERED there is nothing between
        if type(stream) is io.TextIOWrapper and isinstance(getattr(stream.buffer, "raw", stream.buffer), io.FileIO):
            stream.flush()
            file = io.BufferedWriter(io.FileIO(stream.fileno(), "w", closefd=False))
            lines = stream.line_buffering or stream.write_through
            found = ForgivingText(file, stream.encoding, errors="replace", line_buffering=lines)
            setattr(sys, name, found)
    return found


def what_was_lost(output: ForgivingText | None) -> str | None:
    """A sentence if the output could not be written; None if it was, or if the reader has closed the pipe itself."""
    sys.stdout.flush()
    if output is None or output.error is None or output.error.errno == errno.EPIPE:
        return None
    return f"the standard output could not be written: {output.error.strerror or output.error}"


def _open_closed() -> None:
    """Where a stream was closed before we began (`>&-`), open the null device: else the next file takes its number."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free: this one
    for number, name in ((1, "stdout"), (2, "stderr")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "w", encoding="utf-8", closefd=False))  # noqa: SIM115 -- for ever
