"""What `/metrics` shows: counts since the start, in the text format that Prometheus reads."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter

_EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Upper ends of the histogram, in seconds."""


class Metrics:
    """Counts."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        """by path and status"""
        self.samples = 0
        self.refused = 0
        self.unreadable = 0
        self._seconds = 0.0
        self._histogram = [0] * (len(_EDGES) + 1)

    def request(self, path: str, status: int, seconds: float) -> None:
        """One has ended. The histogram is of answered predictions alone: refusals at the door are quick."""
        self.requests[path, status] += 1
        if path == "/predict" and status < 400:
            self._seconds += seconds
            self._histogram[bisect_left(_EDGES, seconds)] += 1

    def text(self, *, waiting: int, held_bytes: int, batches: int) -> str:
        """All of them, with what is true at this moment."""
        lines = ["# HELP vmcr2_requests_total Requests that have ended.", "# TYPE vmcr2_requests_total counter"]
        for (path, status), count in sorted(self.requests.items()):
            lines.append(f'vmcr2_requests_total{{path="{path}",status="{status}"}} {count}')
        lines += _one("samples_total", "counter", "Pictures or rows that were answered.", self.samples)
        lines += _one("refused_total", "counter", "Answers that refused to name a class.", self.refused)
        lines += _one("unreadable_total", "counter", "Pictures that could not be read.", self.unreadable)
        lines += _one("batches_total", "counter", "Passes through the network.", batches)
        lines += _one("waiting_requests", "gauge", "Requests that are being read or answered.", waiting)
        lines += _one("held_bytes", "gauge", "Bytes of their bodies in memory.", held_bytes)
        lines += ["# HELP vmcr2_seconds Time to answer a prediction.", "# TYPE vmcr2_seconds histogram"]
        total = 0
        for edge, count in zip((*map(str, _EDGES), "+Inf"), self._histogram, strict=True):
            total += count
            lines.append(f'vmcr2_seconds_bucket{{le="{edge}"}} {total}')
        return "\n".join([*lines, f"vmcr2_seconds_sum {self._seconds:.6f}", f"vmcr2_seconds_count {total}", ""])


def _one(name: str, kind: str, meaning: str, value: int) -> list[str]:
    return [f"# HELP vmcr2_{name} {meaning}", f"# TYPE vmcr2_{name} {kind}", f"vmcr2_{name} {value}"]
