"""Write the tables of docs/defaults.md, tuning.md, tuning-log.md and results.md from the committed results.

python -m experiments.defaults.table
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from vmcr2.functional import maximal_rate_reduction
from vmcr2.objectives import choose_objective

from .. import loops, tables
from .._study import between_marks, table
from ._trial import BY_VIEWS
from ._views import VIEWS
from .studies import LEVELS, OBJECTIVES, PICTURES, RESULTS, decided, lines_of, settings_of, studies

Line = dict[str, Any]
DOCS = Path(__file__).parents[2] / "docs"
PAGE, SHORT = DOCS / "defaults.md", DOCS / "results.md"
SHOWN = {
    DOCS / "tuning.md": (
        *("focus-cifar10-short", "levers-cifar100", "row-cifar10-vmcr2-longer", "row-cifar10-ce-longer"),
        *("row-cifar10-mixed", "row-cifar10-next", "levers-cifar100-narrow", "row-cifar100-preact", "rule-focus"),
        *("row-tiny-imagenet", "row-tiny-imagenet-more", "row-tiny-imagenet-next", "row-tiny-imagenet-d200"),
        "row-tiny-imagenet-preact",
    ),
    DOCS / "tuning-log.md": (
        *("row-cifar10-vmcr2", "row-cifar10-ce", "row-cifar10-mcr2", "row-cifar10-mcr2-longer", "row-cifar10"),
    ),
}
"""Studies of the paper's rows, by the page that shows them."""
TITLES = {"digits": "digits", "mnist": "MNIST", "cifar10": "CIFAR-10 (JPEG copy)", "cifar100": "CIFAR-100"}
TITLES["tiny-imagenet"] = "Tiny ImageNet"
NAMES = {"ce": "cross-entropy", "mcr2": "exact MCR²", "vmcr2": "V-MCR²"}
NAMES |= {"ce+mcr2": "cross-entropy + exact", "ce+vmcr2": "cross-entropy + V-MCR²"}


def current(study: str) -> dict[str, Line]:
    """Results by the name of their run, of the settings that the study has now."""
    lines = lines_of(study)
    known = [settings_of(line) for line in lines]
    found = {}
    for trial in studies()[study]:
        settings = decided(trial.config)
        matching = [line for line, then in zip(lines, known, strict=True) if then == settings]
        if matching:
            found[trial.name] = matching[-1]
    return found


def readout(line: Line) -> tuple[str, float]:
    """What a run predicts by, and its accuracy."""
    by_head = line.get("readout", "head" if "head_accuracy" in line else "subspace") == "head"
    subspace = line["holdout_accuracy" if "holdout_accuracy" in line else "test_accuracy"]
    return ("head", line["head_accuracy"]) if by_head else ("subspace", subspace)


def share(line: Line) -> float:
    """Full-train ΔR over its maximum."""
    own = line["settings"]
    classes = PICTURES[own["data"]]
    return float(line["train_delta_r"] / maximal_rate_reduction(own["dim"], classes, eps_sq=own["eps_sq"]))


def cell(line: Line | None) -> str:
    """Accuracy by the read-out, and the share of ΔR."""
    if line is None:
        return "–"
    name, accuracy = readout(line)
    return f"{accuracy:.4f} ({name}), {share(line):.2f}"


def battery() -> str:
    """The rule on every set of pictures."""
    lines = current("battery")
    rows = []
    for data in PICTURES:
        known = {name: lines.get(f"{data} {name}") for name in OBJECTIVES}
        one = next((line for line in known.values() if line is not None), None)
        if one is None:
            continue
        own = one["settings"]
        chosen = choose_objective([10_000] * PICTURES[data], own["batch_size"], own["dim"])
        rows.append([TITLES[data], NAMES[chosen], *(cell(known[name]) for name in OBJECTIVES)])
    return table(["test accuracy, ΔR / max", "auto is", *(NAMES[name] for name in OBJECTIVES)], rows)


def auto() -> str:
    """The page of results: what the rule chooses, beside cross-entropy."""
    lines = current("battery")
    rows = []
    for data in PICTURES:
        known = [lines.get(f"{data} {name}") for name in ("ce", "ce+mcr2")]
        if all(known):
            rows.append([TITLES[data], *(cell(line).replace(" (head)", "") for line in known)])
    return table(["by the rule", "cross-entropy", "`auto`: cross-entropy + exact MCR²"], rows)


def held_out(study: str) -> str:
    """Every run of a study on held-out images, best first."""
    lines = sorted(current(study).items(), key=lambda item: -readout(item[1])[1])
    rows = [
        [f"`{name}`", f"{line.get('head_accuracy', float('nan')):.4f}".replace("nan", "–"),
         f"{line['holdout_accuracy']:.4f}", f"{line['train_delta_r']:.1f}", f"{share(line):.2f}"]
        for name, line in lines
    ]  # fmt: skip
    return table(["held out", "head", "nearest subspace", "ΔR", "of its maximum"], rows)


def by_views() -> str:
    """Every run that was measured by many views: accuracy by its read-out, and ΔR, by what was averaged."""
    called = [f"by {shift}" if shift else "mirrored" if flips else "alone" for flips, shift in VIEWS]
    with_rate = (0, 1, 2, -1)
    rows = []
    for study in BY_VIEWS:
        for name, line in current(study).items():
            views = line["holdout_by_views"].values()
            kind = readout(line)[0]
            best = max(view[kind] for view in views)
            cells = [f"{view[kind]:.4f}" for view in views]
            shown = [f"**{cell}**" if view[kind] == best else cell for cell, view in zip(cells, views, strict=True)]
            rates = [f"{view['delta_r']:.1f}" for view in views]
            rows.append([f"`{name}`", kind, *shown, ", ".join(rates[at] for at in with_rate)])
    return table(["held out", "by", *called, f"ΔR {', '.join(called[at] for at in with_rate)}"], rows)


def noise() -> str:
    """Wrong labels."""
    lines = current("noise")
    rows = []
    for data in ("cifar10", "cifar100"):
        for objective in OBJECTIVES[:4]:
            known = [lines.get(f"{data} {level:g} {objective}") for level in sorted(LEVELS)]
            if any(known):
                cells = ["–" if line is None else f"{readout(line)[1]:.4f}" for line in known]
                rows.append([TITLES[data], NAMES[objective], *cells])
    return table(["", "test accuracy, labels replaced:", *(f"{level:.0%}" for level in sorted(LEVELS))], rows)


def line_of_choice() -> str:
    """Fewer samples of a class in a batch: accuracy and ΔR by objective."""
    lines = list(current("line").values())
    kinds = ("ce+mcr2", "ce+vmcr2", "mcr2", "vmcr2")
    rows = []
    for batch in sorted({line["settings"]["batch_size"] for line in lines}):
        known = {line["settings"]["objective"]: line for line in lines if line["settings"]["batch_size"] == batch}
        rows.append([f"{batch / 10:g}", f"{batch / 10 / 12:.2f}", *(cell(known.get(kind)) for kind in kinds)])
    return table(["samples per class in a batch", "for each dimension", *(NAMES[kind] for kind in kinds)], rows)


def own_loops() -> str:
    """Networks × optimisers in somebody's own loop, now and before."""
    found = _saved("loops.json")["battery"]

    def mean(figure: str, **where: Any) -> float:
        values = [row[figure] for row in found if all(row[name] == value for name, value in where.items())]
        return float(sum(values) / len(values))

    parts = []
    for loss, title in loops.LOSSES.items():
        rows = []
        for network, called in loops.NETWORKS.items():
            row = [called]
            for optimiser in loops.OPTIMISERS:
                own = {"loss": loss, "network": network, "optimiser": optimiser}
                now, before = (mean("delta", **own, before=earlier) for earlier in (False, True))
                row.append(f"{now:.2f} ← {before:.2f}, {mean('accuracy', **own, before=False):.2f}")
            rows.append(row)
        parts.append(table([title, *loops.OPTIMISERS.values()], rows))
    return "\n\n".join(parts)


def arrays() -> str:
    """The means over all tables, and the unbalanced ones."""
    found = _saved("tables.json")["results"]
    methods = [name for name in tables.METHODS if name not in tables.LEFT_OUT]
    rows = [
        [title, *(f"{tables.mean(found, figure, method=method):.3f}" for method in methods)]
        for title, figure in (("mean accuracy of all tables", "accuracy"), ("mean balanced accuracy", "balanced"))
    ]
    for name in tables.UNBALANCED:
        for title, figure in (("accuracy", "accuracy"), ("balanced", "balanced")):
            cells = [f"{tables.mean(found, figure, method=method, table=name):.3f}" for method in methods]
            rows.append([f"{name}: {title}", *cells])
    return table(["", *(tables.METHODS[method] for method in methods)], rows)


def _saved(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS.parent / name).read_text())
    return content


def sections() -> dict[str, str]:
    """The tables by the name of their place in the page."""
    return {
        "battery": battery(),
        "corner": "\n\n".join(f"{TITLES[data]}:\n\n{held_out(f'corner-{data}')}" for data in ("cifar10", "cifar100")),
        "line": line_of_choice(),
        "loops": own_loops(),
        "tables": arrays(),
        "noise": noise(),
    }


def written(page: str, contents: dict[str, str]) -> str:
    """The page with these tables between their comments."""
    for name, text in contents.items():
        page = between_marks(page, f"<!-- {name} -->", f"<!-- end of {name.partition(':')[0]} -->", text)
    return page


def pages() -> dict[Path, dict[str, str]]:
    """What is written where."""
    short = {"auto: written by experiments/defaults/table.py": auto()}
    of_studies = {page: {name: held_out(name) for name in names} for page, names in SHOWN.items()}
    of_studies[DOCS / "tuning-log.md"]["views"] = by_views()
    return {PAGE: sections(), SHORT: short, **of_studies}


if __name__ == "__main__":
    for path, contents in pages().items():
        path.write_text(written(path.read_text(), contents))
        print(f"wrote {', '.join(contents)} into {path}")
