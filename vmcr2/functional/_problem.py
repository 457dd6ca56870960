"""Eq. 7 on one batch: everything that does not change while the dictionary and the codes move."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from . import _mismatch
from ._classes import Classes, SoftClasses
from ._inputs import check_dense, check_features, check_lengths, check_positive, read_classes
from ._linalg import Guard, attach_gradient, wants_gradient, working_dtype
from ._mismatch import Scalar
from ._own_atoms import OwnAtoms, find_own_atoms
from ._pairs import Pairs, same_class_pairs


@dataclass(frozen=True)
class Problem:
    """A batch of features with their classes, and the constants of the objective."""

    z: Tensor
    classes: Classes
    pairs: Pairs
    eps_sq: float
    weight: Scalar
    """w = μm/2, the weight of D = M/m²."""
    guard: Guard
    focus: float = 0.0
    """φ, see _focus.py: in M as the features meet it, not in the steps on Γ and Â."""

    @property
    def c(self) -> float:
        """d/ε²."""
        return self.z.shape[1] / self.eps_sq

    def mismatch(self, dictionary: Tensor, codes: Tensor) -> Tensor:
        """D = M/m², differentiable in the features, Γ and Â."""
        wants_dictionary, wants_codes = wants_gradient(dictionary), wants_gradient(codes)
        with torch.no_grad():
            value, by_features = self.mismatch_with_gradient(dictionary, codes, self.own_atoms(dictionary, codes))
            if wants_dictionary or wants_codes:
                atoms = _mismatch.atom_terms(dictionary, codes, self.classes.proportions, len(self.z))
                data = _mismatch.data_terms(self.z, self.classes, dictionary, codes)
        if wants_gradient(self.z):
            value = attach_gradient(value, self.z, by_features)
        if wants_dictionary:
            value = attach_gradient(value, dictionary, _mismatch.dictionary_gradient(atoms, data))
        if wants_codes:
            by_codes = _mismatch.codes_gradient(atoms, data) * self.classes.proportions
            value = attach_gradient(value, codes, by_codes)
        return value

    def mismatch_with_gradient(self, dictionary: Tensor, codes: Tensor, own: OwnAtoms | None) -> tuple[Tensor, Tensor]:
        """D and ∂D/∂z, (m, d); call it where no gradient is recorded."""
        return _mismatch.expanded(self.z, self.classes, dictionary, codes, self.pairs, own, self.focus)

    def own_atoms(self, dictionary: Tensor, codes: Tensor) -> OwnAtoms | None:
        """The classes' own atoms, where they save work."""
        return find_own_atoms(dictionary, codes, self.classes)


def build_problem(
    z: Tensor,
    labels: Tensor,
    num_classes: int,
    *,
    eps_sq: float,
    weight: Scalar,
    debias: bool = False,
    max_class_size: int | None = None,
    guard: Guard,
) -> Problem:
    """A problem from checked features and unchecked labels."""
    check_positive(eps_sq, "eps_sq")
    classes = read_classes(labels, z, num_classes, guard, max_class_size)
    return problem_of(z, classes, eps_sq=eps_sq, weight=weight, debias=debias, guard=guard)


def problem_of(
    z: Tensor,
    classes: Classes,
    *,
    eps_sq: float,
    weight: Scalar,
    debias: bool,
    guard: Guard,
    focus: float = 0.0,
) -> Problem:
    """A problem from checked features and checked classes."""
    if isinstance(classes, SoftClasses) and wants_gradient(classes.membership):
        raise ValueError("labels: the variational form has no gradient in memberships; pass labels.detach()")
    with torch.no_grad():
        pairs = same_class_pairs(z, classes, debias, guard)
    return Problem(z, classes, pairs, eps_sq, weight, guard, focus)


def read_problem(
    z: Tensor,
    labels: Tensor,
    dictionary: Tensor,
    codes: Tensor,
    *,
    eps_sq: float,
    mu: Scalar | None,
    weight: Scalar | None,
    debias: bool = False,
    max_class_size: int | None = None,
    guard: Guard,
) -> tuple[Problem, Tensor, Tensor]:
    """A problem, Γ and Â in one precision, from what a caller passes."""
    z, dictionary, codes = check_atoms(z, dictionary, codes, guard)
    problem = build_problem(
        z,
        labels,
        codes.shape[1],
        eps_sq=eps_sq,
        weight=weight_from(mu, weight, len(z)),
        debias=debias,
        max_class_size=max_class_size,
        guard=guard,
    )
    return problem, dictionary, codes


def check_atoms(z: Tensor, dictionary: Tensor, codes: Tensor, guard: Guard) -> tuple[Tensor, Tensor, Tensor]:
    """Features (m, d), Γ (d, q) and Â (q, k) that fit each other, in one precision."""
    check_features(z, guard)
    check_lengths(z, guard)
    check_dictionary(dictionary, codes, guard)
    if len(dictionary) != z.shape[1]:
        raise ValueError(f"dictionary has {len(dictionary)} rows, z has {z.shape[1]} features: both are d")
    dtype = working_dtype(z, dictionary, codes)
    return z.to(dtype), dictionary.to(dtype), codes.to(dtype)


def check_dictionary(dictionary: Tensor, codes: Tensor, guard: Guard) -> None:
    """Γ (d, q) and Â (q, k) that fit each other, with finite values and non-negative codes."""
    for name, value in (("dictionary", dictionary), ("codes", codes)):
        if not isinstance(value, Tensor) or not value.is_floating_point():
            raise ValueError(f"{name} must be a floating-point tensor, got {type(value).__name__}")
        check_dense(value, name)
    if dictionary.ndim != 2 or codes.ndim != 2 or dictionary.shape[1] != codes.shape[0]:
        raise ValueError(
            f"dictionary must be (d, q) and codes (q, k); got {tuple(dictionary.shape)} and {tuple(codes.shape)}"
        )
    # sums in the working precision: finite entries of float16 can add up to inf
    dtype = working_dtype(dictionary, codes)
    guard.report(~torch.isfinite(dictionary.detach().sum(dtype=dtype)), lambda: "dictionary has NaN or inf")
    bad = ~torch.isfinite(codes.detach().sum(dtype=dtype)) | (codes.detach() < 0).any()
    guard.report(bad, lambda: "codes must be finite and not negative: codes.clamp_min(0)")


def weight_from(mu: Scalar | None, weight: Scalar | None, num_samples: int) -> Scalar:
    """The weight of D = M/m²: ``weight`` itself, or μm/2 from the paper's μ."""
    if mu is not None and weight is not None:
        raise ValueError("mu and weight set the same thing (weight = μm/2): give one of them")
    if mu is None and weight is None:
        raise ValueError("give mu (the paper's μ) or weight (μm/2, which does not depend on the batch size)")
    for name, value in (("mu", mu), ("weight", weight)):
        if value is not None and not isinstance(value, Tensor):
            check_positive(value, name)
    return weight if weight is not None else mu * (num_samples / 2)  # type: ignore[operator]
