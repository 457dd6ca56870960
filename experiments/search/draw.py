"""The pictures of docs/tuning.md and docs/tuning-log.md, from the lines in this folder.

    python -m experiments.search.draw [--out docs/images]

The same lines make the same bytes, with one version of matplotlib and Pillow.
"""

from __future__ import annotations

from typing import Any

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .._drawing import BLUE, GREEN, GREY, ORANGE, draw_all
from . import Line, held_out, read, studies

HOLDOUT = "hold-out accuracy"
DELTA_R = "ΔR of all training images"
BOTH = (("holdout_accuracy", HOLDOUT, BLUE), ("train_delta_r", DELTA_R, GREEN))
START = "lr=0.3 weight_decay=0.0005"  # the start of the search, as the study `rates` calls it


def varied(study: str, *names: str) -> list[Line]:
    """The runs of a study that changed these settings and no others, in the order of their values."""
    found = [line for line in read(study) if not line["variant"] and _changed(line) == list(names)]
    return sorted(found, key=lambda line: [line["settings"][name] for name in names])


def _changed(line: Line) -> list[str]:
    return [change.partition("=")[0] for change in line["called"].split()]


def new_figure(panels: int, height: float = 3.6, **options: Any) -> tuple[Figure, list[Axes]]:
    """Panels beside each other, 8 inches wide: 10 points are 14 pixels of 800."""
    size = (8, height)
    figure, axes = pyplot.subplots(1, panels, figsize=size, dpi=150, layout="constrained", squeeze=False, **options)
    return figure, list(axes[0])


def rates() -> Figure:
    """Hold-out accuracy over lr × weight decay, a series for each lr: V-MCR² beside cross-entropy's head."""
    sides = {"V-MCR², nearest subspace": ("rates",), "cross-entropy, its head": ("ce", "ce-long")}
    colours = {0.1: GREEN, 0.3: BLUE, 1.0: ORANGE, 2.0: GREY}
    figure, panels = new_figure(2, sharex=True, sharey=True)
    for axis, (title, names) in zip(panels, sides.items(), strict=True):
        series: dict[float, list[tuple[float, float]]] = {}
        for line in (line for name in names for line in varied(name, "lr", "weight_decay")):
            lr, decay = line["settings"]["lr"], line["settings"]["weight_decay"]
            series.setdefault(lr, []).append((lr * decay, held_out(line)))
        for lr, points in sorted(series.items()):
            axis.plot(*zip(*sorted(points), strict=True), color=colours[lr], label=f"lr {lr:g}")
        axis.set(title=title, xscale="log", xlabel="learning rate × weight decay")
        axis.legend()
    panels[0].set(ylabel=f"{HOLDOUT}, 200 epochs", ylim=(0, None))
    return figure


def forces() -> Figure:
    """Hold-out accuracy and ΔR over β, everything else as at the start."""
    start = [line for line in read("rates") if line["called"] == START]
    found = sorted([*varied("forces", "batch_expansion"), *start], key=lambda line: line["settings"]["batch_expansion"])
    figure, panels = new_figure(2)
    for axis, (key, name, colour) in zip(panels, BOTH, strict=True):
        values = [line[key] for line in found]
        axis.plot([line["settings"]["batch_expansion"] for line in found], values, color=colour)
        axis.set(title=f"{name}, 200 epochs", xlabel="β, the weight of the batch's R", ylim=(0, 1.1 * max(values)))
    return figure


def gap() -> Figure:
    """Accuracy on training images against hold-out accuracy, every run of ResNet-18 on CIFAR-100 at d 500."""
    marks = {
        "V-MCR², up to 600 epochs": (BLUE, "o"),
        "V-MCR², 1000 or 2000 epochs": (BLUE, "*"),
        "cross-entropy (hold-out: its head)": (ORANGE, "s"),
        "exact MCR²": (GREEN, "^"),
    }
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in marks}
    for line in (line for name in studies() for line in read(name)):
        if [line["settings"][key] for key in ("data", "dim", "model")] == ["cifar100", 500, "resnet18"]:
            found[series_of(line)].append((line["train_accuracy"], held_out(line)))
    figure, (axis,) = new_figure(1, 5)
    for name, (colour, mark) in marks.items():
        size, order = (130, 3) if mark == "*" else (30, 2)  # few stars: on top
        options: dict[str, Any] = {"alpha": 0.85, "edgecolors": "white", "linewidths": 0.5, "zorder": order}
        x, y = zip(*found[name], strict=True)
        axis.scatter(x, y, c=colour, marker=mark, s=size, label=name, **options)
    axis.plot((0, 1), (0, 1), color=GREY, linewidth=1, linestyle="--", marker="", label="no gap")
    axis.set(xlabel="accuracy on training images, nearest subspace", ylabel=HOLDOUT, xlim=(0, 1), ylim=(0, 0.7))
    axis.legend(loc="lower right")
    return figure


def series_of(line: Line) -> str:
    """What a run is called in the picture of gaps."""
    long = "1000 or 2000" if line["settings"]["epochs"] >= 1000 else "up to 600"
    names = {"ce": "cross-entropy (hold-out: its head)", "mcr2": "exact MCR²", "vmcr2": f"V-MCR², {long} epochs"}
    return names[line["settings"]["objective"]]


def trace() -> Figure:
    """Hold-out accuracy and ΔR over the trace that the codes are held at, beside free codes."""
    found = [*varied("why", "codes"), *varied("why", "codes", "codes_trace")]
    found = [line for line in found if line["settings"]["codes"] == "rescaled"]
    (free,) = (line for line in read("details") if line["called"] == "the start")
    held = [line["settings"]["codes_trace"] for line in found]
    figure, panels = new_figure(2)
    for axis, (key, name, colour) in zip(panels, BOTH, strict=True):
        axis.plot(held, [line[key] for line in found], color=colour, label="held at this trace")
        label = f"free codes (trace {free['codes_trace']:.1f})"
        axis.axhline(free[key], color=ORANGE, linestyle="--", marker="", label=label)
        top = 1.15 * max(line[key] for line in [*found, free])
        axis.set(title=f"{name}, 100 epochs", xlabel="trace of a class's codes", ylim=(0, top))
        axis.set_xscale("log", base=2)
        axis.set_xticks(held, [f"{value:g}" for value in held])
        axis.legend(loc="lower right")
    return figure


def details() -> Figure:
    """Hold-out accuracy and ΔR of the short runs that differ from the start in one thing or two, as bars."""
    found = sorted(read("details"), key=held_out)
    figure, panels = new_figure(2, 4.2, sharey=True)
    names = [line["called"].replace("_", " ").replace("=", " ") for line in found]
    for axis, (key, name, colour) in zip(panels, BOTH, strict=True):
        shades = [ORANGE if line["called"] == "the start" else colour for line in found]
        axis.barh(names, [line[key] for line in found], color=shades)
        axis.set_axisbelow(True)  # the grid behind the bars
        axis.set(title=name, xlabel="after 100 epochs")
    return figure


def long() -> Figure:
    """Hold-out accuracy and ΔR along the three best of the longest runs."""
    best = sorted(read("longest"), key=held_out, reverse=True)[:3]
    figure, panels = new_figure(2, 4.4)
    for line, colour in zip(best, (BLUE, GREEN, ORANGE), strict=True):
        epochs, accuracies, rates, _ = zip(*line["curve"], strict=True)
        epochs = (*epochs, line["epochs"])
        label = f"{held_out(line):.3f}: {in_words(line)}"
        panels[0].plot(epochs, (*accuracies, held_out(line)), color=colour, label=label)
        panels[1].plot(epochs, (*rates, line["train_delta_r"]), color=colour)
    panels[0].set(title=HOLDOUT, xlabel="epochs", ylim=(0, None))
    panels[1].set(title=DELTA_R, xlabel="epochs", ylim=(0, None))
    figure.legend(loc="outside lower center", ncols=1)
    return figure


def in_words(line: Line) -> str:
    """The settings of a run that the picture of the longest tells apart."""
    words = {"lr": "lr", "weight_decay": "weight decay", "batch_expansion": "β", "focus": "focus", "codes": "codes"}
    words |= {"decay_power": "power", "average": "averaged weights"}
    return ", ".join(f"{word} {line['changes'][key]}" for key, word in words.items() if key in line["changes"])


PICTURES = {
    "tuning-rates": rates,
    "tuning-forces": forces,
    "tuning-gap": gap,
    "tuning-trace": trace,
    "tuning-details": details,
    "tuning-long": long,
}

if __name__ == "__main__":
    draw_all(__doc__, PICTURES)
