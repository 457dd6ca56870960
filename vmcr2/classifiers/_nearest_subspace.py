"""Nearest subspace (Eq. 8) as a module: the class whose subspace leaves the smallest residual."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from .._shared import PreciseBuffers
from ..functional import (
    Guard,
    TopClasses,
    add_moments,
    check_count,
    check_features,
    class_subspaces,
    default_components,
    full_precision,
    nearest_subspace,
    nearest_subspaces,
    read_classes,
    subspace_residuals,
    subspaces_from_moments,
    working_dtype,
)

_STATE = ("subspace_bases", "subspace_energies", "scatter", "sizes")


class NearestSubspace(PreciseBuffers):
    """argmin_j ‖(I − V_jV_jᵀ)z‖², V_j the top principal directions of class j, uncentred (Eq. 8 of the paper).

    Args:
        num_classes: k; by default what ``fit`` finds in the labels.
        num_components: dimensions per class, ⌊d/k⌋ by default, at least 1.

    ``fit`` learns from all samples, in blocks of classes: beside its result, k·d·r floats, it takes memory for some 2²⁶
    floats, however many classes there are. ``partial_fit`` adds batches, in any order. It keeps the classes' second
    moments (k·d² floats, also in the state: not for many classes). It needs ``num_classes`` or ``num_components``,
    because ⌊d/k⌋ is not known before all classes have been seen. A class without samples is never predicted.

    >>> classifier = NearestSubspace().fit(torch.eye(4), torch.tensor([0, 0, 1, 1]))
    >>> classifier.predict(torch.tensor([[0.9, 0.1, 0.0, 0.2]]))
    tensor([0])
    """

    subspace_bases: Tensor
    subspace_energies: Tensor
    scatter: Tensor
    sizes: Tensor

    def __init__(self, num_classes: int | None = None, num_components: int | None = None) -> None:
        super().__init__()
        for name, value in (("num_classes", num_classes), ("num_components", num_components)):
            if value is not None:
                check_count(value, name)
        self.num_classes = num_classes
        self.num_components = num_components
        self._forget()

    def fit(self, z: Tensor, labels: Tensor) -> NearestSubspace:
        """Learn the subspaces of these samples, (m, d) with labels (m,) or memberships (m, k); forget earlier ones."""
        spaces = class_subspaces(z, labels, self.num_classes, num_components=self.num_components)
        self._forget()
        self.register_buffer("subspace_bases", spaces.bases)
        self.register_buffer("subspace_energies", spaces.energies)
        return self

    @full_precision
    @torch.inference_mode(False)  # moments created in inference mode could not be changed outside of it
    @torch.no_grad()
    def partial_fit(self, z: Tensor, labels: Tensor) -> NearestSubspace:
        """Add a batch. A new label adds a class, unless ``num_classes`` is set."""
        if self.num_classes is None and self.num_components is None:
            raise ValueError("partial_fit needs num_classes or num_components: NearestSubspace(num_classes=…)")
        if self.fitted and not len(self.sizes):
            raise ValueError(
                "partial_fit cannot continue after fit, which keeps no moments: use partial_fit throughout"
            )
        guard = Guard()
        seen = len(self.sizes)
        check_features(z, guard, dim=self.scatter.shape[1] if seen else None)
        if self.num_components is not None and self.num_components > z.shape[1]:
            raise ValueError(f"num_components is {self.num_components}, but z has only {z.shape[1]} features per row")
        z = z.detach().to(working_dtype(z, self.scatter))
        classes = read_classes(labels, z, self.num_classes, guard)
        k = max(classes.num_classes, seen)
        if k > seen:
            self._add_classes(k, z)
        add_moments(self.scatter[: classes.num_classes], z.to(self.scatter.dtype), classes, guard)
        self.sizes[: classes.num_classes] += classes.sizes
        self._stale = True
        return self

    @property
    def fitted(self) -> bool:
        """Whether it has learned anything."""
        return len(self.subspace_bases) > 0 or len(self.sizes) > 0

    @property
    def bases(self) -> Tensor:
        """The subspaces' orthonormal bases, (k, d, r); zero beyond a class's rank."""
        self._refresh()
        return self.subspace_bases

    @property
    def energies(self) -> Tensor:
        """The eigenvalues of each class's second moment along its basis, (k, r), descending."""
        self._refresh()
        return self.subspace_energies

    def forward(self, z: Tensor) -> Tensor:
        """The same as :meth:`predict`."""
        return self.predict(z)

    def predict(self, z: Tensor) -> Tensor:
        """The nearest class of every point, (N,), in memory that does not grow with N·k."""
        self._check_fitted()
        return nearest_subspace(z, self.bases)

    def predict_top(self, z: Tensor, count: int) -> TopClasses:
        """The ``count`` nearest classes of every point and their residuals, (N, count) both, the nearest first.

        Memory does not grow with N·k, so it is the way for many classes. A class without samples has the residual ∞.
        """
        self._check_fitted()
        return nearest_subspaces(z, self.bases, count)

    def residuals(self, z: Tensor) -> Tensor:
        """‖(I − V_jV_jᵀ)z_i‖² of every point and class, (N, k). For many classes take :meth:`predict_top`."""
        self._check_fitted()
        return subspace_residuals(z, self.bases)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """The state, with subspaces that are up to date."""
        self._refresh()
        return super().state_dict(*args, **kwargs)

    def extra_repr(self) -> str:
        """The arguments, and the subspaces' number and dimension."""
        learned = f"{len(self.bases)} subspaces of R^{self.bases.shape[1]}" if self.fitted else "unfitted"
        return f"num_classes={self.num_classes}, num_components={self.num_components}, {learned}"

    def _check_fitted(self) -> None:
        if not self.fitted:
            raise ValueError("this NearestSubspace has learned nothing yet: call fit(z, labels) first")

    def _refresh(self) -> None:
        if not self._stale:
            return
        k, d = self.scatter.shape[:2]
        count = self.num_components if self.num_components is not None else default_components(d, k)
        self.subspace_bases, self.subspace_energies = subspaces_from_moments(self.scatter, self.sizes, count)
        self._stale = False

    def _add_classes(self, k: int, z: Tensor) -> None:
        old, d = len(self.sizes), z.shape[1]
        scatter, sizes = z.new_zeros(k, d, d), z.new_zeros(k)
        if old:
            scatter[:old], sizes[:old] = self.scatter, self.sizes
        self.scatter, self.sizes = scatter, sizes

    def _forget(self) -> None:
        for name in _STATE:
            self.register_buffer(name, torch.zeros(0))
        self._stale = False

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        # buffers get the sizes of the state: this instance may be unfitted
        for name in _STATE:
            if prefix + name in state_dict:
                like = getattr(self, name)
                self.register_buffer(name, torch.empty_like(state_dict[prefix + name], device=like.device))
        super()._load_from_state_dict(state_dict, prefix, *args)
        self._stale = False
