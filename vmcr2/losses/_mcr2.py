"""The exact loss: minus the rate reduction of the batch."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..functional import RateTerms
from ..functional._classes import Classes
from ..functional._inputs import check_count, check_positive, read_classes, unit_features
from ..functional._linalg import Guard, attach_gradient, full_precision
from ..functional._pull import exact_pull
from ..functional._rates import rates_of


class MCR2Loss(nn.Module):
    """−ΔR of the batch: negative is good, and its floor is minus the maximal rate reduction (Eq. 1 of the paper).

    ``loss(z, labels)`` with z (m, d), and integer labels (m,) or memberships (m, k) whose rows sum to one. There is no
    state to train. With few samples per class beside the dimension (n_j ≪ d) R_c says almost nothing about a class, and
    training stalls at an isotropic spread: use :class:`VMCR2Loss` there.

    Args:
        num_classes: k. A class that is not in the batch contributes exactly 0.
        eps_sq: ε², the squared precision (never ε); the paper's 0.5.
        normalize: scale the rows of z to unit length first; finite for |z| ≤ 1e10. A zero row stays zero.
        max_class_size: room per class where shapes are fixed (under ``torch.compile`` or CUDA-graph capture, and
            on a GPU with ``validate=False``); by default eight standard deviations above an even share. A larger class
            sets ``fault``.
        validate: look at the values (finite, labels in range) and raise ``ValueError``; never while compiling or
            capturing. What is not raised is OR-ed into the buffer ``fault``, which stays set until ``fault.zero_()``.

    >>> loss = MCR2Loss(2)
    >>> round(loss(torch.eye(4), torch.tensor([0, 0, 1, 1])).item(), 4)
    -0.5878
    """

    fault: Tensor

    def __init__(
        self,
        num_classes: int,
        *,
        eps_sq: float = 0.5,
        normalize: bool = True,
        max_class_size: int | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__()
        check_positive(eps_sq, "eps_sq")
        check_count(num_classes, "num_classes")
        self.num_classes = num_classes
        self.eps_sq = eps_sq
        self.normalize = normalize
        self.max_class_size = max_class_size
        self.validate = validate
        self.register_buffer("fault", torch.zeros((), dtype=torch.bool), persistent=False)

    def forward(self, z: Tensor, labels: Tensor) -> Tensor:
        """−ΔR, to be minimised."""
        return -self.terms(z, labels).delta

    @full_precision
    def terms(self, z: Tensor, labels: Tensor) -> RateTerms:
        """R, R_c and ΔR, all differentiable."""
        guard = Guard(self.validate, self.fault)
        z = unit_features(z, guard, self.normalize)
        classes = read_classes(labels, z, self.num_classes, guard, self.max_class_size)
        return rates_of(z, classes, self.eps_sq, "auto", guard)

    @full_precision
    def surrogate(self, z: Tensor, labels: Tensor, ahead: Classes | None = None) -> Tensor:
        """The loss for a training step: the same gradient in z, but the value is 0, and no log-det is taken for it.

        With ``normalize=False`` rows must not be longer than 1. ``ahead`` is what :meth:`look_ahead` gave for these
        labels. Memberships are taken as constants.
        """
        guard = Guard(self.validate, self.fault)
        z = unit_features(z, guard, self.normalize, quick=True)  # NaN fails in the factorisations, which is flagged
        with torch.no_grad():
            x = z.detach()
            if ahead is None or ahead.sizes.dtype != x.dtype:
                ahead = read_classes(labels, x, self.num_classes, guard, self.max_class_size)
            gradient = exact_pull(x, ahead, self.eps_sq, guard)
        return attach_gradient(z.new_zeros(()), z, gradient)

    @torch.no_grad()
    def look_ahead(self, labels: Tensor) -> Classes:
        """What :meth:`surrogate` needs of the labels alone; it can be made while the network still computes z."""
        guard = Guard(self.validate, self.fault)
        like = torch.empty(len(labels), 0, device=labels.device)
        classes = read_classes(labels, like, self.num_classes, guard, self.max_class_size)
        classes.look_ahead(guard)
        return classes

    def extra_repr(self) -> str:
        """The arguments."""
        return f"num_classes={self.num_classes}, eps_sq={self.eps_sq}, normalize={self.normalize}"
