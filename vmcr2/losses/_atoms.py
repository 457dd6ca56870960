"""The state of the variational loss: dictionary and codes, and how they are latched, moved and loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._shared import precise_dtype
from ..distributed import Gathering
from ..functional import (
    Atoms,
    Batches,
    Classes,
    CodesRule,
    Guard,
    by_columns,
    check_codes_rule,
    check_count,
    check_lengths,
    check_positive,
    codes_projection,
    latch,
    latch_batches,
    project_unit_columns,
    pseudo_random,
    refuse_transforms,
    tracing,
    unit_features,
)
from ._memory import RememberedFeatures
from ._scalars import DeviceScalars

_UNCOUNTED = -2


class AtomState(RememberedFeatures):
    """Γ and Â as buffers, and Algorithm 2 on them."""

    dictionary: Tensor
    codes: Tensor
    latched: Tensor
    fault: Tensor

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        atoms_per_class: int,
        codes: CodesRule,
        codes_trace: float,
        gather: bool,
        normalize: bool,
        max_class_size: int | None,
        validate: bool,
        scalars: DeviceScalars,
    ) -> None:
        super().__init__()
        for name, value in (("num_classes", num_classes), ("dim", dim), ("atoms_per_class", atoms_per_class)):
            check_count(value, name)
        check_codes_rule(codes)
        check_positive(codes_trace, "codes_trace")
        self.num_classes = num_classes
        self.dim = dim
        self.atoms_per_class = atoms_per_class
        self.codes_rule = codes
        self.codes_trace = float(codes_trace)
        self._gathering = Gathering(gather)
        self.normalize = normalize
        self.max_class_size = max_class_size
        self.validate = validate
        self.scalars = scalars
        self._make_atoms()
        self.register_buffer("latched", torch.zeros((), dtype=torch.bool))
        self.register_buffer("fault", torch.zeros((), dtype=torch.bool), persistent=False)
        self.scalars.to(self.dictionary.device)
        # The buffer `latched` as a Python value, because reading the buffer waits for the device, and the buffer's
        # version when it was read: it changes if somebody writes to it.
        self._is_latched, self._read_version = False, -1

    def _make_atoms(self) -> None:
        atoms = self.num_classes * self.atoms_per_class
        blank = torch.zeros(atoms, self.num_classes, dtype=precise_dtype())
        self.register_buffer("dictionary", project_unit_columns(pseudo_random((self.dim, atoms), blank)))
        self.register_buffer("codes", blank)

    @torch.no_grad()
    def latch(self, z: Tensor | Batches, labels: Tensor | None = None) -> None:
        """Set Γ and A from each class's leading eigenpairs (Algorithm 2): ``latch(z, labels)`` or ``latch(batches)``.

        ``batches`` gives (z, labels). It can be iterated again and gives the same features every time
        (:func:`vmcr2.functional.latch_batches`). With ``gather``, z are this process's features, and those of all are
        used; ``batches`` are not gathered, so every process must give the same. A class without samples gets arbitrary
        unit atoms and zero codes. From the first call on, the loss does not latch by itself any more: call it again
        every few epochs.
        """
        if isinstance(z, Tensor):
            if labels is None:
                raise ValueError("labels is missing: latch(z, labels), or latch(batches) with batches of (z, labels)")
            z, labels = self._gathering.rows(z, labels)
            z = self._unit(z, self._guard())
            self._latch(z.detach(), labels)
            self._end_self_latching()
        elif labels is not None:
            raise ValueError(
                "z must be a tensor if labels are given: latch(z, labels), or latch(batches) without labels"
            )
        else:
            self._latch_batches(z)
            self._end_self_latching()

    def _unit(self, z: Tensor, guard: Guard, *, quick: bool = False) -> Tensor:
        """Checked features, of unit length with ``normalize``, or else short enough for M."""
        found = unit_features(z, guard, self.normalize, self.dim, quick=quick)
        if not self.normalize:
            check_lengths(z, guard, self.codes.dtype)
        return found

    def _end_self_latching(self) -> None:
        """From here on it is the caller who latches."""

    def _latch(self, z: Tensor, labels: Tensor) -> None:
        dictionary, codes = latch(
            z,
            labels,
            self.num_classes,
            atoms_per_class=self.atoms_per_class,
            max_class_size=self.max_class_size,
            validate=self.validate,
            fault=self.fault,
        )
        self._adopt(dictionary, codes)

    def _latch_batches(self, batches: Batches) -> None:
        dictionary, codes = latch_batches(
            batches,
            self.num_classes,
            atoms_per_class=self.atoms_per_class,
            normalize=self.normalize,
            max_class_size=self.max_class_size,
            validate=self.validate,
            fault=self.fault,
        )
        if len(dictionary) != self.dim:
            raise ValueError(f"batches have {len(dictionary)} features per row, expected {self.dim} (dim)")
        self._adopt(dictionary, codes)

    def _latch_on(self, z: Tensor, labels: Tensor) -> None:
        """Latch on the batch of the first step, where nothing was latched before."""
        self._refuse_capture()
        kept = (self.dictionary.clone(), self.codes.clone(), self.latched.clone()) if tracing() else None
        self._latch(z, labels)
        if kept is not None:  # the buffer may say that it is latched: a recorded step cannot ask before
            self.dictionary.copy_(torch.where(kept[2], kept[0], self.dictionary))
            self.codes.copy_(torch.where(kept[2], kept[1], self.codes))

    def _refuse_capture(self) -> None:
        """The first latching waits for the device."""
        if tracing() and not torch.compiler.is_compiling():
            raise RuntimeError(
                "latch the loss before capturing it in a CUDA graph: take one step before, or loss.latch(z, labels)"
            )

    def _known_latched(self) -> bool:
        """The buffer ``latched``, read only if it was written to. A recorded step takes it as it was last read."""
        if not tracing() and ((version := _version(self.latched)) == _UNCOUNTED or version != self._read_version):
            self._is_latched, self._read_version = bool(self.latched), version
        return self._is_latched

    def _adopt(self, dictionary: Tensor, codes: Tensor) -> None:
        refuse_transforms(codes)
        self.dictionary.copy_(dictionary)
        self.codes.copy_(self._project_latched(codes))
        self._mark_latched()

    def _mark_latched(self) -> None:
        self.latched.fill_(True)
        self._is_latched = True
        if not tracing():
            self._read_version = _version(self.latched)

    def _project_latched(self, codes: Tensor) -> Tensor:
        """By the loss's rule; a class without samples keeps its zeros."""
        return torch.where(codes.sum(0) > 0, self._project(codes), codes)

    def _project(self, codes: Tensor) -> Tensor:
        """Project codes by the loss's rule."""
        return codes_projection(self.codes_rule, self.codes_trace)(codes)

    def _atoms(self, like: Tensor, classes: Classes) -> Atoms:
        """Γ and Â in the precision of ``like``, of all that these classes need."""
        return Atoms(by_columns(self.dictionary.to(like.dtype)), self.codes.to(like.dtype))

    def _move(self, atoms: Atoms, classes: Classes) -> None:
        """Take what a step of these classes made of them."""
        refuse_transforms(atoms.codes)
        self.dictionary.copy_(atoms.dictionary)
        self.codes.copy_(atoms.codes)

    def _guard(self) -> Guard:
        return Guard(self.validate, self.fault)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> AtomState:
        super()._apply(fn, recurse)
        self.scalars.to(self.dictionary.device)
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.scalars.to(self.dictionary.device)
        self._read_version = -1


def _version(tensor: Tensor) -> int:
    """How often a tensor was written to, where torch counts that."""
    return _UNCOUNTED if tensor.is_inference() else tensor._version
