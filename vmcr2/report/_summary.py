"""The summary of runs beside the paper's figures, as rows of text."""

from __future__ import annotations

import shlex
from typing import NamedTuple

from .._shared import shown
from ..runs import deciding_settings
from ._paper import PaperFigures, paper_figures
from ._read import RunRecord


class Row(NamedTuple):
    """A line of the summary: what, a cell per run, and the paper's cell where all runs share one recipe."""

    name: str
    cells: list[str]
    paper: str = ""
    note: str = ""


def summary_rows(runs: list[RunRecord]) -> list[Row]:
    """Figures of finished runs; an unfinished one has dashes."""
    papers = {paper_figures(run.recipe, run.objective) for run in runs}
    paper = papers.pop() if len(papers) == 1 else None
    rows = [*_accuracy_rows(runs, paper), *_rate_rows(runs, paper), *_shape_rows(runs), *_time_rows(runs, paper)]
    return [row for row in rows if any(cell != "–" for cell in row.cells)]


def _accuracy_rows(runs: list[RunRecord], paper: PaperFigures | None) -> list[Row]:
    rows = []
    for unseen, kind in (("test", "Test"), ("holdout", "Hold-out")):
        of_kind = [run if run.unseen == unseen else None for run in runs]
        test = paper if unseen == "test" else None
        heads = any(run is not None and run.figure("head_accuracy") is not None for run in of_kind)
        all_ce = all(run is None or run.objective == "ce" for run in of_kind)
        shown = f"{test.accuracy:.4f}" if test else ""
        if heads:
            cells = [_cell(run, "head_accuracy", ".4f") for run in of_kind]
            rows.append(Row(f"{kind} accuracy, its own head", cells, shown if all_ce else ""))
        cells = [_cell(run, f"{unseen}_accuracy", ".4f") for run in of_kind]
        rows.append(Row(f"{kind} accuracy, nearest subspace", cells, "" if all_ce else shown))
        cells = [_cell(run, f"{unseen}_class_mean_accuracy", ".4f") for run in of_kind]
        rows.append(Row(f"{kind} accuracy, nearest class mean", cells))
        cells = [_cell(run, f"{unseen}_neighbours_accuracy", ".4f") for run in of_kind]
        rows.append(Row(f"{kind} accuracy, 5 nearest neighbours", cells))
    rows.append(Row("It predicts by", [run.readout or "–" for run in runs]))
    rows.append(Row("Training accuracy, nearest subspace", [_cell(run, "train_accuracy", ".4f") for run in runs]))
    return rows


def _rate_rows(runs: list[RunRecord], paper: PaperFigures | None) -> list[Row]:
    most = [f"{run.most_delta:.2f}" if run.most_delta is not None and run.summary else "–" for run in runs]
    stated = f"{paper.delta_r:.2f}" if paper and paper.delta_r is not None else ""
    note = "The paper does not say over what its «Training ΔR» is; with many classes it fits batches." if stated else ""
    return [
        Row("ΔR, mean over batches", [_cell(run, "batch_delta_r", ".2f") for run in runs], stated, note),
        Row("ΔR, whole training set", [_cell(run, "train_delta_r", ".2f") for run in runs]),
        Row("ΔR at most (balanced classes)", most),
        Row("R, whole training set", [_cell(run, "expansion", ".2f") for run in runs]),
        Row("R_c, whole training set", [_cell(run, "compression", ".2f") for run in runs]),
    ]


def _shape_rows(runs: list[RunRecord]) -> list[Row]:
    return [
        Row("Mean |cosine| within a class", [_cell(run, "within_cosine", ".3f") for run in runs]),
        Row("Mean |cosine| between classes", [_cell(run, "between_cosine", ".3f") for run in runs]),
        Row("Effective rank of a class", [_cell(run, "effective_rank", ".1f") for run in runs]),
        Row("Overlap of class subspaces", [_cell(run, "subspace_overlap", ".2g") for run in runs]),
    ]


def _time_rows(runs: list[RunRecord], paper: PaperFigures | None) -> list[Row]:
    per_epoch = f"{paper.seconds_per_epoch:.2f} (A100)" if paper and paper.seconds_per_epoch else ""
    return [
        Row(
            "Epochs",
            [
                f"{run.epochs_done} of {run.config.get('epochs')}" if not run.summary else str(run.epochs_done)
                for run in runs
            ],
            str(paper.epochs) if paper else "",
        ),
        Row("Seconds per epoch", [_number(run.seconds_per_epoch, ".3g") for run in runs], per_epoch),
        Row("Seconds of training", [_number(run.seconds, ".1f") for run in runs]),
    ]


def _cell(run: RunRecord | None, name: str, form: str) -> str:
    return _number(run.figure(name) if run else None, form)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)


def paper_note(runs: list[RunRecord]) -> str:
    """Where the paper's column comes from, or that there is none."""
    found = {(run.recipe, paper_figures(run.recipe, run.objective)) for run in runs}
    tables = sorted({figures.table for _, figures in found if figures})
    if not tables:
        return (
            "The paper has no figures for this recipe."
            if len(found) == 1
            else "The paper has no figures for these recipes."
        )
    text = f"Paper: {' and '.join(tables)}"
    if any(figures and figures.seconds_per_epoch for _, figures in found):
        text += "; seconds per epoch: Table 1, NVIDIA A100"
    return text + "."


def departures(run: RunRecord) -> list[str]:
    """The settings in which a run differs from its recipe: "epochs 200 instead of 2000".

    The recipe's values come from the run folder, because today's may differ. Folders of vmcr2 0.1 do not have them.
    """
    recipe = run.manifest.get("recipe")
    if not isinstance(recipe, dict):
        return []
    usual = deciding_settings(recipe)
    return [
        f"{name} {shown(value)} instead of {shown(usual[name]) if name in usual else 'none'}"
        for name, value in run.deciding.items()
        if name not in usual or value != usual[name]
    ]


def command(run: RunRecord) -> str:
    """The command of the run, as a person would type it."""
    words = str(run.manifest.get("command", "")).split(" ")
    if words[0].endswith(("/vmcr2", "__main__.py")):
        words[0] = "vmcr2"
    return " ".join(words).strip()


def resume_command(run: RunRecord) -> str:
    """The command that continues a run."""
    return f"vmcr2 train --resume --out {shlex.quote(str(run.path))}"


def hardware(run: RunRecord) -> str:
    """The device; for a CPU also the number of cores."""
    device = str(run.manifest.get("device", "")) or "not known"
    if device in ("cpu", "x86_64", "aarch64", "arm64", "i386") and run.manifest.get("cores"):
        return f"CPU, {run.manifest['cores']} cores"
    return device


def circumstances(run: RunRecord) -> list[tuple[str, str]]:
    """Hardware, versions and data, name by name; what is not known is left out."""
    told = run.manifest
    data = told.get("data") if isinstance(told.get("data"), dict) else {}
    sizes = [
        f"{run.summary[name]:,} {label}"
        for name, label in (("train_images", "training"), ("test_images", "test"), ("holdout_images", "hold-out"))
        if run.summary and name in run.summary
    ]
    entries = [
        ("Hardware", hardware(run)),
        ("Machine", f"{told.get('machine', '')}, {told.get('threads', '?')} threads" if told.get("machine") else ""),
        ("Time", f"{run.seconds:.1f} s for {run.epochs_done} epochs" if run.seconds is not None else ""),
        (
            "Versions",
            f"vmcr2 {told['vmcr2']}, torch {told.get('torch', '?')}, Python {told.get('python', '?')}"
            if "vmcr2" in told
            else "",
        ),
        ("Commit", str(told.get("git_commit") or "")),
        ("Started", str(told.get("started") or "")),
        ("Seed", str(run.config.get("seed", ""))),
        ("Data", ", ".join([run.own_title or str(run.config.get("data", "")), *sizes])),
        ("About the data", " ".join(map(str, (data or {}).get("notes") or ()))),
        ("Data checksum", str((data or {}).get("train_checksum") or "")),
        (
            "Network",
            f"{run.config.get('model')}, d = {run.config.get('dim')}"
            + (f", {run.summary['parameters']:,} parameters" if run.summary and "parameters" in run.summary else ""),
        ),
        ("Run folder", str(run.path)),
    ]
    return [(name, text) for name, text in entries if text]
