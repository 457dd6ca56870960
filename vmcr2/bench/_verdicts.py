"""Records that are committed, one comparison with such a record, and measuring again what was worse."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from ._measure import Say

RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
ALLOWED = 0.05
"""A ratio or a peak may be worse by this part, and by its noise."""
ATTEMPTS = 3
"""What is worse is measured again: a busy moment of a shared machine is not a fault of the code."""
Found = TypeVar("Found")


def record_at(path: Path, benchmark: str) -> dict[str, Any]:
    """A record of `vmcr2 bench BENCHMARK --json`."""
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    if record.get("benchmark") != benchmark:
        raise ValueError(f"{path} is not a record of `vmcr2 bench {benchmark} --json`")
    return record


class Verdict(NamedTuple):
    """One comparison."""

    name: str
    value: float
    limit: float
    committed: float | None = None
    larger_is_better: bool = False

    @property
    def compared(self) -> bool:
        """Whether there is something to compare with."""
        return not math.isinf(self.limit)

    @property
    def holds(self) -> bool:
        """Whether it is not worse than the limit."""
        return self.value >= self.limit if self.larger_is_better else self.value <= self.limit

    def line(self) -> str:
        """In words."""
        if not self.compared:
            return f"new   {self.name}: {self.value:.2f} (the record does not have it)"
        bound = f"{'at least' if self.larger_is_better else 'at most'} {self.limit:.2f}"
        was = "" if self.committed is None else f"; was {self.committed:.2f}"
        return f"{'ok   ' if self.holds else 'WORSE'} {self.name}: {self.value:.2f} ({bound}{was})"


def without_record(name: str, value: float) -> Verdict:
    """Of a figure that an older record does not have."""
    return Verdict(name, value, math.inf)


def measured_again(
    measure: Callable[[], Found], compare: Callable[[Found], list[Verdict]], say: Say
) -> tuple[Found, list[Verdict]]:
    """What was measured last, and for each figure the first verdict that holds, out of :data:`ATTEMPTS`."""
    result = measure()
    verdicts = compare(result)
    for _ in range(ATTEMPTS - 1):
        if all(verdict.holds for verdict in verdicts):
            break
        say("… again, because something was worse")
        result = measure()
        again = {verdict.name: verdict for verdict in compare(result)}
        verdicts = [verdict if verdict.holds else again.get(verdict.name, verdict) for verdict in verdicts]
    return result, verdicts
