"""One self-contained HTML page from run records."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .._version import __version__
from . import _classes, _mistakes, _payload
from ._class_table import class_rows
from ._convergence import convergence_panels
from ._feature_map import feature_map, map_sentence
from ._files import MARK, write_bytes
from ._groups import group_runs, run_labels, run_styles
from ._inner import inner_products, inner_sentence
from ._pictures import Strip, nearest_pictures, strips, worst_pictures
from ._read import RunRecord
from ._summary import circumstances, command, departures, paper_note, resume_command, summary_rows
from ._tables import render, results_table
from ._verdict import Verdict, comparison, verdict

_ASSETS = Path(__file__).parent / "page"
_PICTURE_BYTES = 1_300_000
_MISTAKE_BYTES = 150_000
_FEW_RUNS = 4
"""up to this number of runs, a page has all their samples and pictures"""
_SIDE_BY_SIDE = 8


def write_report(runs: list[RunRecord], target: Path) -> Path:
    """The page of one run, or of several compared, as one file. It replaces no file that this tool did not make."""
    write_bytes(target, page(runs).encode(errors="backslashreplace"))
    return target


def page(runs: list[RunRecord]) -> str:
    """The page as text."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_ASSETS), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["maths"] = _maths
    environment.filters["code"] = _code
    context = _context(runs)
    # read here and not through the loader: style and scripts are no templates
    assets = {
        name: (_ASSETS / name).read_text(encoding="utf-8") for name in ("style.css", "charts.js", "maps.js", "page.js")
    }
    return environment.get_template("template.html").render(
        context
        | {
            "style": assets["style.css"],
            "script": "\n".join(assets[name] for name in ("charts.js", "maps.js", "page.js")),
            "data": _payload.embedded(context["payload"]),
        }
    )


def _context(runs: list[RunRecord]) -> dict[str, Any]:
    groups = group_runs(runs)
    labels, styles = run_labels(runs, groups), run_styles(runs, groups)
    payload: dict[str, Any] = {}
    panels = convergence_panels(runs, groups, labels, styles)
    for panel in panels:
        if panel.curves and not panel.single:
            payload[f"curve-{panel.key}"] = _payload.lines(panel)
    # if there are many runs, the first of every configuration
    side = list(range(len(runs))) if len(runs) <= _SIDE_BY_SIDE else [group.runs[0] for group in groups]
    table = results_table(runs, groups)
    return {
        "generator": f"{MARK} {__version__}",
        "title": labels[0] if len(runs) == 1 else f"{len(runs)} runs compared",
        "lead": _lead(runs, len(groups)),
        "verdict": verdict(runs[0]) if len(runs) == 1 else Verdict("", comparison(runs, labels), []),
        "made": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "version": __version__,
        "rows": (rows := summary_rows(runs)),
        "with_paper": any(row.paper for row in rows),
        "paper_note": paper_note(runs),
        "labels": labels,
        "table": table,
        "markdown": render(table, "md"),
        "latex": render(table, "latex"),
        "panels": panels,
        "maps": [_inner(runs[i], labels[i], i, payload, len(side)) for i in side],
        "maps_of": len(side) < len(runs),
        "runs": [_run(run, labels[i], i, payload, len(runs)) for i, run in enumerate(runs)],
        "payload": payload,
    }


def _lead(runs: list[RunRecord], groups: int) -> str:
    if len(runs) > 1:
        return f"{groups} configurations, {len(runs)} runs: {', '.join(sorted({run.objective_name for run in runs}))}."
    (run,) = runs
    text = f"{run.objective_name} on {run.own_title or run.config.get('data')}"
    accuracy, delta = run.figure(f"{run.unseen}_accuracy"), run.figure("train_delta_r")
    if accuracy is not None:
        kind = run.unseen_words
        head = run.figure("head_accuracy")
        if run.readout == "its head" and head is not None:
            text += f": {kind} accuracy {head:.4f} by its head, {accuracy:.4f} by nearest subspace"
        else:
            text += f": {kind} accuracy {accuracy:.4f} by nearest subspace"
    if delta is not None and run.most_delta is not None:
        text += f", ΔR {delta:.1f} of at most {run.most_delta:.1f} over the whole training set"
    if run.summary is None:
        text += ", not finished"
    return text + "."


def _inner(run: RunRecord, label: str, index: int, payload: dict[str, Any], maps: int) -> dict[str, Any]:
    found = inner_products(run, per_class=30 if maps <= _FEW_RUNS else 16)
    if found is None:
        return {"label": label, "absent": f"No features: {run.why_not_evaluated}."}
    key = f"inner-{index}"
    payload[key] = _payload.inner_map(found, run.names())
    return {"label": label, "key": key, "says": inner_sentence(run, found), "classes": len(found.classes)}


def _run(run: RunRecord, label: str, index: int, payload: dict[str, Any], runs: int) -> dict[str, Any]:
    """What the page shows of one run: how it was made, and its classes."""
    names = run.shown_names()
    shown: dict[str, Any] = {
        "label": label,
        "index": index,
        "finished": run.summary is not None,
        "problems": run.problems,
        "warning": run.warning,
        "epochs": (run.epochs_done, run.config.get("epochs")),
        "resume": resume_command(run),
        "command": command(run),
        "departures": departures(run),
        "circumstances": circumstances(run),
        "config": [(name, json.dumps(value, ensure_ascii=False)) for name, value in run.config.items()],
        "has_dictionary": "atoms_per_class" in run.deciding,
        "in_blocks": bool(run.config.get("block")),
        "unseen": run.unseen_words,
        "num_classes": run.num_classes or 0,
        "shown_classes": len(names),
    }
    _map_of(run, index, shown, payload, runs)
    _spectra_of(run, names, index, shown, payload)
    _codes_of(run, run.names(), index, shown, payload)
    _angles_of(run, names, index, shown, payload)
    _answers_of(run, names, index, shown, payload)
    _table_of(run, shown, _pictures_of(run, shown, runs))
    return shown


def _map_of(run: RunRecord, index: int, shown: dict[str, Any], payload: dict[str, Any], runs: int) -> None:
    if (found := feature_map(run, per_class=60 if runs <= _FEW_RUNS else 20)) is not None:
        shown["map"] = map_sentence(run, found)
        shown["map_classes"] = len(found.classes)
        payload[f"map-{index}"] = _payload.map_points(found, run)


def _spectra_of(run: RunRecord, names: list[str], index: int, shown: dict[str, Any], payload: dict[str, Any]) -> None:
    if (spectra := _classes.spectra(run)) is not None:
        shown["spectra"] = _classes.spectra_sentence(run, spectra)
        payload[f"spectra-{index}"] = _payload.spectra_lines(spectra, names)


def _codes_of(run: RunRecord, names: list[str], index: int, shown: dict[str, Any], payload: dict[str, Any]) -> None:
    if (codes := _classes.codes(run)) is not None:
        shown["codes"] = _classes.codes_sentence(codes, names)
        payload[f"blocks-{index}"] = _payload.block_map(codes, names)
        payload[f"atoms-{index}"] = _payload.atom_stems(codes, names)


def _angles_of(run: RunRecord, names: list[str], index: int, shown: dict[str, Any], payload: dict[str, Any]) -> None:
    if (angles := _classes.angles(run)) is not None:
        shown["angles"] = _classes.angles_sentence(run, angles, names)
        payload[f"angles-{index}"] = _payload.angle_map(angles, names)
        payload[f"histogram-{index}"] = _payload.angle_bars(angles)


def _answers_of(run: RunRecord, names: list[str], index: int, shown: dict[str, Any], payload: dict[str, Any]) -> None:
    found = _mistakes.answers(run)
    if found is None:
        return
    shown["answers"] = _mistakes.answers_sentence(run, found)
    shown["mistakes"] = _mistakes.most_confused(run, found)
    if found.table is not None:
        names = names if len(names) == len(found.table) else run.names()  # from 501 to 700 classes
        shown["confusion"] = True
        payload[f"confusion-{index}"] = _payload.confusion_map(found.table, names)


def _table_of(run: RunRecord, shown: dict[str, Any], pictures: dict[int, Strip]) -> None:
    """The table of classes with the pictures of those that have some; other pictures have a gallery."""
    rows = class_rows(run)
    if run.summary is None or not rows:
        return
    shown["table"] = [(row, pictures.pop(row.number, None)) for row in rows]
    shown["nearest"] = [(run.name(j), strip) for j, strip in pictures.items()]


def _pictures_of(run: RunRecord, shown: dict[str, Any], runs: int) -> dict[int, Strip]:
    """The worst mistakes; and for each class that has pictures, these."""
    nearest, worst = nearest_pictures(run), worst_pictures(run)
    if runs > _FEW_RUNS:
        shown["crowded"] = nearest is not None
        return {}
    if worst is not None:
        pictures, true, taken_for = worst
        found = strips(pictures, _MISTAKE_BYTES // runs)
        shown["worst"] = [(strip, run.name(int(true[n])), run.name(int(taken_for[n]))) for n, strip in enumerate(found)]
    found = [] if nearest is None else strips(nearest, _PICTURE_BYTES // runs)
    shown["has_pictures"] = bool(found)
    return dict(zip(run.shown_classes, found, strict=False))


def _maths(text: str) -> Any:
    """R_c, R^v and R^v_c with their indices set; everything else escaped."""
    import markupsafe

    escaped = str(markupsafe.escape(text))
    escaped = re.sub(r"\bR\^v_c\b", "R<sup>v</sup><sub>c</sub>", escaped)
    escaped = re.sub(r"\bR\^v\b", "R<sup>v</sup>", escaped)
    return markupsafe.Markup(re.sub(r"\bR_c\b", "R<sub>c</sub>", escaped))


def _code(text: str) -> Any:
    """The same, and what stands between backticks as code."""
    import markupsafe

    return markupsafe.Markup(re.sub(r"`([^`]*)`", r"<code>\1</code>", str(_maths(text))))
