"""The variational loss: Eq. 7 with its dictionary and codes, which it keeps and moves itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor

from .._buffers import PreciseBuffers, precise_dtype
from ..functional import Batches, CodesRule, VariationalTerms, _steps, latch, latch_batches, project_unit_columns
from ..functional._classes import Classes
from ..functional._eigen import pseudo_random
from ..functional._inputs import check_count, check_positive, read_classes, unit_features
from ..functional._linalg import Guard, attach_gradient, full_precision, tracing
from ..functional._problem import Problem, Scalar, build_problem, weight_from
from ..functional._pull import Ahead, variational_pull
from ..functional._variational import terms_of
from ._scalars import DeviceScalars, Scheduled

DEFAULT_WEIGHT = 20.0


class VMCR2Loss(PreciseBuffers):
    """−(R^v − R^v_c − (μ/2m)M) − β·R(z): negative is good, it is minus a rate reduction (Eq. 7 of the paper).

    ``loss(z, labels)`` with z (m, d), and integer labels (m,) or memberships (m, k) whose rows sum to one. In train
    mode it first makes lines 5–10 of Algorithm 1: both gradients at the old dictionary Γ and codes A, both steps, both
    projections. Its value and its gradient in z are then taken at the new ones. In eval mode, under ``no_grad``, or
    with ``update=False``, nothing is changed. Call :meth:`latch` on the training set before training and every so
    often; the first training call latches on its own batch if that was never done.

    Args:
        num_classes: k.
        dim: d, the features' dimension.
        atoms_per_class: s; the dictionary has q = s·k columns.
        eps_sq: ε², the squared precision (never ε); the paper's 0.5.
        mu: the paper's μ, so that the penalty (μ/2m)M weighs more in larger batches; or
        weight: μm/2, the weight of the class-normalised mismatch M/m², whatever the batch size. 20 if neither is given.
        nu_dictionary: ν_Γ, relative to 1/L_Γ.
        nu_codes: ν_A, relative to 1/L_A.
        batch_expansion: β, the weight of the batch's exact rate R(z) in what the network maximises. 0 is the paper's
            Eq. 7, in which the network feels M alone; above 0 it feels the expansion and leaves a collapsed start.
        debias: leave the pairs of a sample with itself out of M, which removes the minibatch's bias in ‖Ĉ_j‖². A class
            of one sample then keeps only its pull towards the dictionary.
        codes: "free" (non-negative, the paper's), "simplex" or "rescaled" (trace 1 per class).
        cap_codes_step: keep ν_A·λ_max(G₂)/‖G₂‖_F below 2, where the step on the codes would diverge.
        normalize: scale the rows of z to unit length first; finite for |z| ≤ 1e10. A zero row stays zero.
        max_class_size: room per class where shapes are fixed, as in :class:`MCR2Loss`.
        validate: look at the values and raise ``ValueError``, as in :class:`MCR2Loss`.

    ``mu`` or ``weight``, ``batch_expansion``, ``nu_dictionary`` and ``nu_codes`` can be assigned between steps and act
    from the next one, in a captured CUDA graph too. ``dictionary``, ``codes`` (A/n_j, see docs/notation.md) and
    ``latched`` are buffers and travel in the ``state_dict``; ``fault`` is one that does not.

    >>> _ = torch.manual_seed(0)
    >>> loss = VMCR2Loss(2, 4, atoms_per_class=2)
    >>> z = torch.randn(8, 4, requires_grad=True)
    >>> loss(z, torch.arange(8) % 2).backward()
    >>> z.grad.shape, bool(loss.latched)
    (torch.Size([8, 4]), True)
    """

    dictionary: Tensor
    codes: Tensor
    latched: Tensor
    fault: Tensor

    mu = Scheduled()
    weight = Scheduled()
    batch_expansion = Scheduled()
    nu_dictionary = Scheduled()
    nu_codes = Scheduled()

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
        debias: bool = False,
        codes: CodesRule = "free",
        cap_codes_step: bool = True,
        normalize: bool = True,
        max_class_size: int | None = None,
        validate: bool = True,
    ) -> None:
        super().__init__()
        for name, value in (("num_classes", num_classes), ("dim", dim), ("atoms_per_class", atoms_per_class)):
            check_count(value, name)
        check_positive(eps_sq, "eps_sq")
        _steps.check_codes_rule(codes)
        if mu is None and weight is None:
            weight = DEFAULT_WEIGHT
        weight_from(mu, weight, 1)
        self.num_classes = num_classes
        self.dim = dim
        self.atoms_per_class = atoms_per_class
        self.eps_sq = eps_sq
        self.debias = debias
        self.codes_rule = codes
        self.cap_codes_step = cap_codes_step
        self.normalize = normalize
        self.max_class_size = max_class_size
        self.validate = validate
        self.scalars = DeviceScalars(
            mu=mu, weight=weight, batch_expansion=batch_expansion, nu_dictionary=nu_dictionary, nu_codes=nu_codes
        )
        atoms = num_classes * atoms_per_class
        blank = torch.zeros(atoms, num_classes, dtype=precise_dtype())
        self.register_buffer("dictionary", project_unit_columns(pseudo_random((dim, atoms), blank)))
        self.register_buffer("codes", blank)
        self.register_buffer("latched", torch.zeros((), dtype=torch.bool))
        self.register_buffer("fault", torch.zeros((), dtype=torch.bool), persistent=False)
        self.scalars.to(self.dictionary.device)
        self._is_latched = False  # the buffer `latched` without asking the device at every step

    @full_precision
    def forward(self, z: Tensor, labels: Tensor, update: bool = True) -> Tensor:
        """Algorithm 1's step on Γ and A (in train mode), then −objective − β·R(z), to be minimised."""
        problem = self._problem(z, labels)
        if update and self.training and torch.is_grad_enabled():
            self._step(problem, labels)
        # R(z) may be skipped only where nothing is recorded: a captured graph must obey a later assignment
        with_expansion = tracing() or self.batch_expansion != 0
        terms = terms_of(problem, *self._atoms(problem.z), with_expansion=with_expansion)
        return -terms.objective - self.scalars.device("batch_expansion", problem.z.dtype) * terms.expansion

    @full_precision
    def surrogate(
        self, z: Tensor, labels: Tensor, ahead: Ahead | None = None, *, with_expansion: bool | None = None
    ) -> Tensor:
        """The loss for a training step: the same steps on Γ and A and the same gradient in z, but the value is 0.

        The value costs as much as the rest and only a log needs it: ``loss(z, labels, update=False)`` afterwards.
        With ``normalize=False`` rows must not be longer than 1. ``ahead`` is :meth:`look_ahead` of these labels. In a
        CUDA graph R(z) is recorded even at β = 0, which may change later, unless ``with_expansion`` is False. Where
        the loss would not move Γ and A, in eval mode or under ``no_grad``, this is the loss itself.
        """
        if not (self.training and torch.is_grad_enabled()):
            return cast(Tensor, self(z, labels))
        guard = self._guard()
        z = unit_features(z, guard, self.normalize, self.dim, quick=True)  # NaN makes a step unsound, which is flagged
        with torch.no_grad():
            x = z.detach()
            if not self._is_latched:
                self._latch_on(x, labels)
            ahead = self.look_ahead(labels) if ahead is None else ahead
            if with_expansion is None:
                with_expansion = tracing() or self.batch_expansion != 0
            gradient, dictionary, codes = variational_pull(
                x,
                *self._atoms(x),
                ahead,
                eps_sq=self.eps_sq,
                weight=self._weight(x),
                nu_dictionary=self.scalars.device("nu_dictionary", x.dtype),
                codes_rule=self.codes_rule,
                batch_expansion=self.scalars.device("batch_expansion", x.dtype) if with_expansion else None,
                debias=self.debias,
                guard=guard,
            )
            self.dictionary.copy_(dictionary)
            self.codes.copy_(codes)
        return attach_gradient(z.new_zeros(()), z, gradient)

    @full_precision
    @torch.no_grad()
    def look_ahead(self, labels: Tensor) -> Ahead:
        """What the next :meth:`surrogate` needs of the labels, Γ and A alone, for while the network computes z."""
        classes = self._classes(labels)
        classes.look_ahead(self._guard())
        return Ahead(classes, self._prepared(classes))

    @full_precision
    def terms(self, z: Tensor, labels: Tensor) -> VariationalTerms:
        """Every part of Eq. 7 at the present Γ and A, and R(z) apart from them; changes nothing.

        With ``debias`` the mismatch is the debiased one, so that the loss is always −objective − β·expansion. Near
        M = 0 the mismatch cancels in float32: ``functional.mismatch(…, method="precise")`` is the one for logs.
        """
        problem = self._problem(z, labels)
        return terms_of(problem, *self._atoms(problem.z))

    @full_precision
    def update(self, z: Tensor, labels: Tensor) -> None:
        """Algorithm 1's step on Γ and A alone."""
        with torch.no_grad():
            self._step(self._problem(z, labels), labels)

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

    def _adopt(self, dictionary: Tensor, codes: Tensor) -> None:
        present = codes.sum(0) > 0
        self.dictionary.copy_(dictionary)
        self.codes.copy_(torch.where(present, _steps.apply_codes_rule(codes, self.codes_rule), codes))
        self.latched.fill_(True)
        self._is_latched = True

    def _step(self, problem: Problem, labels: Tensor) -> None:
        with torch.no_grad():
            if not self._is_latched:
                self._latch_on(problem.z.detach(), labels)
            prepared = self._prepared(problem.classes)
            rate = _steps.dictionary_rate(problem, prepared, self.scalars.device("nu_dictionary", problem.z.dtype))
            new = _steps.take_step(problem, *self._atoms(problem.z), prepared, lambda: rate, self.codes_rule)
            self.dictionary.copy_(new[0])
            self.codes.copy_(new[1])

    def _latch_on(self, z: Tensor, labels: Tensor) -> None:
        if tracing() and not torch.compiler.is_compiling():
            raise RuntimeError("latch the loss before capturing it in a CUDA graph: loss.latch(z, labels)")
        self._latch(z, labels)

    def _prepared(self, classes: Classes) -> _steps.Prepared:
        like = classes.sizes
        return _steps.prepare_step(
            *self._atoms(like),
            classes,
            c=self.dim / self.eps_sq,
            weight=self._weight(like, classes.num_samples),
            nu_codes=self.scalars.device("nu_codes", like.dtype),
            cap_codes_step=self.cap_codes_step,
            guard=self._guard(),
        )

    def _problem(self, z: Tensor, labels: Tensor) -> Problem:
        guard = self._guard()
        z = unit_features(z, guard, self.normalize, self.dim)
        return build_problem(
            z,
            labels,
            self.num_classes,
            eps_sq=self.eps_sq,
            weight=self._weight(z),
            debias=self.debias,
            max_class_size=self.max_class_size,
            guard=guard,
        )

    def _weight(self, like: Tensor, num_samples: int | None = None) -> Scalar:
        m = len(like) if num_samples is None else num_samples
        if self.mu is not None:
            return weight_from(self.scalars.device("mu", like.dtype), None, m)
        return weight_from(None, self.scalars.device("weight", like.dtype), m)

    def _classes(self, labels: Tensor) -> Classes:
        like = self.dictionary.new_empty(len(labels), 0)
        return read_classes(labels, like, self.num_classes, self._guard(), self.max_class_size)

    def _atoms(self, like: Tensor) -> tuple[Tensor, Tensor]:
        return self.dictionary.to(like.dtype), self.codes.to(like.dtype)

    def _guard(self) -> Guard:
        return Guard(self.validate, self.fault)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> VMCR2Loss:
        super()._apply(fn, recurse)
        self.scalars.to(self.dictionary.device)
        return self

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        super()._load_from_state_dict(*args, **kwargs)
        self.scalars.to(self.dictionary.device)
        self._is_latched = bool(self.latched)

    def extra_repr(self) -> str:
        """The arguments that matter most."""
        penalty = f"mu={self.mu}" if self.mu is not None else f"weight={self.weight}"
        return (
            f"num_classes={self.num_classes}, dim={self.dim}, atoms_per_class={self.atoms_per_class}, "
            f"eps_sq={self.eps_sq}, {penalty}, batch_expansion={self.batch_expansion}, codes={self.codes_rule!r}"
        )
