"""Check what a caller passes, and bring it into the form that the maths needs. Errors name the argument and the fix."""

from __future__ import annotations

import math
import operator
from numbers import Real

import torch
from torch import Tensor

from ._classes import Classes, HardClasses, SoftClasses
from ._linalg import Guard, normalize_rows, tracing, working_dtype


def _is_number(value: object) -> bool:
    """Python's numbers, and NumPy's, which grids of settings contain."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_positive(value: float, name: str) -> None:
    """A finite scalar above zero."""
    if not (_is_number(value) and math.isfinite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")


def check_not_negative(value: float, name: str) -> None:
    """A finite scalar of at least zero."""
    if not (_is_number(value) and math.isfinite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")


def check_count(value: int, name: str) -> None:
    """A whole number of at least one."""
    try:
        whole = operator.index(value)
    except TypeError:
        whole = 0
    if isinstance(value, bool) or whole < 1:
        raise ValueError(f"{name} must be at least 1 and whole, got {value!r}")


def check_features(z: Tensor, guard: Guard, *, dim: int | None = None, quick: bool = False) -> None:
    """A non-empty (m, d) floating-point matrix of finite values.

    ``quick`` skips the check of the values where it would only set a flag: later checks set it too.
    """
    if not isinstance(z, Tensor) or z.ndim != 2:
        got = f"shape {tuple(z.shape)}" if isinstance(z, Tensor) else f"{type(z).__name__}: use torch.as_tensor(z)"
        raise ValueError(f"z must be a matrix of one feature vector per row, (m, d), as a tensor; got {got}")
    if not z.is_floating_point():
        raise ValueError(f"z must be floating point, got {z.dtype}: pass z.float()")
    if z.shape[0] == 0 or z.shape[1] == 0:
        raise ValueError(f"z is empty, shape {tuple(z.shape)}: skip empty batches")
    if dim is not None and z.shape[1] != dim:
        raise ValueError(f"z has {z.shape[1]} features per row, expected {dim} (dim)")
    if quick and not guard.raises:
        return
    # the sum of a row is finite exactly if its entries are (|z| ≤ 1e10 is assumed): one pass without temporaries
    bad = ~torch.isfinite(z.detach().sum(1, dtype=working_dtype(z)))
    guard.report(bad, lambda: _first_bad(bad, "z has NaN or inf in row", "check the network's output"))


def unit_features(z: Tensor, guard: Guard, normalize: bool, dim: int | None = None, *, quick: bool = False) -> Tensor:
    """Checked features in working precision; with ``normalize``, of unit length."""
    check_features(z, guard, dim=dim, quick=quick)
    z = z.to(working_dtype(z))
    return normalize_rows(z) if normalize else z


def read_classes(
    labels: Tensor, z: Tensor, num_classes: int | None, guard: Guard, max_class_size: int | None = None
) -> Classes:
    """Integer labels (m,) or memberships (m, k), checked against z."""
    if not isinstance(labels, Tensor):
        raise ValueError(f"labels must be a tensor, got {type(labels).__name__}: use torch.as_tensor(labels)")
    if num_classes is not None:
        check_count(num_classes, "num_classes")
    if max_class_size is not None:
        check_count(max_class_size, "max_class_size")
    if labels.ndim == 2 and labels.is_floating_point():
        return _read_memberships(labels, z, num_classes, guard)
    if labels.ndim != 1 or labels.is_floating_point() or labels.is_complex() or labels.dtype == torch.bool:
        raise ValueError(
            f"labels must be integers of shape (m,) or floating-point memberships of shape (m, k); got "
            f"{labels.dtype} of shape {tuple(labels.shape)}: labels.long() or one_hot(labels).float()"
        )
    if len(labels) != len(z):
        raise ValueError(f"labels has {len(labels)} entries, z has {len(z)} rows: one label per row")
    labels = labels.to(torch.int64)
    if num_classes is None:
        if tracing():
            raise ValueError("num_classes must be given under torch.compile or CUDA-graph capture")
        num_classes = max(int(labels.max()) + 1, 1)
    bad = (labels < 0) | (labels >= num_classes)
    guard.report(
        bad, lambda: _first_bad(bad, f"labels must lie in 0..{num_classes - 1} (num_classes={num_classes}); see row")
    )
    if not guard.raises:  # an index out of range would end the whole CUDA context
        labels = labels.clamp(0, num_classes - 1)
    return HardClasses(labels, num_classes, working_dtype(z), max_class_size)


def _read_memberships(membership: Tensor, z: Tensor, num_classes: int | None, guard: Guard) -> SoftClasses:
    if len(membership) != len(z):
        raise ValueError(f"labels has {len(membership)} membership rows, z has {len(z)} rows: one per row")
    if membership.shape[1] == 0 or (num_classes is not None and membership.shape[1] != num_classes):
        raise ValueError(f"labels has {membership.shape[1]} membership columns, expected num_classes={num_classes}")
    tolerance = 1e-3 if membership.dtype in (torch.float32, torch.float64) else 3e-2
    bad = ~((membership.sum(1) - 1).abs() <= tolerance) | (membership < -tolerance).any(1)
    guard.report(
        bad, lambda: _first_bad(bad, "labels: memberships must be ≥ 0 and sum to 1 in every row (softmax); see row")
    )
    coarse = membership.dtype in (torch.float16, torch.bfloat16)
    membership = membership.to(working_dtype(z)).clamp_min(0.0)
    return SoftClasses(membership / membership.sum(1, keepdim=True) if coarse else membership)


def _first_bad(bad: Tensor, text: str, advice: str = "") -> str:
    row = int(bad.nonzero()[0, 0])
    total = int(bad.sum())
    more = f" and {total - 1} more" if total > 1 else ""
    return f"{text} {row}{more}" + (f": {advice}" if advice else "")
