"""Each class with its own atoms, those whose codes are not zero: all that M and its gradient in z need.

Latching gives a class q/k atoms of its own, and most steps on the codes leave all others at zero (_own_steps.py). A CPU
then multiplies every class with its own few atoms, and not with all q. A GPU is faster with one large product.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from ._classes import Classes, HardClasses
from ._focus import focused_energy, pull_weights
from ._linalg import tracing
from ._pairs import HardPairs, Pairs

# The largest part of the dictionary that may be one class's own.
_LARGEST_SHARE = 0.25


class ClassAtoms(Protocol):
    """Every class with atoms of its own."""

    @property
    def atoms(self) -> Tensor:
        """γ_l as rows, (k, w, d)."""

    @property
    def codes(self) -> Tensor:
        """(k, w)."""


class OwnAtoms(NamedTuple):
    """The atoms of every class, padded to the largest number w of them: the padding is atom 0 with the code 0."""

    which: Tensor
    """(k, w)."""
    filled: Tensor
    """Where there is an atom and no padding, (k, w)."""
    codes: Tensor
    """(k, w)."""
    atoms: Tensor
    """γ_l as rows, (k, w, d)."""

    def scatter(self, values: Tensor, num_atoms: int) -> Tensor:
        """(k, w) -> (q, k), with zeros where a class has no atom."""
        table = values.new_zeros(num_atoms, len(values))
        owners = torch.arange(len(values), device=values.device).unsqueeze(1).expand_as(self.which)
        table[self.which[self.filled], owners[self.filled]] = values[self.filled]
        return table

    def sum_rows(self, rows: Tensor, num_atoms: int) -> Tensor:
        """Σ over classes of the rows of each atom: (k, w, d) -> (q, d); rows of the padding must be 0."""
        return rows.new_zeros(num_atoms, rows.shape[2]).index_add_(0, self.which.flatten(), rows.flatten(0, 1))


def by_columns(dictionary: Tensor) -> Tensor:
    """The same dictionary, on a CPU with the entries of an atom next to each other in memory: classes gather atoms."""
    if dictionary.device.type != "cpu" or tracing():
        return dictionary
    return dictionary.T.contiguous().T


def find_own_atoms(dictionary: Tensor, codes: Tensor, classes: Classes) -> OwnAtoms | None:
    """The classes' own atoms, or None where one large product is better: a GPU, memberships, dense codes."""
    if codes.device.type != "cpu" or tracing() or not isinstance(classes, HardClasses):
        return None
    q, k = codes.shape
    atom, owner = codes.nonzero(as_tuple=True)
    if len(atom) > _LARGEST_SHARE * q * k:
        return None
    counts = torch.bincount(owner, minlength=k)
    width = max(1, int(counts.max()))
    if width > _LARGEST_SHARE * q:
        return None
    order = torch.argsort(owner, stable=True)
    atom, owner = atom[order], owner[order]
    slot = torch.arange(len(atom)) - (counts.cumsum(0) - counts)[owner]
    index = torch.zeros(k, width, dtype=torch.int64)
    index[owner, slot] = atom
    filled = torch.arange(width) < counts.unsqueeze(1)
    own_codes = codes.new_zeros(k, width)
    own_codes[owner, slot] = codes[atom, owner]
    return OwnAtoms(index, filled, own_codes, dictionary.T.contiguous()[index])


class Part(NamedTuple):
    """A group of classes, their samples and their own atoms."""

    classes: Tensor
    members: Tensor
    """(classes, size, d), zero rows as padding."""
    atoms: Tensor
    codes: Tensor
    coordinates: Tensor
    """γ_lᵀz_i, (classes, size, w)."""


def parts_of(pairs: Pairs, own: ClassAtoms) -> Iterator[Part]:
    """Group by group: only one group's products are in memory at a time."""
    known = _hard(pairs)
    for group, members in zip(known.groups, known.members, strict=True):
        atoms = own.atoms[group.classes]
        yield Part(group.classes, members, atoms, own.codes[group.classes], members @ atoms.mT)


def residuals_by_own_atoms(pairs: Pairs, own: ClassAtoms, focus: float = 0.0) -> tuple[Tensor, Tensor]:
    """(Ĉ_j − ΓDiag(Â_j)Γᵀ)z_i of each sample's class, (m, d), and Σ_i of z_iᵀΓDiag(Â_j)Γᵀz_i, a scalar.

    Both times the importance of the sample's class, where classes have one. With a ``focus`` the second part of the
    first, and the second, are those of _focus.py.
    """
    cross = own.codes.new_zeros(())
    importance = _hard(pairs).classes.importance

    def model(part: Part) -> Tensor:
        weighted = part.coordinates * part.codes.unsqueeze(1)
        energy = (weighted * part.coordinates).sum(2)
        if focus:
            largest = part.codes.amax(1, keepdim=True)
            weighted *= pull_weights(energy, largest, focus).unsqueeze(2)
            energy = focused_energy(energy, largest, focus)
        of_classes = energy.sum(1)
        cross.add_((of_classes if importance is None else of_classes * importance[part.classes]).sum())
        return weighted @ part.atoms

    return _hard(pairs).moment_products_minus(model(part) for part in parts_of(pairs, own)), cross


def _hard(pairs: Pairs) -> HardPairs:
    if not isinstance(pairs, HardPairs):
        raise TypeError("own atoms are found for integer labels only")
    return pairs


def own_energy(own: ClassAtoms, proportions: Tensor) -> Tensor:
    """Σ_j γ_j Â_jᵀ G₂ Â_j, a scalar."""
    products = ((own.atoms @ own.atoms.mT).square_() @ own.codes.unsqueeze(2)).squeeze(2)
    return ((own.codes * products).sum(1) * proportions).sum()
