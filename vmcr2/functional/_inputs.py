"""Check what a caller passes, and bring it into the form that the maths needs. Errors name the argument and the fix."""

from __future__ import annotations

import math
import operator
from numbers import Real

import torch
from torch import Tensor

from ._classes import Classes, HardClasses, SoftClasses
from ._closed_form import is_transformed, refuse_vmap
from ._linalg import Guard, normalize_rows, tracing, working_dtype

LEAST, MOST = 1e-12, 1e12
"""Where numbers such as ε² and weights lie. Beyond, a square or a quotient of two of them leaves float32."""
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
MOST_CLASSES = 2**24
"""Of labels without ``num_classes``: a single wrong label must not ask for all memory."""

# The largest entry of z by the precision of the maths: sums of squares stay in range with a factor of 1e8 to spare.
_LARGEST = {torch.float32: 1e15, torch.float64: 1e150}
# The longest row where M is taken of rows that are not normalised: M has their fourth power, its gradient the third.
_LONGEST = {torch.float16: 16.0, torch.bfloat16: 1e6, torch.float32: 1e6, torch.float64: 1e60}


def _is_number(value: object) -> bool:
    """Python's numbers, and NumPy's, which grids of settings contain."""
    return isinstance(value, Real) and not isinstance(value, bool)


def check_positive(value: float, name: str) -> None:
    """A finite scalar above zero, between LEAST and MOST."""
    if not (_is_number(value) and _is_finite(value) and value > 0):
        raise ValueError(f"{name} must be a finite number above 0, got {value!r}")
    if not LEAST <= value <= MOST:
        raise ValueError(f"{name} must lie between {LEAST:g} and {MOST:g}, got {value!r}")


def check_not_negative(value: float, name: str) -> None:
    """A finite scalar of at least zero, and at most MOST."""
    if not (_is_number(value) and _is_finite(value) and value >= 0):
        raise ValueError(f"{name} must be a finite number of at least 0, got {value!r}")
    if value > MOST:
        raise ValueError(f"{name} must be at most {MOST:g}, got {value!r}")


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number above the largest float
        return False


def check_count(value: int, name: str) -> None:
    """A whole number of at least one."""
    try:
        whole = operator.index(value)
    except TypeError:
        whole = 0
    if isinstance(value, bool) or whole < 1:
        raise ValueError(f"{name} must be at least 1 and whole, got {value!r}")


def check_features(z: Tensor, guard: Guard, *, dim: int | None = None, quick: bool = False) -> None:
    """A non-empty (m, d) floating-point matrix of finite values, none above 1e15 (float64: 1e150).

    ``quick`` skips the check of the values where it would only set a flag: later checks set it too.
    """
    if isinstance(z, Tensor) and z.is_nested:  # it has no shape to ask for
        check_dense(z, "z")
    if not isinstance(z, Tensor) or z.ndim != 2:
        got = f"shape {tuple(z.shape)}" if isinstance(z, Tensor) else f"{type(z).__name__}: use torch.as_tensor(z)"
        raise ValueError(f"z must be a matrix of one feature vector per row, (m, d), as a tensor; got {got}")
    check_dense(z, "z")
    if z.shape[0] == 0 or z.shape[1] == 0:
        raise ValueError(f"z is empty, shape {tuple(z.shape)}: skip empty batches")
    if dim is not None and z.shape[1] != dim:
        raise ValueError(f"z has {z.shape[1]} features per row, expected {dim} (dim)")
    if quick and not guard.raises:
        return
    if guard.validate:
        refuse_vmap(z)
    most = _LARGEST[working_dtype(z)]
    largest = largest_entries(z, dim=1)
    bad = ~(largest <= most)
    guard.report(bad, lambda: _out_of_range(largest, bad, most))


def largest_entries(tensor: Tensor, dim: int | None = None) -> Tensor:
    """max |x|, NaN if there is one, in one pass without temporaries.

    In the working precision, because in float16 a limit of 1e15 would be inf, and inf would not be above it.
    """
    largest: Tensor = torch.linalg.vector_norm(tensor.detach(), torch.inf, dim=dim)
    return largest.to(working_dtype(tensor))


def check_range(tensor: Tensor, name: str) -> None:
    """Finite entries in range, for functions without ``validate``: where looking at values waits for nothing."""
    _check_entries(tensor, name, _LARGEST[working_dtype(tensor)])


def check_finite(tensor: Tensor, name: str) -> None:
    """The same for a result, which may be as large as its precision allows."""
    _check_entries(tensor, name, torch.finfo(tensor.dtype).max)


def _check_entries(tensor: Tensor, name: str, most: float) -> None:
    looked_at = tensor.device.type == "cpu" and not tracing() and not is_transformed(tensor)
    if looked_at and not bool(largest_entries(tensor) <= most):
        raise ValueError(f"{name} has NaN, inf or a number above {most:.3g}: check what you gave, or scale it")


def check_dense(tensor: Tensor, name: str) -> None:
    """A tensor with entries to compute with: floating point of 16 to 64 bits, not sparse, not nested."""
    if tensor.is_nested or tensor.layout != torch.strided:
        raise ValueError(f"{name} is a sparse or nested tensor: pass {name}.to_dense(), or a padded one")
    if tensor.dtype not in FLOATS:
        raise ValueError(f"{name} must be floating point of 16 to 64 bits, got {tensor.dtype}: pass {name}.float()")
    if tensor.is_meta:
        raise ValueError(f"{name} is on the device meta, so it has no values: use another device")


def check_lengths(z: Tensor, guard: Guard, kept: torch.dtype = torch.float64) -> None:
    """Rows of checked features that are short enough for M, where values are looked at. ``kept``: the codes' dtype."""
    if guard.raises:
        longest = min(_LONGEST[z.dtype], _LONGEST[kept])
        bad = ~(torch.linalg.vector_norm(z.detach(), dim=1, dtype=working_dtype(z)) <= longest)
        advice = "scale the rows to unit length" + (", or pass z.float()" if z.dtype == torch.float16 else "")
        text = f"z is {z.dtype} with a row longer than {longest:g}, and M grows with the fourth power of that; see row"
        guard.report(bad, lambda: _first_bad(bad, text, advice))


def report_overflow(value: Tensor, guard: Guard) -> None:
    """A result that left the range of floating point, though all that was given is finite."""
    guard.report(
        ~torch.isfinite(value.detach()),
        lambda: f"the result is not finite in {value.dtype}: make z, dictionary, codes or the weights smaller",
    )


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
    if labels.is_nested or labels.layout != torch.strided:
        raise ValueError("labels is a sparse or nested tensor: pass labels.to_dense()")
    if labels.ndim == 2 and labels.is_floating_point():
        return _read_memberships(labels, z, num_classes, guard)
    labels, num_classes = read_labels(labels, z, num_classes, guard)
    return HardClasses(labels, num_classes, working_dtype(z), max_class_size)


def read_labels(labels: Tensor, z: Tensor, num_classes: int | None, guard: Guard) -> tuple[Tensor, int]:
    """Integer labels (m,), checked against z or clamped into range, and the number of classes."""
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
        num_classes = _count_classes(labels)
    bad = (labels < 0) | (labels >= num_classes)
    guard.report(
        bad, lambda: _first_bad(bad, f"labels must lie in 0..{num_classes - 1} (num_classes={num_classes}); see row")
    )
    if not guard.raises:  # an index out of range would end the whole CUDA context
        labels = labels.clamp(0, num_classes - 1)
    return labels, num_classes


def _count_classes(labels: Tensor) -> int:
    refuse_vmap(labels)
    found = max(int(labels.max()) + 1, 1)
    if found > MOST_CLASSES:
        raise ValueError(f"labels has the class {found - 1}: give num_classes, or number the classes 0, 1, 2, …")
    return found


def _read_memberships(membership: Tensor, z: Tensor, num_classes: int | None, guard: Guard) -> SoftClasses:
    check_dense(membership, "labels")
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


def _out_of_range(largest: Tensor, bad: Tensor, most: float) -> str:
    if bool(torch.isfinite(largest).all()):
        return _first_bad(bad, f"z has a number above {most:g} in row", "scale z")
    return _first_bad(bad, "z has NaN or inf in row", "check the network's output")


def _first_bad(bad: Tensor, text: str, advice: str = "") -> str:
    row = int(bad.nonzero()[0, 0])
    total = int(bad.sum())
    more = f" and {total - 1} more" if total > 1 else ""
    return f"{text} {row}{more}" + (f": {advice}" if advice else "")
