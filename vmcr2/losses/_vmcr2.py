"""The variational loss: Eq. 7, with the dictionary and the codes that it keeps and updates."""

from __future__ import annotations

import math
from typing import Any, cast

import torch
from torch import Tensor

from ..functional import (
    CodesRule,
    VariationalTerms,
    attach_gradient,
    check_positive,
    full_precision,
    tracing,
    weight_from,
)
from ._bounded import VARIATIONAL, bounded, check_max_gradient
from ._dictionary_steps import DictionarySteps
from ._scalars import DeviceScalars
from ._variational_step import Ahead, step_and_gradient
from ._watch import CollapseWatch

DEFAULT_WEIGHT = 20.0
SCALED_DIM = 25


class VMCR2Loss(DictionarySteps):
    """−scale·(R^v − R^v_c − (μ/2m)M + β·R(z)): negative is good, it is minus a rate reduction (Eq. 7 of the paper).

    ``loss(z, labels)`` with z (m, d), and integer labels (m,) or memberships (m, k) whose rows sum to one. In train
    mode it first takes lines 5–10 of Algorithm 1: both gradients at the old dictionary Γ and codes A, both steps, both
    projections. Its value and its gradient in z are then taken at the new Γ and A. In eval mode, under ``no_grad``, or
    with ``update=False``, nothing changes.

    Γ and A must follow the features. The loss does it by itself: it keeps 4·q rows of recent features, latches on the
    first batch, on the recent rows after 1, 2, 4, … 64 calls and then every 128 calls, and on a new class when it
    appears. For the paper's way call :meth:`latch` on the training set before training and again every few epochs:
    from the first such call on the loss does not latch by itself.

    Args:
        num_classes: k.
        dim: d, the features' dimension.
        atoms_per_class: s; the dictionary has q = s·k columns.
        eps_sq: ε², the squared precision (never ε); the paper's 0.5. It, μ, weights and scale: between 1e-12 and 1e12.
        mu: the paper's μ; the penalty (μ/2m)M then weighs more in larger batches; or
        weight: μm/2, the weight of the class-normalised mismatch M/m², for any batch size. 20 if neither is given.
        nu_dictionary: ν_Γ, relative to 1/L_Γ.
        nu_codes: ν_A, relative to 1/L_A.
        batch_expansion: β, the weight of the batch's exact rate R(z) in the loss. 0 is the paper's Eq. 7: its gradient
            in z contains M only. With β above 0 it contains R too, and the features can leave a collapsed start.
        scale: a factor of the value and of the gradient in z, but not of the steps on Γ and A. Rates are sums over d
            directions, hundreds of nats. The default 25/d, at most 1, suits learning rates of 0.1 to 0.3. The paper's
            is 1.
        debias: leave the pairs of a sample with itself out of M, which removes the minibatch's bias in ‖Ĉ_j‖². A class
            of one sample is then only attracted to the dictionary. The paper's M includes these pairs.
        focus: φ, pulls samples that are far from their class's atoms harder than those that are there: a sample's share
            s in them counts as log(1 + φs)/log(1 + φ). It acts in the gradient in z and in the loss's value, not in the
            steps on Γ and A. 0 is the paper's M. See docs/tuning.md.
        codes: "free" (non-negative, as in the paper) or "flat" (always equal on the class's own atoms, as at the
            optimum; only the dictionary learns).
        codes_trace: the sum of a class's flat codes; unit features have 1.
        cap_codes_step: keep ν_A·λ_max(G₂)/‖G₂‖_F below 2, where the step on the codes would diverge.
        self_latch: latch on recent features, as said above. Without it only the first batch does, unless you call
            :meth:`latch`, and no rows are kept.
        max_gradient: a bound on the gradient in z in train mode, as in :class:`MCR2Loss`. None for no bound.
        gather: take the rows of all processes of ``torch.distributed`` as the batch. Under DistributedDataParallel the
            network then gets the gradient of one process on the whole batch; see docs/scaling.md. All processes must
            make the same calls. Not in a compiled or captured step.
        block: for thousands of classes: a class owns s atoms and uses no others. Memory is O(d·s·k), and a step reads
            and writes the classes of its batch only; R^v is still that of all classes. Integer labels only.
            ``dictionary`` is then (k, s, d), ``codes`` (k, s). See docs/objectives.md.
        class_shares: with ``block``, π_j, each class's share of the training set, (k,); even if None.
        balanced_batches: with ``block``, whether batches have all classes equally often (S samples of each of P
            classes), whatever their shares. Without it samples are drawn evenly, and a class by its share.
        refresh_every: with ``block``, after so many steps the sum over all classes is computed again without rounding.
        normalize: scale the rows of z to unit length first, for |z| ≤ 1e15; a zero row stays zero. Without it a row may
            be 1e6 long (float16: 16, float64: 1e60), because M has the fourth power of that.
        max_class_size: the most samples of a class where shapes are fixed, as in :class:`MCR2Loss`.
        max_classes: with ``block``, the most classes of a batch where shapes are fixed; min(m, k) if None.
        validate: check the values and raise ``ValueError``, as in :class:`MCR2Loss`.

    ``mu`` or ``weight``, ``batch_expansion``, ``nu_dictionary`` and ``nu_codes`` can be assigned between steps and act
    from the next one, in a captured CUDA graph too. ``dictionary``, ``codes`` (A/n_j, see docs/notation.md) and
    ``latched`` are buffers and part of the ``state_dict``, with ``self_latch`` also the recent rows (``memory_…``) and
    ``calls``, which is −1 once you latch yourself; ``fault`` is not. If you set dictionary and codes by hand, say
    ``loss.latched.fill_(True)``; ``fill_(False)`` makes the next training call latch on its batch.

    >>> _ = torch.manual_seed(0)
    >>> loss = VMCR2Loss(2, 4, atoms_per_class=2)
    >>> z = torch.randn(8, 4, requires_grad=True)
    >>> loss(z, torch.arange(8) % 2).backward()
    >>> z.grad.shape, bool(loss.latched)
    (torch.Size([8, 4]), True)
    """

    def __new__(cls, *_: Any, block: bool = False, **__: Any) -> VMCR2Loss:
        """Block mode has another state: a class of its own, behind the same constructor."""
        if block and cls is VMCR2Loss:
            from ._block import BlockVMCR2Loss  # it is made of this class

            return super().__new__(BlockVMCR2Loss)
        return super().__new__(cls)

    def __init__(
        self,
        num_classes: int,
        dim: int,
        *,
        atoms_per_class: int,
        eps_sq: float = 0.5,
        mu: float | None = None,
        weight: float | None = None,
        nu_dictionary: float = 5.0,
        nu_codes: float = 5.0,
        batch_expansion: float = 0.1,
        scale: float | None = None,
        debias: bool = True,
        focus: float = 0.0,
        codes: CodesRule = "free",
        codes_trace: float = 1.0,
        cap_codes_step: bool = True,
        self_latch: bool = True,
        max_gradient: float | None = VARIATIONAL,
        gather: bool = False,
        block: bool = False,
        class_shares: Tensor | None = None,
        balanced_batches: bool = False,
        refresh_every: int = 1000,
        normalize: bool = True,
        max_class_size: int | None = None,
        max_classes: int | None = None,
        validate: bool = True,
    ) -> None:
        check_positive(eps_sq, "eps_sq")
        if not (math.isfinite(focus) and 0 <= focus <= 1e12):
            raise ValueError(f"focus must be between 0 and 1e12, got {focus}")
        if not block and (class_shares is not None or balanced_batches or max_classes is not None):
            raise ValueError("class_shares, balanced_batches and max_classes are for block=True")
        if scale is not None:
            check_positive(scale, "scale")
        if mu is None and weight is None:
            weight = DEFAULT_WEIGHT
        weight_from(mu, weight, 1)
        super().__init__(
            num_classes,
            dim,
            atoms_per_class=atoms_per_class,
            codes=codes,
            codes_trace=codes_trace,
            self_latch=self_latch,
            gather=gather,
            normalize=normalize,
            max_class_size=max_class_size,
            validate=validate,
            scalars=DeviceScalars(
                mu=mu, weight=weight, batch_expansion=batch_expansion, nu_dictionary=nu_dictionary, nu_codes=nu_codes
            ),
        )
        self.eps_sq = float(eps_sq)
        self.refresh_every, self.max_classes = refresh_every, max_classes
        self.scale = min(1.0, SCALED_DIM / dim) if scale is None else float(scale)
        self.debias = debias
        self.focus = float(focus)
        self.cap_codes_step = cap_codes_step
        self.max_gradient = check_max_gradient(max_gradient)
        self._watch = CollapseWatch()

    @full_precision
    def forward(self, z: Tensor, labels: Tensor, update: bool = True) -> Tensor:
        """Algorithm 1's step on Γ and A (in train mode), then −scale·(objective + β·R(z)), to be minimised."""
        z, labels = self._gathering.rows(z, labels)
        problem = self._problem(z, labels)
        trains = self.training and torch.is_grad_enabled()
        if update and trains:
            self._step(problem, labels)
        # a recorded step always contains R(z): β may be assigned later
        with_expansion = tracing() or self.batch_expansion != 0
        beta = self.scalars.device("batch_expansion", problem.z.dtype)
        if not trains:
            terms = self._terms(problem, with_expansion)
            return -self.scale * (terms.objective + beta * terms.expansion)
        terms, gradient = self._terms_with_gradient(problem, beta, with_expansion)
        if with_expansion and problem.guard.raises:
            self._watch.look(terms.expansion, problem.classes, dim=self.dim, eps_sq=self.eps_sq)
        gradient = bounded(self.scale * gradient, z, problem.z.detach(), self.normalize, self.max_gradient)
        return attach_gradient(-self.scale * (terms.objective + beta * terms.expansion), problem.z, gradient)

    @full_precision
    def surrogate(
        self, z: Tensor, labels: Tensor, ahead: Ahead | None = None, *, with_expansion: bool | None = None
    ) -> Tensor:
        """The loss for a training step: the same steps on Γ and A and the same gradient in z, but the value is 0.

        The value costs as much as the rest, and only a log needs it: call ``loss(z, labels, update=False)`` for it.
        With ``normalize=False`` rows must not be longer than 1. ``ahead`` is :meth:`look_ahead` of these labels. A CUDA
        graph contains R(z) even at β = 0, because β may change later, unless ``with_expansion`` is False. In eval mode
        and under ``no_grad``, where Γ and A do not move, this is the loss itself.
        """
        if not (self.training and torch.is_grad_enabled()):
            return cast(Tensor, self(z, labels))
        z, labels = self._gathering.rows(z, labels)
        guard = self._guard()
        # quick: a step with NaN is not taken, and sets the flag
        outputs, z = z, self._unit(z, guard, quick=True)
        with torch.no_grad():
            x = z.detach()
            if self._latch_if_due(x, labels):
                ahead = None  # it was made of the dictionary before
            if ahead is None or ahead.classes.sizes.dtype != x.dtype:  # computed in another precision
                ahead = self._ahead(labels, x)
            if with_expansion is None:
                with_expansion = tracing() or self.batch_expansion != 0
            atoms, gradient = step_and_gradient(
                x,
                self._atoms_of(ahead, x),
                ahead,
                eps_sq=self.eps_sq,
                weight=self._weight(x),
                nu_dictionary=self.scalars.device("nu_dictionary", x.dtype),
                project=self._project,
                batch_expansion=self.scalars.device("batch_expansion", x.dtype) if with_expansion else None,
                debias=self.debias,
                focus=self.focus,
                guard=guard,
            )
            self._move(atoms, ahead.classes)
            gradient = gradient if self.scale == 1.0 else self.scale * gradient
            gradient = bounded(gradient, outputs, x, self.normalize, self.max_gradient)
        return attach_gradient(z.new_zeros(()), z, gradient)

    @full_precision
    @torch.no_grad()
    def look_ahead(self, labels: Tensor) -> Ahead:
        """What the next :meth:`surrogate` needs from the labels, Γ and A; it can run while the network computes z."""
        return self._ahead(self._gathering.labels(labels), self.dictionary)

    @full_precision
    def terms(self, z: Tensor, labels: Tensor) -> VariationalTerms:
        """Every part of Eq. 7 at the present Γ and A, and R(z); changes nothing.

        With ``debias`` the mismatch is the debiased one, with ``focus`` the focused one: the loss is always
        −scale·(objective + β·expansion). Near M = 0 the mismatch cancels in float32: for logs use
        ``functional.mismatch(…, method="precise")``.
        """
        return self._terms(self._problem(*self._gathering.rows(z, labels)))

    @full_precision
    def update(self, z: Tensor, labels: Tensor) -> None:
        """Algorithm 1's step on Γ and A, without the loss."""
        with torch.no_grad():
            z, labels = self._gathering.rows(z, labels)
            self._step(self._problem(z, labels), labels)

    def extra_repr(self) -> str:
        """The arguments that matter most."""
        penalty = f"mu={self.mu}" if self.mu is not None else f"weight={self.weight}"
        return (
            f"num_classes={self.num_classes}, dim={self.dim}, atoms_per_class={self.atoms_per_class}, "
            f"eps_sq={self.eps_sq}, {penalty}, batch_expansion={self.batch_expansion}, scale={self.scale}, "
            f"debias={self.debias}, codes={self.codes_rule!r}"
        )
