"""What the variational loss does with a dictionary that all classes share: classes, steps and terms of a batch.

Every method here that begins with one underscore is a question that :class:`VMCR2Loss` asks. Block mode (_block.py)
answers the same questions for atoms that belong to one class each.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..functional import (
    Atoms,
    BlockPrepared,
    Classes,
    OwnPrepared,
    Prepared,
    Problem,
    Scalar,
    VariationalTerms,
    dictionary_rate,
    keep_finite,
    mismatch,
    problem_of,
    read_classes,
    terms_of,
    terms_with_gradient,
    weight_from,
)
from ._scalars import Scheduled
from ._self_latching import SelfLatchingAtoms
from ._variational_step import Ahead, prepare, take_step


class DictionarySteps(SelfLatchingAtoms):
    """Algorithm 1's steps on Γ and Â, and the terms of Eq. 7."""

    mu = Scheduled()
    weight = Scheduled()
    batch_expansion = Scheduled()
    nu_dictionary = Scheduled()
    nu_codes = Scheduled()
    eps_sq: float
    debias: bool
    focus: float
    cap_codes_step: bool

    refresh_every: int
    max_classes: int | None

    def refresh(self) -> None:
        """Compute again what rounding may have changed over many steps: only block mode keeps such a thing."""

    @property
    def mean_trace(self) -> Tensor:
        """Σ_l Â_lj, the mean over all classes."""
        return self.codes.sum(0).mean()

    def precise_mismatch(self, z: Tensor, labels: Tensor) -> Tensor:
        """M of unit rows, with the pairs of a sample with itself, in float64: for logs."""
        fixed = {"max_class_size": self.max_class_size, "validate": False}
        return mismatch(z, labels, self.dictionary, self.codes, method="precise", **fixed)  # type: ignore[arg-type]

    def _classes(self, labels: Tensor, rows: Tensor) -> Classes:
        return read_classes(labels, rows, self.num_classes, self._guard(), self.max_class_size)

    def _look_at(self, classes: Classes) -> None:
        """Compute now what depends on the labels only."""
        classes.look_ahead(self._guard())

    def _prepared(self, classes: Classes) -> Prepared | OwnPrepared | BlockPrepared:
        like = classes.sizes
        return prepare(
            self._atoms(like, classes),
            classes,
            c=self.dim / self.eps_sq,
            weight=self._weight(like, classes.num_samples),
            nu_codes=self.scalars.device("nu_codes", like.dtype),
            cap_codes_step=self.cap_codes_step,
            guard=self._guard(),
        )

    def _terms(self, problem: Problem, with_expansion: bool = True) -> VariationalTerms:
        return terms_of(problem, *self._atoms(problem.z, problem.classes), with_expansion=with_expansion)

    def _terms_with_gradient(
        self, problem: Problem, beta: Tensor, with_expansion: bool
    ) -> tuple[VariationalTerms, Tensor]:
        atoms = self._atoms(problem.z, problem.classes)
        return terms_with_gradient(problem, *atoms, beta, with_expansion=with_expansion)

    def _ahead(self, labels: Tensor, like: Tensor) -> Ahead:
        classes = self._classes(labels, like.new_empty(len(labels), 0))
        self._look_at(classes)
        return Ahead(classes, self._prepared(classes))

    def _atoms_of(self, ahead: Ahead, like: Tensor) -> Atoms:
        """Γ and Â of a look-ahead's classes."""
        return self._atoms(like, ahead.classes)

    def _step(self, problem: Problem, labels: Tensor) -> None:
        with torch.no_grad():
            self._latch_if_due(problem.z.detach(), labels)
            prepared = self._prepared(problem.classes)
            rate = dictionary_rate(problem, prepared.largest, self.scalars.device("nu_dictionary", problem.z.dtype))
            atoms = self._atoms(problem.z, problem.classes)
            new = take_step(problem, atoms, prepared, lambda: rate, self._project)
            self._move(keep_finite(atoms, new, problem.guard), problem.classes)

    def _problem(self, z: Tensor, labels: Tensor) -> Problem:
        guard = self._guard()
        z = self._unit(z, guard)
        classes = self._classes(labels, z)
        return problem_of(
            z,
            classes,
            eps_sq=self.eps_sq,
            weight=self._weight(z),
            debias=self.debias,
            guard=guard,
            focus=self.focus,
        )

    def _weight(self, like: Tensor, num_samples: int | None = None) -> Scalar:
        m = len(like) if num_samples is None else num_samples
        if self.mu is not None:
            return weight_from(self.scalars.device("mu", like.dtype), None, m)
        return weight_from(None, self.scalars.device("weight", like.dtype), m)
