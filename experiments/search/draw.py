"""Pictures of the search, from the lines beside this file: recipe-rates, -forces, -gap, -trace, -details and -long.

    python experiments/search/draw.py [--out docs/images] [--lines experiments/search]

What has no line yet is left out, and a picture of nothing is not written. The same lines make the same bytes, with one
version of matplotlib and Pillow.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from matplotlib import pyplot
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent), str(ROOT)]

from _drawing import BLUE, GREEN, GREY, ORANGE, draw_all  # noqa: E402
from run import lines_of  # noqa: E402
from studies import CE, SHORT, START, studies  # noqa: E402

from vmcr2.train import Config  # noqa: E402

Line = dict[str, Any]
HOLDOUT = "hold-out accuracy"
DELTA_R = "ΔR of all training images"


def ended(folder: Path, study: str) -> dict[str, Line]:
    """The lines of a study by their identities, without those of trainings that broke."""
    return {key: line for key, line in lines_of(folder, study).read().items() if "failed" not in line}


def varied(folder: Path, names: tuple[str, ...], base: Config, *settings: str) -> Iterator[tuple[Config, Line]]:
    """Runs that differ from ``base`` in these settings alone: of the studies, not of what lines say of a recipe."""
    for name in names:
        found = ended(folder, name)
        for attempt in studies()[name]:
            same = base.replace(**{setting: getattr(attempt.config, setting) for setting in settings})
            if attempt.id in found and not attempt.variant and attempt.config == same:
                yield attempt.config, found[attempt.id]


def new_figure(panels: int, **options: Any) -> tuple[Figure, list[Axes]]:
    """Panels beside each other, 8 inches wide: 10 points are 14 pixels of 800."""
    figure, axes = pyplot.subplots(1, panels, figsize=(8, 3.6), dpi=150, layout="constrained", squeeze=False, **options)
    return figure, list(axes[0])


def rates(folder: Path) -> Figure | None:
    """Hold-out accuracy over lr × weight decay, a series for each lr: V-MCR² beside cross-entropy's head."""
    sides = {
        "V-MCR², nearest subspace": (("rates",), START, "holdout_accuracy"),
        "cross-entropy, its head": (("ce", "ce-long"), CE, "head_accuracy"),
    }
    found = {
        title: [(c.lr, c.lr * c.weight_decay, line[key]) for c, line in varied(folder, of, base, "lr", "weight_decay")]
        for title, (of, base, key) in sides.items()
    }
    if not any(found.values()):
        return None
    colours = dict(zip((0.1, 0.3, 1.0, 2.0), (GREEN, BLUE, ORANGE, GREY), strict=True))
    figure, panels = new_figure(2, sharex=True, sharey=True)
    for axis, (title, points) in zip(panels, found.items(), strict=True):
        for lr in sorted({lr for lr, _, _ in points}):
            series = sorted((product, value) for rate, product, value in points if rate == lr)
            axis.plot(*zip(*series, strict=True), color=colours.get(lr), label=f"lr {lr:g}")
        axis.set(title=title, xscale="log", xlabel="learning rate × weight decay")
        if points:
            axis.legend()
    panels[0].set(ylabel=f"{HOLDOUT}, 200 epochs", ylim=(0, None))
    return figure


def forces(folder: Path) -> Figure | None:
    """Hold-out accuracy and ΔR over β, everything else as at the start."""
    found = sorted(
        (config.batch_expansion, line["holdout_accuracy"], line["train_delta_r"])
        for config, line in varied(folder, ("forces", "rates"), START, "batch_expansion")
    )
    if not found:
        return None
    figure, panels = new_figure(2)
    beta, *measured = zip(*found, strict=True)
    for axis, values, name, colour in zip(panels, measured, (HOLDOUT, DELTA_R), (BLUE, GREEN), strict=True):
        axis.plot(beta, values, color=colour)
        axis.set(title=f"{name}, 200 epochs", xlabel="β, the weight of the batch's R", ylim=(0, 1.1 * max(values)))
    return figure


def gap(folder: Path) -> Figure | None:
    """Accuracy on training images against hold-out accuracy, every run on CIFAR-100 at d 500."""
    found: dict[str, list[tuple[float, float]]] = {}
    for name in studies():
        for line in ended(folder, name).values():
            if line["recipe"].startswith("cifar100-") and "-d100-" not in line["recipe"]:
                held_out = line["head_accuracy" if "head_accuracy" in line else "holdout_accuracy"]
                found.setdefault(series_of(line), []).append((line["train_accuracy"], held_out))
    if not found:
        return None
    marks = {
        "V-MCR², up to 600 epochs": (BLUE, "o"),
        "V-MCR², 1000 or 2000 epochs": (BLUE, "*"),
        "cross-entropy (hold-out: its head)": (ORANGE, "s"),
        "exact MCR²": (GREEN, "^"),
    }
    figure, (axis,) = new_figure(1)
    figure.set_size_inches(8, 5)
    for name, (colour, mark) in marks.items():
        if name in found:
            size, order = (130, 3) if mark == "*" else (30, 2)  # few stars: on top
            options: dict[str, Any] = {"alpha": 0.85, "edgecolors": "white", "linewidths": 0.5, "zorder": order}
            x, y = zip(*found[name], strict=True)
            axis.scatter(x, y, c=colour, marker=mark, s=size, label=name, **options)
    axis.plot((0, 1), (0, 1), color=GREY, linewidth=1, linestyle="--", marker="", label="no gap")
    limits = {"xlim": (0, 1), "ylim": (0, 0.7)}
    axis.set(xlabel="accuracy on training images, nearest subspace", ylabel=HOLDOUT, **limits)
    axis.legend(loc="lower right")
    return figure


def series_of(line: Line) -> str:
    """What a run is called in the picture of gaps."""
    objective = line["recipe"].split("-")[1]  # cifar100-ce, cifar100-ce-paper
    if objective == "ce":
        return "cross-entropy (hold-out: its head)"
    if objective == "mcr2":
        return "exact MCR²"
    return f"V-MCR², {'1000 or 2000' if line['epochs'] >= 1000 else 'up to 600'} epochs"


def trace(folder: Path) -> Figure | None:
    """Hold-out accuracy and ΔR over the trace that the codes are held at, beside free codes."""
    found = sorted(
        (config.codes_trace, line["holdout_accuracy"], line["train_delta_r"])
        for config, line in varied(folder, ("why",), SHORT.replace(codes="rescaled"), "codes_trace")
    )
    if not found:
        return None
    free = [line for _, line in varied(folder, ("details",), SHORT)]
    figure, panels = new_figure(2)
    held, *measured = zip(*found, strict=True)
    kinds = (("holdout_accuracy", HOLDOUT, BLUE), ("train_delta_r", DELTA_R, GREEN))
    for axis, values, (key, name, colour) in zip(panels, measured, kinds, strict=True):
        axis.plot(held, values, color=colour, label="held at this trace")
        for line in free:
            label = f"free codes (trace {line['codes_trace']:.1f})"
            axis.axhline(line[key], color=ORANGE, linestyle="--", marker="", label=label)
        top = 1.15 * max(*values, *(line[key] for line in free), 0.0)
        axis.set(title=f"{name}, 100 epochs", xlabel="trace of a class's codes", ylim=(0, top))
        axis.set_xscale("log", base=2)
        axis.set_xticks(held, [f"{value:g}" for value in held])
        axis.legend(loc="lower right")
    return figure


def details(folder: Path) -> Figure | None:
    """Hold-out accuracy and ΔR of the short runs that differ from the start in one thing or two, as bars."""
    found = sorted(ended(folder, "details").values(), key=lambda line: line["holdout_accuracy"])
    if not found:
        return None
    figure, panels = new_figure(2, sharey=True)
    figure.set_size_inches(8, 4.2)
    names = [line["called"].replace("_", " ").replace("=", " ") for line in found]
    kinds = (("holdout_accuracy", HOLDOUT, BLUE), ("train_delta_r", DELTA_R, GREEN))
    for axis, (key, name, colour) in zip(panels, kinds, strict=True):
        shades = [ORANGE if line["called"] == "the start" else colour for line in found]
        axis.barh(names, [line[key] for line in found], color=shades)
        axis.set_axisbelow(True)  # the grid behind the bars
        axis.set(title=name, xlabel="after 100 epochs")
    return figure


def long(folder: Path) -> Figure | None:
    """Hold-out accuracy and ΔR along the three best of the longest runs."""
    found = [line for name in ("long", "longest") for line in ended(folder, name).values() if line.get("curve")]
    best = sorted(found, key=lambda line: -line["holdout_accuracy"])[:3]
    if not best:
        return None
    figure, panels = new_figure(2)
    for line, colour in zip(best, (BLUE, GREEN, ORANGE), strict=False):
        epochs, accuracies, rates, _ = zip(*line["curve"], strict=True)
        epochs = (*epochs, line["epochs"])
        label = f"{line['holdout_accuracy']:.3f}: {in_words(line)}"
        panels[0].plot(epochs, (*accuracies, line["holdout_accuracy"]), color=colour, label=label)
        panels[1].plot(epochs, (*rates, line["train_delta_r"]), color=colour)
    panels[0].set(title=HOLDOUT, xlabel="epochs", ylim=(0, None))
    panels[1].set(title=DELTA_R, xlabel="epochs", ylim=(0, None))
    figure.legend(loc="outside lower center", ncols=1)
    figure.set_size_inches(8, 4.4)
    return figure


def in_words(line: Line) -> str:
    """The settings of a run that the picture of the longest tells apart."""
    short = {"lr": "lr", "weight_decay": "weight decay", "batch_expansion": "β", "focus": "focus", "codes": "codes"}
    short |= {"decay_power": "power", "average": "averaged weights"}
    changes = line["changes"]
    return ", ".join(f"{word} {changes[key]}" for key, word in short.items() if key in changes)


PICTURES = {
    "recipe-rates": rates,
    "recipe-forces": forces,
    "recipe-gap": gap,
    "recipe-trace": trace,
    "recipe-details": details,
    "recipe-long": long,
}


def main() -> None:
    """As the first lines of this file say."""
    draw_all(__doc__, PICTURES, "lines", HERE)


if __name__ == "__main__":
    main()
