"""What a run says about its classes: spectra, atoms, and angles between subspaces."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ._read import Array, RunRecord

_BIN = 3
"""degrees per bar of the histogram"""


class Spectra(NamedTuple):
    """Eigenvalues of each class's second moment, (k, r), descending."""

    values: Array
    median: Array
    ideal: float | None
    """k/d: every eigenvalue, where a class fills its ⌊d/k⌋ dimensions evenly"""
    components: int
    """⌊d/k⌋"""


def spectra(run: RunRecord) -> Spectra | None:
    """From the run folder; None if it has none."""
    values = run.tensors.get("spectra")
    if values is None or values.ndim != 2 or not values.size:
        return None
    present = values[values[:, 0] > 0]
    dim = int(run.config.get("dim") or 0)
    components = max(1, dim // (run.num_classes or len(values))) if dim else 1
    median = np.median(present if len(present) else values, axis=0)
    return Spectra(values.astype(np.float64), median, 1 / components if dim else None, components)


def spectra_sentence(run: RunRecord, found: Spectra) -> str:
    """The median class in numbers."""
    ranks = run.tensors.get("effective_ranks")
    inside = found.median[: found.components].sum()
    text = _of_some(run) + (
        f"In the median class the first eigenvalue is {found.median[0]:.3g}, and the first {found.components} "
        f"(⌊d/k⌋) hold {inside:.0%} of the energy."
    )
    if ranks is not None and (ranks > 0).any():
        some = ranks[ranks > 0]
        text += f" Effective rank: median {np.median(some):.1f}, from {some.min():.1f} to {some.max():.1f}."
    return text


class Codes(NamedTuple):
    """How the classes use the dictionary."""

    blocks: Array
    """(k, k): the share of class i's codes that lies on the atoms latched for class j; rows sum to 1"""
    shares: Array
    """(k, q): each class's codes as shares of their sum"""
    atoms_per_class: int


def codes(run: RunRecord) -> Codes | None:
    """From A; None for objectives without a dictionary, and for folders that do not have it."""
    raw, k = run.tensors.get("codes"), run.num_classes
    if raw is None or raw.ndim != 2 or not k or raw.shape[1] != k or raw.shape[0] % k:
        return None
    values = raw.astype(np.float64).T
    shares = values / np.maximum(values.sum(1, keepdims=True), 1e-12)
    per = raw.shape[0] // k
    return Codes(shares.reshape(k, k, per).sum(2), shares, per)


def codes_sentence(found: Codes, names: list[str]) -> str:
    """How much of the codes is on a class's own atoms, and the largest share elsewhere."""
    own = np.diag(found.blocks)
    text = (
        f"On average {own.mean():.0%} of a class's codes lie on the {found.atoms_per_class} atoms that were latched "
        f"for it (least: {own.min():.0%}, «{names[int(own.argmin())]}»)."
    )
    other = found.blocks - np.diag(own)
    if other.max() >= 0.0005:
        i, j = divmod(int(other.argmax()), len(names))
        text += f" Largest share on others' atoms: {other[i, j]:.1%}, «{names[i]}» on atoms of «{names[j]}»."
    else:
        text += " None lie on atoms of another class."
    return text


class Angles(NamedTuple):
    """Principal angles between class subspaces in degrees, (k, k)."""

    smallest: Array
    mean: Array
    pairs: Array
    """the smallest angle of every two classes, once each"""
    histogram: list[int]
    """their number in bins of 3°, from 0° to 90°"""


def angles(run: RunRecord) -> Angles | None:
    """From the run folder; None if it has none, or a single class."""
    smallest, mean = run.tensors.get("smallest_angles"), run.tensors.get("mean_angles")
    if smallest is None or mean is None or len(smallest) < 2:
        return None
    close, average = (np.degrees(table.astype(np.float64)).clip(0, 90) for table in (smallest, mean))
    pairs = close[np.triu_indices(len(close), 1)]
    counts, _ = np.histogram(pairs, bins=90 // _BIN, range=(0, 90))
    return Angles(close, average, pairs, counts.tolist())


def angles_sentence(run: RunRecord, found: Angles, names: list[str]) -> str:
    """Median, share near a right angle, and the closest two."""
    apart = found.smallest + 360 * np.tri(len(names))  # each pair once, no class with itself
    i, j = divmod(int(apart.argmin()), len(names))
    return _of_some(run) + (
        f"The median smallest angle is {np.median(found.pairs):.1f}°; {int((found.pairs >= 80).sum()):,} of "
        f"{len(found.pairs):,} pairs are at 80° or more. Closest: «{names[i]}» and «{names[j]}», {apart[i, j]:.1f}°."
    )


def _of_some(run: RunRecord) -> str:
    """A sentence for the beginning, where not all classes are shown."""
    shown, k = len(run.shown_classes), run.num_classes or 0
    return "" if shown >= k else f"Of {shown:,} of the {k:,} classes, evenly spaced by number. "
