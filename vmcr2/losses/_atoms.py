"""The state of the variational loss: dictionary, codes and multipliers, how they are latched, moved and loaded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .._shared import PreciseBuffers, precise_dtype
from ..functional import Batches, CodesRule, latch, latch_batches, project_unit_columns
from ..functional._eigen import pseudo_random
from ..functional._inputs import check_count, check_not_negative, check_positive, unit_features
from ..functional._linalg import Guard, tracing
from ..functional._steps import Atoms, check_codes_rule, codes_projection
from ._scalars import DeviceScalars


class AtomState(PreciseBuffers):
    """Γ and Â, the multipliers of an augmented Lagrangian where there are any, and Algorithm 2 on them."""

    dictionary: Tensor
    codes: Tensor
    multipliers: Tensor | None
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
        keep_trace: bool,
        multiplier_rate: float,
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
        check_not_negative(multiplier_rate, "multiplier_rate")
        self.num_classes = num_classes
        self.dim = dim
        self.atoms_per_class = atoms_per_class
        self.codes_rule = codes
        self.codes_trace = float(codes_trace)
        self.keep_trace = keep_trace
        self.multiplier_rate = float(multiplier_rate)
        self.normalize = normalize
        self.max_class_size = max_class_size
        self.validate = validate
        self.scalars = scalars
        atoms = num_classes * atoms_per_class
        blank = torch.zeros(atoms, num_classes, dtype=precise_dtype())
        self.register_buffer("dictionary", project_unit_columns(pseudo_random((dim, atoms), blank)))
        self.register_buffer("codes", blank)
        self.register_buffer("multipliers", torch.zeros_like(blank) if multiplier_rate else None)
        self.register_buffer("latched", torch.zeros((), dtype=torch.bool))
        self.register_buffer("fault", torch.zeros((), dtype=torch.bool), persistent=False)
        self.scalars.to(self.dictionary.device)
        self._is_latched = False  # the buffer `latched` without asking the device at every step

    @torch.no_grad()
    def latch(self, z: Tensor | Batches, labels: Tensor | None = None) -> None:
        """Γ and A from the leading eigenpairs of every class (Algorithm 2): ``latch(z, labels)`` or ``latch(batches)``.

        ``batches`` is re-iterable, of (z, labels), with the same features at every pass
        (:func:`vmcr2.functional.latch_batches`). Classes without samples get unit atoms without structure, zero codes.
        """
        if isinstance(z, Tensor):
            if labels is None:
                raise ValueError("labels is missing: latch(z, labels), or latch(batches) with batches of (z, labels)")
            z = unit_features(z, self._guard(), self.normalize, self.dim)
            self._latch(z.detach(), labels)
        elif labels is not None:
            raise ValueError("z must be a tensor where labels are given: latch(z, labels), or latch(batches) alone")
        else:
            dictionary, codes = latch_batches(
                z,
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

    def _latch_on(self, z: Tensor, labels: Tensor) -> None:
        """The first step's own latching, where nobody has latched before."""
        if tracing() and not torch.compiler.is_compiling():
            raise RuntimeError("latch the loss before capturing it in a CUDA graph: loss.latch(z, labels)")
        self._latch(z, labels)

    def _adopt(self, dictionary: Tensor, codes: Tensor) -> None:
        trace = codes.sum(0)
        new = self._project(codes)
        if self.keep_trace and self.codes_rule == "free" and self._is_latched:
            before = self.codes.sum(0).to(codes.dtype)
            new = torch.where(before > 0, new * (before / torch.where(trace > 0, trace, 1.0)), new)
        old = self._atoms(dictionary)
        if self.multipliers is not None and old.multipliers is not None:  # ΓDiag(U_j)Γᵀ as the new atoms see it
            self.multipliers.copy_((dictionary.T @ old.dictionary).square() @ old.multipliers)
        self.dictionary.copy_(dictionary)
        self.codes.copy_(torch.where(trace > 0, new, codes))
        self.latched.fill_(True)
        self._is_latched = True

    def _project(self, codes: Tensor) -> Tensor:
        """Onto the set that the codes are kept in."""
        return codes_projection(self.codes_rule, self.codes_trace)(codes)

    def _atoms(self, like: Tensor) -> Atoms:
        return Atoms(
            self.dictionary.to(like.dtype),
            self.codes.to(like.dtype),
            None if self.multipliers is None else self.multipliers.to(like.dtype),
        )

    def _move(self, atoms: Atoms) -> None:
        self.dictionary.copy_(atoms.dictionary)
        self.codes.copy_(atoms.codes)
        if self.multipliers is not None and atoms.multipliers is not None:
            self.multipliers.copy_(atoms.multipliers)

    def _guard(self) -> Guard:
        return Guard(self.validate, self.fault)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> AtomState:
        super()._apply(fn, recurse)
        self.scalars.to(self.dictionary.device)
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.scalars.to(self.dictionary.device)
        self._is_latched = bool(self.latched)
