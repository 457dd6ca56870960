"""The mismatch M of Eq. 7 by the appendix's expansion, in the class-normalised form D = M/m².

With Ĉ_j = Z_jᵀZ_j/n_j and Â = A/n_j (the stored codes), M = m² Σ_j γ_j ‖Ĉ_j − ΓDiag(Â_j)Γᵀ‖² and so
D = Σ_j γ_j (‖Ĉ_j‖² − 2 Σ_l Â_lj v_lj + Â_jᵀ G₂ Â_j), v_lj = Σ_{i∈j} (γ_lᵀz_i)²/n_j, G₂ = (ΓᵀΓ)^⊙2.
Nothing here is d×d per class. The three parts cancel where D is small: gradients stay accurate, the value does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from ._classes import Classes, safe_reciprocal
from ._focus import focused_energy, pull_weights
from ._linalg import products_as_asked
from ._own_atoms import ClassAtoms, OwnAtoms, own_energy, residuals_by_own_atoms
from ._pairs import Pairs

Scalar = float | Tensor


class AtomTerms(NamedTuple):
    """The part of D and of its gradients that depends on Γ and Â only; K = ΓᵀΓ, G₂ = K^⊙2."""

    product: Tensor
    """G₂ Â, (q, k)."""
    frobenius: Tensor
    """‖G₂‖_F, a scalar."""
    largest_row: Tensor
    """max_l Σ_l' G₂_ll' ≥ λ_max(G₂), since G₂ is non-negative; a scalar."""
    gradient: Tensor
    """Γ(K ∘ Â Diag(γ) Âᵀ), (d, q): a quarter of ∂(Σ_j γ_j Â_jᵀG₂Â_j)/∂Γ."""


class DataTerms(NamedTuple):
    """The part of the gradients that needs the features."""

    projected: Tensor
    """v_lj = Σ_i Π_ij (γ_lᵀz_i)²/n_j, (q, k)."""
    gradient: Tensor
    """Zᵀ(ZΓ ∘ Â_y)/m, (d, q): half of ∂(Σ_j γ_j Â_jᵀv_j)/∂Γ."""


def _strips(dictionary: Tensor, num_samples: int) -> Iterator[tuple[slice, Tensor]]:
    """Rows of K = ΓᵀΓ: all at once, unless q² is much larger than the features are."""
    d, q = dictionary.shape
    step = max(1, max(4 * num_samples * d, q * d) // q)
    for start in range(0, q, step):
        rows = slice(start, start + step)
        yield rows, dictionary[:, rows].T @ dictionary


def atom_product(dictionary: Tensor, codes: Tensor, num_samples: int) -> Tensor:
    """G₂Â, for the value of D."""
    return torch.cat([K.square_() @ codes for _, K in _strips(dictionary, num_samples)])


def atom_terms(dictionary: Tensor, codes: Tensor, proportions: Tensor, num_samples: int) -> AtomTerms:
    """Everything that a step needs from K, in one pass over its strips."""
    weighted = (codes * proportions).T
    products, gradients, rows_max, squares = [], [], [], []
    with products_as_asked():
        for rows, K in _strips(dictionary, num_samples):
            gradients.append(dictionary @ (codes[rows] @ weighted).mul_(K).T)
            G2 = K.square_()
            products.append(G2 @ codes)
            rows_max.append(G2.sum(1).amax())
            squares.append(torch.linalg.vector_norm(G2))
    return AtomTerms(
        torch.cat(products),
        torch.linalg.vector_norm(torch.stack(squares)),
        torch.stack(rows_max).amax(),
        torch.cat(gradients, dim=1),
    )


def data_terms(z: Tensor, classes: Classes, dictionary: Tensor, codes: Tensor) -> DataTerms:
    """Everything that the gradients in Γ and Â need from ZΓ."""
    with products_as_asked():
        coordinates = z @ dictionary
        projected = classes.sum(coordinates.square()) * safe_reciprocal(classes.sizes).unsqueeze(1)
        return DataTerms(projected.T, z.T @ coordinates.mul_(classes.spread(codes.T.contiguous())) / len(z))


def dictionary_gradient(atoms: AtomTerms, data: DataTerms) -> Tensor:
    """∂D/∂Γ = 4 [Γ(K ∘ Â Diag(γ) Âᵀ) − Zᵀ(ZΓ ∘ Â_y)/m], (d, q)."""
    return 4.0 * (atoms.gradient - data.gradient)


def codes_gradient(atoms: AtomTerms, data: DataTerms) -> Tensor:
    """(∂D/∂Â_j)/γ_j = 2 (G₂Â_j − v_j), (q, k)."""
    return 2.0 * (atoms.product - data.projected)


def expanded(
    z: Tensor, classes: Classes, dictionary: Tensor, codes: Tensor, pairs: Pairs, own: OwnAtoms | None, focus: float
) -> tuple[Tensor, Tensor]:
    """D and ∂D/∂z = (4/m)(Ĉ_j − ΓDiag(Â_j)Γᵀ)z_i, from the classes' own atoms if they are given.

    With a ``focus`` the features meet the dictionary as _focus.py says.
    """
    if own is not None:
        return expanded_by_own_atoms(classes, pairs, own, focus)
    m = len(z)
    rows = classes.spread(codes.T.contiguous())
    with products_as_asked():
        model = (z @ dictionary).mul_(rows) @ dictionary.T
    pulls = (model * z).sum(1)
    if focus:
        largest = rows.amax(1)
        model *= pull_weights(pulls, largest, focus).unsqueeze(1)
        pulls = focused_energy(pulls, largest, focus)
    residuals, cross = pairs.moment_products - model, pulls.sum()
    energy = (codes * atom_product(dictionary, codes, m) * classes.proportions).sum()
    return pairs.penalty - 2.0 / m * cross + energy, residuals.mul_(4.0 / m)


def expanded_by_own_atoms(classes: Classes, pairs: Pairs, own: ClassAtoms, focus: float = 0.0) -> tuple[Tensor, Tensor]:
    """The same, of classes that use atoms of their own only."""
    m = classes.num_samples
    residuals, cross = residuals_by_own_atoms(pairs, own, focus)
    return pairs.penalty - 2.0 / m * cross + own_energy(own, classes.proportions), residuals.mul_(4.0 / m)
