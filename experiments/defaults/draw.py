"""Draw docs/images/defaults-corner.png (accuracy against ΔR) and defaults-line.png (samples per class in a batch).

python -m experiments.defaults.draw
"""

from __future__ import annotations

from matplotlib import pyplot
from matplotlib.figure import Figure

from .._drawing import BLUE, GREEN, GREY, ORANGE, draw_all
from .table import NAMES, TITLES, current, readout, share

COLOURS = {"ce": ORANGE, "ce+mcr2": "#7a3e9d", "ce+vmcr2": GREY, "mcr2": GREEN, "vmcr2": BLUE}
MARKS = {"ce": "s", "ce+mcr2": "o", "ce+vmcr2": "^", "mcr2": "D", "vmcr2": "v"}
_LINE = ("ce+mcr2", "ce+vmcr2", "mcr2", "vmcr2")


def corner() -> Figure:
    """Every run of the two studies: up is accurate, right is separated."""
    figure, panels = pyplot.subplots(1, 2, figsize=(9.5, 3.8), layout="constrained")
    for panel, data in zip(panels, ("cifar10", "cifar100"), strict=True):
        lines = current(f"corner-{data}").values()
        for objective, colour in COLOURS.items():
            points = [(share(line), readout(line)[1]) for line in lines if line["settings"]["objective"] == objective]
            panel.plot(*zip(*points, strict=True), MARKS[objective], color=colour, label=NAMES[objective])
        panel.set(title=f"{TITLES[data]}, 100 epochs", xlabel="full-train ΔR / its maximum", xlim=(0, 1))
    panels[0].set_ylabel("accuracy on held-out images")
    figure.legend(*panels[1].get_legend_handles_labels(), loc="outside lower center", ncols=5)
    return figure


def line() -> Figure:
    """ΔR and mistakes over the samples of a class in a batch."""
    figure, panels = pyplot.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    runs = current("line").values()
    for objective in _LINE:
        own = sorted(
            (run["settings"]["batch_size"] / 10, share(run), readout(run)[1])
            for run in runs
            if run["settings"]["objective"] == objective
        )
        for panel, height in zip(panels, (1, 2), strict=True):
            panel.plot(
                [one[0] for one in own],
                [one[height] for one in own],
                marker=MARKS[objective],
                color=COLOURS[objective],
                label=NAMES[objective],
            )
    for panel, title in zip(panels, ("full-train ΔR / its maximum", "accuracy on held-out images"), strict=True):
        panel.set(title=title, xlabel="samples per class in a batch (room for 12 dimensions)", xscale="log")
        panel.set_xticks([2, 4, 8, 16, 32], ["2", "4", "8", "16", "32"])
        panel.minorticks_off()
        panel.axvline(12, color=GREY, linewidth=0.8, linestyle=":", marker="")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return figure


if __name__ == "__main__":
    draw_all(__doc__, {"defaults-corner": corner, "defaults-line": line})
