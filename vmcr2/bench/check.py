"""Has anything become slower or larger? Ratios of times and peak memory of a short set, against a committed record.

Times of two machines cannot be compared. Ratios of two contenders that ran in turn in one process can, if the machines
are alike. :func:`floors` compares with wide bounds that hold on any CPU.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch

from . import objectives
from ._contenders import (
    CONTENDERS,
    DENSE,
    EXACT,
    EXACT_LOOP,
    SOFT,
    SOFT_BATCHED,
    SOFT_BATCHED_MEMBERSHIP,
    SOFT_MEMBERSHIP,
    VARIATIONAL,
    Batch,
    Size,
    job_for,
)
from ._measure import Say, caption, environment, interleaved_seconds, silent
from ._verdicts import ALLOWED, ATTEMPTS, RESULTS, Verdict, measured_again, record_at
from .objectives import MANY_CLASSES, OURS_IS_DIVIDED_BY, RATIOS, SIZES, SOFT_LABELS


def committed_for(device: torch.device) -> Path:
    """The record that belongs to a device: of the H200, or of one CPU thread."""
    return RESULTS / ("objectives-h200.json" if device.type == "cuda" else "objectives-cpu.json")


def short_set(device: torch.device) -> list[Size]:
    """All sizes on a GPU; on a CPU the slow contenders only where they are small."""
    first, *others = SIZES
    if device.type == "cpu":
        others = [size._replace(many=True) for size in others]
    return [first, *others, MANY_CLASSES[device.type], SOFT_LABELS]


def run(
    device: torch.device,
    against: dict[str, Any],
    *,
    sizes: list[Size] | None = None,
    budget: float | None = None,
    say: Say = silent,
) -> tuple[dict[str, Any], list[Verdict]]:
    """What was measured, and one verdict per ratio and per peak that the committed record has too."""
    budget = budget if budget is not None else 0.3 if device.type == "cuda" else 1.5
    results, verdicts = [], []
    for size in sizes if sizes is not None else short_set(device):
        say(f"batches of {size.m}, d {size.d}, {size.k} classes")
        result, found = measured_again(
            partial(objectives.measure, size, device, budget), partial(compare, against=against), say
        )
        results.append(result)
        verdicts += found
    return {"benchmark": "objectives", "environment": environment(device), "results": results}, verdicts


def compare(result: dict[str, Any], against: dict[str, Any]) -> list[Verdict]:
    """The ratios and peaks of one size, beside those of the committed record."""
    before = next((old for old in against["results"] if _shape(old) == _shape(result)), None)
    if before is None:
        return []
    data = result["size"]["data"]
    verdicts = []
    for mode, ratios in result["ratios"].items():
        for name, value in ratios.items():
            if name not in before["ratios"][mode]:
                continue
            old = before["ratios"][mode][name]
            noise = max(_noise(record["contenders"], name, mode) for record in (before, result))
            better = name in OURS_IS_DIVIDED_BY
            limit = old / (1 + ALLOWED + noise) if better else old * (1 + ALLOWED + noise)
            where = f"{data}, in a graph" if mode == "captured" else data
            verdicts.append(Verdict(f"{where}: {name}", value, limit, old, better))
    for name, row in result["contenders"].items():
        old_row = before["contenders"].get(name, {})
        if "peak_mib" in row and "peak_mib" in old_row and not CONTENDERS[name].textbook:
            old = old_row["peak_mib"]
            verdicts.append(Verdict(f"{data}: {name}, peak MiB", row["peak_mib"], old * (1 + ALLOWED) + 1.0, old))
    return verdicts


def _shape(result: dict[str, Any]) -> tuple[int, ...]:
    return tuple(result["size"][name] for name in ("m", "d", "k", "atoms"))


def _noise(contenders: dict[str, Any], ratio: str, mode: str) -> float:
    """Half the distance of the quartiles over the median, of both contenders together."""
    total = 0.0
    for name in RATIOS[ratio]:
        times = contenders[name][mode]
        total += (times["upper_quartile_ms"] - times["lower_quartile_ms"]) / (2 * times["median_ms"])
    return total


def about(record: dict[str, Any]) -> str:
    """Where and with what a record was measured."""
    return caption(record["environment"])


def read_record(path: Path) -> dict[str, Any]:
    """A record of `vmcr2 bench objectives --json`."""
    return record_at(path, "objectives")


FLOOR_HARD = Size("50 classes", 1000, 250, 50, 5)
FLOOR_SOFT = Size("10 soft classes", 1000, 250, 10, 1, labels="soft")
FLOORS = (
    (FLOOR_HARD, "exact: as shipped / class loop", EXACT, EXACT_LOOP, 0.33),
    (FLOOR_HARD, "V-MCR²: as shipped / d×d", VARIATIONAL, DENSE, 0.25),
    (FLOOR_HARD, "V-MCR² / exact, as shipped", VARIATIONAL, EXACT, 4.0),
    (FLOOR_SOFT, "soft exact: as shipped / batched d×d", SOFT, SOFT_BATCHED, 1.0),
    (
        *(FLOOR_SOFT, "soft exact, gradient in Π too: as shipped / batched d×d"),
        *(SOFT_MEMBERSHIP, SOFT_BATCHED_MEMBERSHIP, 1.0),
    ),
)
"""Ratios of the fastest of several runs that hold on any CPU, with room for a busy one."""


def floors(*, rounds: int = 7, attempts: int = ATTEMPTS) -> list[Verdict]:
    """The wide bounds, on this CPU: every contender in turn, the fastest of ``rounds``."""
    verdicts = []
    for size in (FLOOR_HARD, FLOOR_SOFT):
        wanted = [floor for floor in FLOORS if floor[0] == size]
        best: dict[str, float] = {}
        for _ in range(attempts):
            batch = Batch(size, torch.device("cpu"))
            names = {name for floor in wanted for name in floor[2:4]}
            jobs = {name: job_for(CONTENDERS[name].make(batch), batch.features) for name in CONTENDERS if name in names}
            for name, runs in interleaved_seconds(jobs, budget=0.0, least=rounds).items():
                best[name] = min(best.get(name, runs[0]), *runs)
            found = [Verdict(title, best[ours] / best[other], most) for _, title, ours, other, most in wanted]
            if all(verdict.holds for verdict in found):
                break
        verdicts += found
    return verdicts
