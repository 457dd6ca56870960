"""The ledger's table in experiments/README.md, from experiments/results/ledger/*.json.

    python experiments/ledger/table.py

It is written between the two marks, and nothing else of the page is touched. A row without results says so.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import mean
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

from _study import table  # noqa: E402
from finals import RESULTS, Task, result_of  # noqa: E402
from rows import Row, rows  # noqa: E402

from vmcr2.data import DATASETS  # noqa: E402
from vmcr2.functional._subspaces import default_components  # noqa: E402
from vmcr2.report._paper import paper_figures  # noqa: E402
from vmcr2.report._tables import spread  # noqa: E402

PAGE = HERE.parent / "README.md"
BEGIN, END = "<!-- ledger: written by ledger/table.py -->", "<!-- end of the ledger -->"
HEADER = [
    *("row (`ledger/finals.py ROW`)", "epochs", "seeds", "components", "nearest subspace", "its head"),
    *("full-train ΔR", "batch ΔR", "the paper: accuracy, batch ΔR", "seconds", "GPU", "commit"),
]


def row_of(row: Row, results: list[dict[str, Any]]) -> list[str]:
    """A claim in cells."""
    figures = paper_figures(row.config.recipe, row.config.objective)
    of_paper = "–"
    if figures is not None:
        rate = f", {figures.delta_r:.0f}" if figures.delta_r is not None else ""
        of_paper = f"{figures.accuracy:.4f}{rate}" + (
            "" if figures.epochs == row.config.epochs else f" ({figures.epochs} epochs)"
        )
    ended = [result["summary"] for result in results if "failed" not in result["summary"]]
    failed = len(results) - len(ended)
    start = [f"`{row.name}`", str(row.config.epochs)]
    components = row.config.components or default_components(row.config.dim, DATASETS[row.config.data].classes)
    if not results:
        return [*start, "–", str(components), "not run yet", "", "", "", of_paper, "", "", ""]
    seeds = ", ".join(str(result["seed"]) for result in results) + (f" ({failed} broke)" if failed else "")
    return [
        *start,
        seeds,
        str(components),
        spread([summary["test_accuracy"] for summary in ended], 4),
        spread([summary["head_accuracy"] for summary in ended if "head_accuracy" in summary], 4),
        spread([summary["train_delta_r"] for summary in ended], 1),
        spread([summary["batch_delta_r"] for summary in ended], 1),
        of_paper,
        f"{mean(summary['seconds'] for summary in ended):.0f}" if ended else "–",
        ", ".join(sorted({result["manifest"]["device"].removeprefix("NVIDIA ") for result in results})),
        ", ".join(sorted({(result["manifest"]["git_commit"] or "–")[:7] for result in results})),
    ]


def ledger(results: Path = RESULTS) -> str:
    """The whole table."""
    found = []
    for row in rows().values():
        kept = [result_of(results, Task(row, seed, Path())) for seed in row.seeds]
        found.append(row_of(row, [result for result in kept if result is not None]))
    return table(HEADER, found)


def between_marks(page: str, content: str) -> str:
    """The page with its table replaced."""
    before, mark, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"{PAGE} must have the marks {BEGIN!r} and {END!r} around its table")
    return f"{before}{BEGIN}\n{content}\n{END}{after}"


def main() -> None:
    """As the first lines of this file say."""
    PAGE.write_text(between_marks(PAGE.read_text(), ledger()))
    print(PAGE)


if __name__ == "__main__":
    main()
