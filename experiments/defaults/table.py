"""Print the tables of docs/defaults.md from the committed results.

python -m experiments.defaults.table
"""

from __future__ import annotations

from typing import Any

from vmcr2.functional import maximal_rate_reduction
from vmcr2.objectives import choose_objective

from .._study import table
from .studies import LEVELS, OBJECTIVES, PICTURES, decided, lines_of, studies

Line = dict[str, Any]
PAGE = Path(__file__).parents[2] / "docs" / "defaults.md"
TITLES = {"digits": "digits", "mnist": "MNIST", "cifar10": "CIFAR-10 (JPEG copy)", "cifar100": "CIFAR-100"}
TITLES["tiny-imagenet"] = "Tiny ImageNet"
NAMES = {"ce": "cross-entropy", "mcr2": "exact MCR²", "vmcr2": "V-MCR²"}
NAMES |= {"ce+mcr2": "cross-entropy + exact", "ce+vmcr2": "cross-entropy + V-MCR²"}


def current(study: str) -> dict[str, Line]:
    """Results by the name of their run, of the settings that the study has now."""
    lines = lines_of(study)
    found = {}
    for trial in studies()[study]:
        settings = decided(trial.config)
        matching = [line for line in lines if line["settings"] == settings]
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


def corner(data: str) -> str:
    """Every run on held-out images, best first."""
    lines = sorted(current(f"corner-{data}").items(), key=lambda item: -readout(item[1])[1])
    rows = [
        [f"`{name}`", f"{line.get('head_accuracy', float('nan')):.4f}".replace("nan", "–"),
         f"{line['holdout_accuracy']:.4f}", f"{line['train_delta_r']:.1f}", f"{share(line):.2f}"]
        for name, line in lines
    ]  # fmt: skip
    return table(["held out", "head", "nearest subspace", "ΔR", "of its maximum"], rows)


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


def sections() -> dict[str, str]:
    """The tables by the name of their place in the page."""
    return {
        "battery": battery(),
        "corner": "\n\n".join(f"{TITLES[data]}:\n\n{corner(data)}" for data in ("cifar10", "cifar100")),
        "line": line_of_choice(),
        "noise": noise(),
    }


def written(page: str) -> str:
    """The page with these tables between their comments."""
    for name, text in sections().items():
        pattern = rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)"
        page = re.sub(pattern, lambda found, text=text: f"{found[1]}{text}\n{found[2]}", page, flags=re.DOTALL)
    return page


if __name__ == "__main__":
    PAGE.write_text(written(PAGE.read_text()))
    print(f"wrote {', '.join(sections())} into {PAGE}")
