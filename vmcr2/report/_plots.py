"""A run's pictures as figures of matplotlib, for notebooks and papers. `vmcr2 report --figures` draws the same ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from .._shared import UserError, did_you_mean
from ._classes import spectra
from ._convergence import convergence_panels
from ._feature_map import feature_map
from ._groups import group_runs, run_labels, run_styles
from ._inner import inner_products
from ._mistakes import answers
from ._read import RunRecord, read_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_ON_A_MAP = 16


def plots_of(folder: Path | str) -> Plots:
    """The pictures of a run folder, finished or not."""
    return Plots(read_run(folder))


class Plots:
    """Each method draws one figure of :mod:`matplotlib` from what the run folder has, and returns it.

    A notebook shows the figure; ``figure.savefig("name.pdf")`` writes it; ``figure.axes`` are there to change. What the
    folder does not have is a :class:`UserError`. docs/report.md says how to read them.
    """

    def __init__(self, record: RunRecord) -> None:
        self._record = record

    def __repr__(self) -> str:
        return f"Plots of {self._record.path}: convergence(), heat_map(), spectra(), feature_map(), recall()"

    def convergence(self, *, seconds: bool = False) -> Figure:
        """ΔR, R and R_c, V-MCR²'s terms, accuracy and learning rate over epochs, or over seconds of training."""
        runs = [self._record]
        groups = group_runs(runs)
        panels = convergence_panels(runs, groups, run_labels(runs, groups), run_styles(runs, groups))
        drawn = [panel for panel in panels if panel.curves]
        if not drawn:
            raise UserError(f"{self._record.path} has no figures of any epoch: the run stopped before its first one")
        from ._figures import _curves, _style

        with _style.styled():
            return _curves.convergence(drawn, seconds=seconds)

    def heat_map(self) -> Figure:
        """|cosine| between training features of ten classes, sorted by class: the paper's Figure 2."""
        found = inner_products(self._record, per_class=100)
        if found is None:
            raise self._missing("features")
        from ._figures import _maps, _style

        with _style.styled():
            return _maps.inner_maps([(self._record.recipe, found, self._record.names())])

    def spectra(self) -> Figure:
        """Eigenvalues of each class's second moment, and of the median class."""
        found = spectra(self._record)
        if found is None:
            raise self._missing("spectra")
        from ._figures import _curves, _style

        with _style.styled():
            return _curves.spectra(found)

    def feature_map(self, classes: Sequence[str | int] | None = None) -> Figure:
        """Samples on a plane, each between the classes in whose subspaces it lies.

        Args:
            classes: names or numbers of 1 to 16 classes; by default ten, evenly spaced by number.

        Every class has a place on a circle. A sample stands at the mean of the places, weighted by the shares of its
        squared length in the classes' subspaces. At a class's place it lies in that subspace alone; in the middle it
        lies outside all of them, or between opposite classes. Directions within a subspace are not shown.
        """
        chosen = None if classes is None else [self._number(name) for name in classes]
        if chosen is not None and not 1 <= len(set(chosen)) == len(chosen) <= _MOST_ON_A_MAP:
            raise UserError(f"a map shows 1 to {_MOST_ON_A_MAP} different classes, got {list(classes or ())}")
        found = feature_map(self._record, per_class=100, classes=chosen)
        if found is None:
            raise self._missing("features of these classes" if chosen else "features")
        from ._figures import _classes, _style

        with _style.styled():
            return _classes.feature_map(found, self._record)

    def recall(self) -> Figure:
        """For each class the share of its unseen samples that were right, by nearest subspace; worst first."""
        found = answers(self._record)
        if found is None or not found.sizes.any():
            raise self._missing("answers")
        from ._figures import _classes, _style

        with _style.styled():
            return _classes.recall(found, self._record)

    def _number(self, name: str | int) -> int:
        k = self._record.num_classes or 0
        if isinstance(name, str):
            names = self._record.names()
            if name in names:
                return names.index(name)
            raise UserError(f"the run has no class {name!r}{did_you_mean(name, names)}")
        if not 0 <= name < k:
            raise UserError(f"the run has no class {name}: its classes are 0 to {k - 1}")
        return int(name)

    def _missing(self, what: str) -> UserError:
        return UserError(f"{self._record.path} has no {what}: {self._record.why_not_evaluated}")
