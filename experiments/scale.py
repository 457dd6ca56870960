"""Draw docs/images/scale-steps.png from the newest record of `vmcr2 bench scale`: time and memory of a step over k.

python -m experiments.scale
"""

from __future__ import annotations

from typing import Any

from matplotlib import pyplot
from matplotlib.figure import Figure

from vmcr2.bench._scale_contenders import BLOCK, CONTENDERS, EXACT, HEAD, SHARED, SOFT

from ._drawing import BLUE, GREEN, GREY, ORANGE, draw_all
from .speed import scale_record

COLOURS = {EXACT: GREEN, SOFT: GREY, SHARED: "#7a3e9d", BLOCK: BLUE, HEAD: ORANGE}
MARKS = {EXACT: "D", SOFT: "^", SHARED: "s", BLOCK: "o", HEAD: "v"}


def points(record: dict[str, Any], name: str) -> list[tuple[int, float, float]]:
    """k, milliseconds and MiB of a step of one contender, where it was measured."""
    rows = [(result["k"], result["contenders"][name]) for result in record["results"]]
    return [(k, row["step"]["median_ms"], row["state_mib"] + row["peak_mib"]) for k, row in rows if "step" in row]


def steps() -> Figure:
    """A line for each objective, which ends where a step would take too long or too much memory."""
    record = scale_record()
    shape, machine = record["shape"], record["environment"]
    figure, panels = pyplot.subplots(1, 2, figsize=(9.5, 4.2), layout="constrained")
    for name in CONTENDERS:
        found = points(record, name)
        for panel, height in zip(panels, (1, 2), strict=True):
            panel.plot(
                [one[0] for one in found],
                [one[height] for one in found],
                marker=MARKS[name],
                color=COLOURS[name],
                label=name,
            )
    for panel, title in zip(panels, ("milliseconds per step", "MiB: state + peak of a step"), strict=True):
        panel.set(title=title, xlabel="k, classes", xscale="log", yscale="log")
    hardware = machine["gpu"] if machine["device"] == "cuda" else f"one thread of {machine['cpu']}"
    batch = f"Batches of {shape['m']:,} with {shape['each']} samples per class, d {shape['d']}, s {shape['atoms']}"
    figure.suptitle(f"{batch}; {hardware}", fontsize=10)
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
    return figure


if __name__ == "__main__":
    draw_all(__doc__, {"scale-steps": steps})
