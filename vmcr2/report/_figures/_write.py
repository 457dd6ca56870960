"""Draws all pictures and writes their files."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..._shared import UserError
from .. import _classes, _mistakes
from .._convergence import convergence_panels
from .._feature_map import feature_map
from .._files import MARK, check_ours, write_bytes
from .._groups import group_runs, run_labels, run_styles
from .._inner import inner_products
from .._pictures import nearest_pictures, worst_pictures
from .._read import RunRecord

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def write_figures(runs: list[RunRecord], folder: Path) -> list[Path]:
    """Every picture that the runs have data for, as NAME.svg and NAME.png. Replaces only files that this tool made."""
    from ._style import styled

    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file: --figures takes a folder")
    written: list[Path] = []
    with styled():
        for name, figure in _pictures(runs):
            for kind in ("svg", "png"):
                target = folder / f"{name}.{kind}"
                check_ours(target)
                write_bytes(target, _rendered(figure, kind))
                written.append(target)
    return written


def _rendered(figure: Figure, kind: str) -> bytes:
    metadata = {"Creator": MARK, "Date": None} if kind == "svg" else {"Software": MARK}
    content = io.BytesIO()
    figure.savefig(content, format=kind, metadata=metadata)
    return content.getvalue()


def _pictures(runs: list[RunRecord]) -> Iterator[tuple[str, Figure]]:
    from . import _curves, _maps

    groups = group_runs(runs)
    labels, styles = run_labels(runs, groups), run_styles(runs, groups)
    for panel in convergence_panels(runs, groups, labels, styles):
        if panel.curves and not panel.single:
            yield f"convergence-{panel.key}-epochs", _curves.curves(panel, seconds=False)
            yield f"convergence-{panel.key}-seconds", _curves.curves(panel, seconds=True)
    inner = [
        (label, found, run.names())
        for label, run in zip(labels, runs, strict=True)
        if (found := inner_products(run, per_class=100)) is not None
    ]
    if inner:
        yield "inner-products", _maps.inner_maps(inner)
    for label, run in zip(labels, runs, strict=True):
        tail = f"-{_slug(label)}" if len(runs) > 1 else ""
        for name, figure in _of_classes(run):
            yield name + tail, figure


def _of_classes(run: RunRecord) -> Iterator[tuple[str, Figure]]:
    from . import _classes as drawn, _curves, _maps

    names = run.shown_names()
    if (features := feature_map(run)) is not None:
        yield "feature-map", drawn.feature_map(features, run)
    if (spectra := _classes.spectra(run)) is not None:
        yield "spectra", _curves.spectra(spectra)
    if (codes := _classes.codes(run)) is not None:
        yield "atoms", _maps.atoms(codes, run.names())
    if (angles := _classes.angles(run)) is not None:
        yield "angles", _maps.angles(angles, names)
        yield "angle-histogram", _curves.angle_histogram(angles)
    if (found := _mistakes.answers(run)) is not None and found.sizes.any():
        yield "recall", drawn.recall(found, run)
        if found.table is not None:
            yield "confusion", _maps.confusion(found.table, run.names())
    if (nearest := nearest_pictures(run)) is not None:
        yield "nearest-pictures", _maps.nearest(nearest, names)
    if (worst := worst_pictures(run)) is not None and len(worst[0]):
        yield "worst-mistakes", _maps.mistakes(worst, run.name)


def _slug(label: str) -> str:
    return re.sub(r"[^A-Za-z0-9.]+", "-", label).strip("-")
