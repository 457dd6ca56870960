"""The table over runs: paper, ours, ± over seeds; as Markdown, LaTeX and HTML."""

from __future__ import annotations

import html
import statistics
from typing import Literal, NamedTuple

from ._groups import Group, run_labels
from ._paper import paper_figures
from ._read import RunRecord
from ._summary import hardware

Form = Literal["md", "latex", "html"]


class Table(NamedTuple):
    """Column heads, rows of cells, notes under the table, and a sentence for each run that has a warning."""

    heads: list[str]
    rows: list[list[str]]
    notes: list[str]
    warnings: list[str] = []  # noqa: RUF012 -- nobody writes to it

    @property
    def below(self) -> list[str]:
        """All that stands under it, warnings first."""
        return self.warnings + self.notes


def results_table(runs: list[RunRecord], groups: list[Group]) -> Table:
    """One row per configuration, mean ± standard deviation over its finished runs."""
    heads = [
        "Recipe",
        "Runs",
        "Images",
        "Accuracy, paper",
        "Nearest subspace",
        "Its head",
        "Predicts by",
        "Batch ΔR, paper",
        "Batch ΔR",
        "Full-train ΔR",
        "ΔR at most",
        "Epochs",
        "s/epoch, paper",
        "s/epoch",
        "Seconds",
        "Hardware",
    ]
    rows = [_row(group, [runs[i] for i in group.runs]) for group in groups]
    kept = [i for i in range(len(heads)) if i < 3 or any(row[i] not in ("–", "") for row in rows)]
    labels = run_labels(runs, groups)
    warnings = [f"Warning, {label}: {run.warning}" for label, run in zip(labels, runs, strict=True) if run.warning]
    return Table([heads[i] for i in kept], [[row[i] for i in kept] for row in rows], _notes(runs), warnings)


def _row(group: Group, runs: list[RunRecord]) -> list[str]:
    first = runs[0]
    done = [run for run in runs if run.summary is not None]
    paper = paper_figures(first.recipe, first.objective)
    accuracy = f"{paper.accuracy:.4f}" if paper and first.unseen == "test" else "–"
    left = len(runs) - len(done)
    return [
        group.label,
        f"{len(done)}" + (f" (+{left} unfinished)" if left else ""),
        "hold-out" if first.unseen == "holdout" else "test",
        accuracy,
        spread([run.figure(f"{first.unseen}_accuracy") for run in done], 4),
        spread([run.figure("head_accuracy") for run in done], 4),
        " or ".join(sorted({run.readout for run in done if run.readout})) or "–",
        f"{paper.delta_r:.2f}" if paper and paper.delta_r is not None else "–",
        spread([run.figure("batch_delta_r") for run in done], 2),
        spread([run.figure("train_delta_r") for run in done], 2),
        f"{first.most_delta:.2f}" if first.most_delta is not None else "–",
        _one_or_range([run.epochs_done for run in done]),
        f"{paper.seconds_per_epoch:.2f}" if paper and paper.seconds_per_epoch else "–",
        spread([run.seconds_per_epoch for run in done], 3),
        spread([run.seconds for run in done], 1),
        ", ".join(sorted({hardware(run) for run in runs})),
    ]


def spread(values: list[float | None], digits: int) -> str:
    """Mean ± sample standard deviation; for one value, the value alone.

    >>> spread([0.98, 0.99], 4)
    '0.9850 ± 0.0071'
    """
    known = [value for value in values if value is not None]
    if not known:
        return "–"
    mean = f"{statistics.fmean(known):.{digits}f}"
    return mean if len(known) == 1 else f"{mean} ± {statistics.stdev(known):.{digits}f}"


def _one_or_range(values: list[int]) -> str:
    if not values:
        return "–"
    return str(values[0]) if min(values) == max(values) else f"{min(values)}–{max(values)}"


def _notes(runs: list[RunRecord]) -> list[str]:
    notes = ["± is the sample standard deviation over runs that differ only in their seed."]
    papers = [found for run in runs if (found := paper_figures(run.recipe, run.objective))]
    if any(found.delta_r is not None for found in papers):
        notes.append(
            "Batch ΔR is the mean over un-augmented batches of the recipe's size, full-train ΔR is over all training "
            "images. The paper does not say which of them its «Training ΔR» is; with many classes it fits batch ΔR, "
            "and stands beside it."
        )
    else:
        notes.append("Batch ΔR is the mean over un-augmented batches, full-train ΔR is over all training samples.")
    if any(run.unseen == "holdout" for run in runs):
        notes.append("Hold-out samples are training samples set aside: their figures are not test figures.")
    if papers and any(run.objective == "ce" for run in runs):
        notes.append("For cross-entropy the paper reports the accuracy of the head.")
    if papers:
        tables = " and ".join(sorted({found.table for found in papers}))
        timed = any(found.seconds_per_epoch for found in papers)
        notes.append(f"Paper: {tables}" + ("; s/epoch: Table 1, NVIDIA A100." if timed else "."))
    return notes


def render(table: Table, form: Form) -> str:
    """The table as Markdown, LaTeX or HTML."""
    return {"md": _markdown, "latex": _latex, "html": _html}[form](table)


def _markdown(table: Table) -> str:
    def line(cells: list[str]) -> str:
        return "| " + " | ".join(map(markdown_text, cells)) + " |"

    below = [markdown_text(note) for note in table.below]
    lines = [line(table.heads), "|" + "---|" * len(table.heads), *map(line, table.rows), "", *below]
    return "\n".join(lines) + "\n"


def markdown_text(text: str) -> str:
    """A text that Markdown shows as it is, on one line: HTML, links, pictures and code in it do nothing.

    >>> markdown_text("<b>a|b</b> [x](y)")
    '&lt;b&gt;a\\\\|b&lt;/b&gt; \\\\[x](y)'
    """
    plain = " ".join(text.split())
    for letter in "\\|`[*":
        plain = plain.replace(letter, f"\\{letter}")
    return plain.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "±": r"$\pm$",
    "Δ": r"$\Delta$",
    "²": r"$^2$",
    "–": "--",
    "«": "``",
    "»": "''",
    "…": r"\ldots{}",
}


def _latex(table: Table) -> str:
    def line(cells: list[str]) -> str:
        return " & ".join(_tex(cell) for cell in cells) + r" \\"

    body = [rf"\begin{{tabular}}{{l{'r' * (len(table.heads) - 1)}}}", r"\hline", line(table.heads), r"\hline"]
    body += [*map(line, table.rows), r"\hline", r"\end{tabular}", *(f"% {_tex(note)}" for note in table.below)]
    return "\n".join(body) + "\n"


def _tex(text: str) -> str:
    return "".join(_LATEX.get(letter, letter) for letter in " ".join(text.split()))


def _html(table: Table) -> str:
    def line(cells: list[str], tag: str) -> str:
        scope = ' scope="col"' if tag == "th" else ""
        return "<tr>" + "".join(f"<{tag}{scope}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"

    lines = ["<table>", f"<thead>{line(table.heads, 'th')}</thead>", "<tbody>"]
    lines += [*(line(row, "td") for row in table.rows), "</tbody>", "</table>"]
    lines += [f"<p>{html.escape(note)}</p>" for note in table.below]
    return "\n".join(lines) + "\n"
