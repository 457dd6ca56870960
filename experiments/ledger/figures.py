"""The paper's Figures 1 and 2 for all its data, from the ledger's results: ledger-figure1 and -figure2 (.png).

    python -m experiments.ledger.figures [--out docs/images]

They show seed 0 of every row that has a result. A row that waits for its run shows its latest one by earlier settings.
"""

from __future__ import annotations

from pathlib import Path

from matplotlib import pyplot
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from .._drawing import COLOURS, draw_all
from .rows import OBJECTIVES, RESULTS, Result, result_of, rows
from .table import last_of, set_aside

PLACES = {
    "mnist": "MNIST, d = 128",
    "cifar10": "CIFAR-10 (JPEG copy), d = 128",
    "cifar100": "CIFAR-100, d = 500",
    "cifar100-d100": "CIFAR-100, d = 100",
    "tiny-imagenet": "Tiny ImageNet, d = 500",
    "tiny-imagenet-d200": "Tiny ImageNet, d = 200",
}
FAMILIES = {"tuned": "-", "paper": "--"}


def results(folder: Path) -> dict[tuple[str, str, str], Result]:
    """Seed 0 of what ended, by family, place and objective."""
    found = {}
    first = {key: [one for one in group if one["seed"] == 0] for key, group in set_aside(folder).items()}
    aside = {key: group for key, group in first.items() if group}
    for family in FAMILIES:
        for place in PLACES:
            for objective in OBJECTIVES:
                row = rows().get(f"{family}-{place}-{objective}")
                if row is None:
                    continue
                result = result_of(folder, row, 0) or next(iter(last_of(row, aside)), None)
                if result is not None and "failed" not in result["summary"]:
                    found[family, place, objective] = result
    return found


def convergence(folder: Path = RESULTS) -> Figure:
    """Figure 1: ΔR of the epoch's last batch over the epochs, tuned and as the paper says."""
    known = results(folder)
    places = [place for place in PLACES if any(place == other for _, other, _ in known)]
    across = min(3, len(places))
    down = -(-len(places) // across)
    figure, axes = pyplot.subplots(
        down, across, figsize=(4 * across, 3.2 * down + 0.4), dpi=150, layout="constrained", squeeze=False
    )
    lines: dict[str, Line2D] = {}
    for axis in axes.flat[len(places) :]:
        axis.remove()
    for axis, place in zip(axes.flat, places, strict=False):
        for (family, other, objective), result in known.items():
            if other == place:
                at = result["curve_has"].index("batch_delta_r")
                points = [(line[0], line[at]) for line in result["curve"]]
                label = f"{OBJECTIVES[objective]}, {family}"
                style = {"color": COLOURS[objective], "linestyle": FAMILIES[family], "marker": "", "label": label}
                (lines[label],) = axis.plot(*zip(*points, strict=True), **style)
        axis.set(title=PLACES[place], xlabel="epochs", ylabel="ΔR of a training batch", ylim=(0, None))
        axis.set_xscale("symlog", linthresh=10)
        axis.set_xlim(0, None)
    figure.legend(lines.values(), lines.keys(), loc="outside lower center", ncols=len(lines))
    return figure


def heat_maps(folder: Path = RESULTS) -> Figure:
    """Figure 2: |cosines| of training samples sorted by class; a line for each data set, tuned before literal."""
    known = {key: result["cosines"] for key, result in results(folder).items() if result["cosines"]}
    lines = [place for place in PLACES if place in {place for _, place, _ in known}]
    columns = [
        (family, objective)
        for family in FAMILIES
        for objective in OBJECTIVES
        if any((family, place, objective) in known for place in lines)
    ]
    size = (2.1 * len(columns) + 0.3, 2.1 * len(lines) + 0.3)
    figure, axes = pyplot.subplots(len(lines), len(columns), figsize=size, dpi=150, layout="constrained", squeeze=False)
    for across, (family, objective) in enumerate(columns):
        axes[0, across].set_title(f"{OBJECTIVES[objective]}, {family}")
        for down, place in enumerate(lines):
            axis = axes[down, across]
            axis.set(xticks=[], yticks=[])
            axis.grid(visible=False)
            if across == 0:
                axis.set_ylabel(PLACES[place])
            if (family, place, objective) in known:
                axis.imshow(known[family, place, objective], cmap="Blues", vmin=0, vmax=100)
            else:  # its title and label stay
                axis.patch.set_visible(False)
                for side in axis.spines.values():
                    side.set_visible(False)
    return figure


PICTURES = {"ledger-figure1": convergence, "ledger-figure2": heat_maps}

if __name__ == "__main__":
    draw_all(__doc__, PICTURES)
