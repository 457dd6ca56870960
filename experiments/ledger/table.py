"""The ledger's tables, from experiments/results/ledger/*.json: experiments/README.md, the short one in docs/results.md.

    python -m experiments.ledger.table

They are written between two marks; the rest of the pages is not touched. A row without results says so.
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean
from typing import Any

from vmcr2.data import DATASETS
from vmcr2.functional import default_components
from vmcr2.report import paper_figures, spread
from vmcr2.runs import ALL_SETTINGS, Config, UserError

from .._study import between_marks, table
from .rows import OBJECTIVES, RESULTS, Result, Row, result_of, rows

BEGIN, END = "<!-- ledger: written by experiments/ledger/table.py -->", "<!-- end of the ledger -->"
HEADER = [
    *("row", "epochs", "seeds", "components"),
    *("nearest subspace", "class mean", "head"),
    *("full-train ΔR", "batch ΔR", "ΔR of the last training batch", "the paper: accuracy, training ΔR"),
    *("seconds", "GPU", "commit"),
]
EARLIER_HEADER = [
    *("row", "what differed", "seeds", "nearest subspace", "head", "full-train ΔR", "batch ΔR"),
    *("seconds", "commit"),
]
SHORT_HEADER = [
    *("the paper's Tables 2 and 3, test images", "the paper: accuracy, training ΔR"),
    *("read literally: accuracy, ΔR of the last training batch", "tuned: accuracy", "ΔR of the last training batch"),
    *("full-train ΔR", "epochs", "seeds"),
]
SHORT = {
    "MNIST": "mnist",
    "CIFAR-10 (JPEG copy)": "cifar10",
    "CIFAR-100": "cifar100",
    "Tiny ImageNet": "tiny-imagenet",
    "CIFAR-100, PreAct ResNet-18": "cifar100-preact",
    "Tiny ImageNet, PreAct ResNet-18": "tiny-imagenet-preact",
}
NOT_YET = "not run yet"
BEFORE = " (earlier settings)"


def paper_cell(row: Row) -> str:
    """Accuracy and ΔR of the paper's row, and its epochs where they are not ours."""
    figures = paper_figures(row.config.recipe, row.config.objective.name)
    if figures is None:
        return "–"
    rate = f", {figures.delta_r:.0f}" if figures.delta_r is not None else ""
    epochs = "" if figures.epochs == row.config.optim.epochs else f" ({figures.epochs} epochs)"
    return f"{figures.accuracy:.4f}{rate}{epochs}"


def row_of(row: Row, results: list[Result]) -> list[str]:
    """A claim in cells."""
    ended = ended_of(results)
    config = row.config
    start = [f"`{row.name}`", str(config.optim.epochs)]
    components = config.run.components or default_components(config.model.dim, DATASETS[config.data.name].classes)
    if not results:
        return [*start, "–", str(components), NOT_YET, "", "", "", "", "", paper_cell(row), "", "", ""]
    return [
        *start,
        seeds(results),
        str(components),
        over(ended, "test_accuracy", 4),
        over(ended, "test_class_mean_accuracy", 4),
        over(ended, "head_accuracy", 4),
        over(ended, "train_delta_r", 1),
        over(ended, "batch_delta_r", 1),
        trained(ended),
        paper_cell(row),
        seconds(ended),
        ", ".join(sorted({result["manifest"]["device"].removeprefix("NVIDIA ") for result in results})),
        commits(results),
    ]


def seeds(results: list[Result]) -> str:
    """Of all runs, and how many of them broke."""
    failed = len(results) - len(ended_of(results))
    return ", ".join(str(result["seed"]) for result in results) + (f" ({failed} broke)" if failed else "")


def seconds(ended: list[Result]) -> str:
    """A run's, on the average."""
    return f"{mean(result['summary']['seconds'] for result in ended):.0f}" if ended else "–"


def commits(results: list[Result]) -> str:
    """Short names."""
    return ", ".join(sorted({(result["manifest"]["git_commit"] or "–")[:7] for result in results}))


def ended_of(results: list[Result]) -> list[Result]:
    """Those of runs that did not break."""
    return [result for result in results if "failed" not in result["summary"]]


def over(ended: list[Result], name: str, digits: int) -> str:
    """Mean ± standard deviation of a figure over the runs that have it."""
    return spread([result["summary"][name] for result in ended if name in result["summary"]], digits)


def trained(ended: list[Result], digits: int = 1) -> str:
    """ΔR of the last batch as the objective saw it, augmented and with dropout: what the paper's seems to be."""
    return spread([result["curve"][-1][result["curve_has"].index("batch_delta_r")] for result in ended], digits)


def results_of(row: Row, results: Path) -> list[Result]:
    """What is there of a row, by seed."""
    kept = [result_of(results, row, seed) for seed in row.seeds]
    return [result for result in kept if result is not None]


def ledger(results: Path = RESULTS) -> str:
    """Every row, and below them the results of earlier settings."""
    whole = table(HEADER, [row_of(row, results_of(row, results)) for row in rows().values()])
    before = earlier(results)
    if not before:
        return whole
    return f"{whole}\n\nResults of earlier settings of these rows:\n\n{table(EARLIER_HEADER, before)}"


def earlier(results: Path) -> list[list[str]]:
    """The results in earlier/, one row for all seeds with the same settings."""
    return [earlier_row(name, other, found) for (name, other), found in set_aside(results).items()]


def set_aside(results: Path) -> dict[tuple[str, str], list[Result]]:
    """The results in earlier/ by their row and by what differed."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for path in sorted((results / "earlier").glob("*.json")):
        result = json.loads(path.read_text())
        groups.setdefault((result["row"], what_differed(result)), []).append(result)
    return groups


def last_of(row: Row, aside: dict[tuple[str, str], list[Result]]) -> list[Result]:
    """A row's latest results by earlier settings."""
    groups = [found for (name, _), found in aside.items() if name == row.name]
    return max(groups, key=lambda found: str(found[0]["manifest"]["started"]), default=[])


def earlier_row(name: str, other: str, results: list[Result]) -> list[str]:
    """The results of earlier settings, in cells."""
    ended = ended_of(results)
    return [
        f"`{name}`",
        other,
        seeds(results),
        over(ended, "test_accuracy", 4),
        over(ended, "head_accuracy", 4),
        over(ended, "train_delta_r", 1),
        over(ended, "batch_delta_r", 1),
        seconds(ended),
        commits(results),
    ]


def what_differed(result: Result) -> str:
    """The settings of a result that are not the row's any more."""
    now = Config().flat() | rows()[result["row"]].of(result["seed"]).deciding()
    gone = {name: value for name, value in result["settings"].items() if _is_gone(name, value)}
    known = {name: value for name, value in result["settings"].items() if name not in gone}
    then = {name: value for name, value in Config.from_flat(known).deciding().items() if now.get(name) != value}
    return ", ".join(f"{name} {value}" for name, value in (then | gone).items())


def _is_gone(name: str, value: Any) -> bool:
    """Whether it is a setting that was removed, at another value than its default."""
    if name in ALL_SETTINGS:
        return False
    try:
        Config.from_flat({name: value})
    except UserError:
        return True
    return False


def short(results: Path = RESULTS) -> str:
    """The paper's rows beside ours, read literally and tuned."""
    named = [(data, f"{family}-{objective}") for data, family in SHORT.items() for objective in OBJECTIVES]
    known, aside = rows(), set_aside(results)
    return table(
        SHORT_HEADER, [short_row(data, name, results, aside) for data, name in named if f"tuned-{name}" in known]
    )


def short_row(data: str, name: str, results: Path, aside: dict[tuple[str, str], list[Result]]) -> list[str]:
    """A row of the paper in cells; cross-entropy by its head."""
    tuned, literal = rows()[f"tuned-{name}"], rows().get(f"paper-{name}")
    objective = tuned.config.objective.name
    by_head = objective == "ce"
    accuracy = "head_accuracy" if by_head else "test_accuracy"
    now = results_of(tuned, results)
    found = now or last_of(tuned, aside)
    ended = ended_of(found)
    said = over(ended, accuracy, 4) + ("" if now else BEFORE)
    ours = [said, trained(ended), over(ended, "train_delta_r", 1)]
    return [
        f"{data}, {OBJECTIVES[objective]}" + (", its head" if by_head else ""),
        paper_cell(tuned),
        "–" if literal is None else literal_cell(results_of(literal, results), accuracy),
        *(ours if found else [NOT_YET, "", ""]),
        str(found[0]["settings"]["epochs"] if found else tuned.config.optim.epochs),
        str(len(found)) if found else "–",
    ]


def literal_cell(results: list[Result], accuracy: str) -> str:
    """Accuracy and ΔR of the last training batch of a row's one run."""
    if not results:
        return NOT_YET
    summary = results[0]["summary"]
    if "failed" in summary:
        return f"broke: {summary['failed']}"
    return f"{summary[accuracy]:.4f}, {trained(results, 0)}"


_ROOT = Path(__file__).parents[2]
PAGES = {_ROOT / "experiments" / "README.md": ledger, _ROOT / "docs" / "results.md": short}


def main() -> None:
    """As the first lines of this file say."""
    for page, content in PAGES.items():
        page.write_text(between_marks(page.read_text(), BEGIN, END, content()))
        print(page)


if __name__ == "__main__":
    main()
