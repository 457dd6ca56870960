"""Ctrl-C, SIGTERM and SIGHUP during a run: the first asks it to stop after the step, the next stops it at once."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

_SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]  # not Windows
_USUAL = (signal.SIG_DFL, signal.default_int_handler)


class Interrupts:
    """While it is entered, a signal sets a flag, which the run looks at between steps.

    Only in the main thread, which alone may do so. A signal that is ignored (nohup, the workers of a sweep), or that
    the program answers itself, is left alone.

    Args:
        patient: wait for the step also after a second signal. torchrun passes Ctrl-C on as a SIGTERM, so that each
            process hears both; it kills what does not end in half a minute.
    """

    def __init__(self, *, patient: bool = False) -> None:
        self._patient = patient
        self._first: int | None = None
        self._waits = True
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in _SIGNALS:
                if signal.getsignal(number) in _USUAL:
                    self._before[number] = signal.signal(number, self._heard)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def asked(self) -> bool:
        """Whether somebody has asked the run to stop."""
        return self._first is not None

    def ask(self) -> None:
        """As a signal does: another process of the run heard one."""
        if self._first is None:
            self._first = signal.SIGTERM

    def stop_if_asked(self) -> None:
        """Stop now, if somebody has asked for it: everything is saved. From here on a signal stops the run at once."""
        self._waits = False
        if self._first is not None:
            raise _exception(self._first)

    def _heard(self, number: int, _: FrameType | None) -> None:
        if not self._waits or (self.asked() and not self._patient):
            raise _exception(number)
        self._first = self._first or number


def _exception(number: int) -> BaseException:
    """What people expect of a signal: Ctrl-C is a KeyboardInterrupt, the others end the process with 128 + number."""
    return KeyboardInterrupt() if number == signal.SIGINT else SystemExit(128 + number)
