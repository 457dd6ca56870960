"""The gradient of the exact loss in the features, without its value: all that a training step needs.

The value costs log-dets, and only a log reads it. On a GPU the two parts of the gradient run at the same time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .._shared import Aside
from ..functional import (
    Classes,
    Guard,
    SoftClasses,
    carried_compression,
    compression,
    compression_gradient,
    expansion_gradient,
)
from ._branch_guard import BranchGuard
from ._carried import CarriedAhead


def exact_gradient(
    z: Tensor, classes: Classes | CarriedAhead, eps_sq: float, guard: Guard, memory: Tensor | None = None
) -> Tensor:
    """∂(R_c − R)/∂z of checked rows no longer than 1; R_c with ``memory`` as in :func:`carried_compression`."""
    with Aside(z) as side:
        branch = BranchGuard(z, guard)
        by_expansion = expansion_gradient(z, eps_sq, branch.guard)
    if isinstance(classes, CarriedAhead):
        by_compression = compression_gradient(z, classes.classes, eps_sq, guard, classes.inverses, classes.scales)
    elif memory is not None:
        by_compression = carried_compression(z, memory, classes, eps_sq, guard)[1]
    elif isinstance(classes, SoftClasses):
        by_compression = _soft_compression_gradient(z, classes, eps_sq, guard)
    else:
        by_compression = compression_gradient(z, classes, eps_sq, guard)
    side.join()
    branch.report()
    return by_compression - by_expansion


def _soft_compression_gradient(z: Tensor, classes: SoftClasses, eps_sq: float, guard: Guard) -> Tensor:
    with torch.enable_grad():
        leaf = z.detach().requires_grad_()
        value = compression(leaf, SoftClasses(classes.membership.detach()), eps_sq, "auto", guard)
    return torch.autograd.grad(value, leaf)[0]
