"""Lines 5–10 of Algorithm 1: step sizes, both gradient steps from the old point, both projections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, cast, get_args

import torch
from torch import Tensor

from .._shared import Aside
from ._classes import Classes, safe_reciprocal
from ._inputs import check_features, check_not_negative, check_positive, read_classes
from ._linalg import Guard, full_precision, products_as_asked, working_dtype
from ._mismatch import atom_product, coherence_norm
from ._problem import Problem, Scalar, build_problem, own_terms, read_problem, weight_from
from ._projections import flat_codes, project_nonnegative, project_simplex, rescale_trace, unit_columns

CodesRule = Literal["free", "simplex", "rescaled", "flat"]

# The codes' step is a gradient step on a quadratic with Hessian ∝ G₂: it diverges once ν·λ_max(G₂)/‖G₂‖_F reaches 2.
CODES_STEP_LIMIT = 1.9

_PROJECTIONS = {
    "free": project_nonnegative,
    "simplex": project_simplex,
    "rescaled": rescale_trace,
    "flat": flat_codes,
}


@full_precision
def lipschitz_dictionary(
    z: Tensor,
    labels: Tensor,
    codes: Tensor,
    *,
    mu: Scalar | None = None,
    weight: Scalar | None = None,
    validate: bool = True,
    fault: Tensor | None = None,
) -> Tensor:
    """L_Γ = 4w Σ_j γ_j (‖Ĉ_j‖_F max Â_j + (max Â_j)²): the appendix's constant, for any class balance.

    For balanced classes it is the paper's (2μk/m) Σ_j (‖Z_jᵀZ_j‖_F ‖A_j‖_∞ + ‖A_j‖_∞²). The paper's k/m stands for
    1/n_j, the weight of class j's penalty; here every class keeps its own. Not a bound in general: it takes ΓᵀΓ ≈ I
    (docs/theory.md has the measured rate of failure).

    >>> z, labels, codes = torch.eye(2), torch.tensor([0, 1]), torch.eye(2)
    >>> lipschitz_dictionary(z, labels, codes, mu=1.0).item()  # (2·1·2/2)·Σ_j (1·1 + 1)
    8.0
    """
    guard = Guard(validate, fault)
    with torch.no_grad():
        check_features(z, guard)
        dtype = working_dtype(z, codes)
        w = weight_from(mu, weight, len(z))
        problem = build_problem(z.to(dtype), labels, codes.shape[1], eps_sq=1.0, weight=w, guard=guard)
        return _lipschitz_dictionary(problem, codes.to(dtype).amax(0))


@full_precision
def lipschitz_codes(
    dictionary: Tensor,
    labels: Tensor,
    num_classes: int | None = None,
    *,
    mu: Scalar | None = None,
    weight: Scalar | None = None,
    validate: bool = True,
    fault: Tensor | None = None,
) -> Tensor:
    """L_j = 2w γ_j ‖(ΓᵀΓ)^⊙2‖_F of ∂/∂Â_j, (k,): the appendix's L_A, one for each class.

    The penalty is separable over classes, so each block has a constant of its own; ν/L_j times ∂/∂Â_j is the same
    step as the paper's ν/L_A times ∂/∂A_j, with L_A = L_j/n_j² = (μ/n_j)‖(ΓᵀΓ)^⊙2‖_F in place of the balanced μk/m.
    One constant for all overshoots rare classes or starves frequent ones (tests/functional/test_steps.py compares).

    >>> lipschitz_codes(torch.eye(2), torch.tensor([0, 1]), mu=1.0)
    tensor([1.4142, 1.4142])
    """
    with torch.no_grad():
        dictionary = dictionary.to(working_dtype(dictionary))
        rows = dictionary.new_zeros(len(labels), 1)
        classes = read_classes(labels, rows, num_classes, Guard(validate, fault))
        frobenius = coherence_norm(dictionary, len(labels))
        return 2.0 * weight_from(mu, weight, len(labels)) * classes.proportions * frobenius


@full_precision
def variational_step(
    z: Tensor,
    labels: Tensor,
    dictionary: Tensor,
    codes: Tensor,
    *,
    eps_sq: float = 0.5,
    mu: Scalar | None = None,
    weight: Scalar | None = None,
    nu_dictionary: Scalar = 5.0,
    nu_codes: Scalar = 5.0,
    codes_rule: CodesRule = "free",
    codes_trace: float = 1.0,
    cap_codes_step: bool = True,
    max_class_size: int | None = None,
    validate: bool = True,
    fault: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """One step of Algorithm 1, lines 5–10: (Γ, Â) after both gradient steps, taken at the old point, and projections.

    Args:
        z: features (m, d), taken as constants.
        labels: integers (m,) or memberships (m, k).
        dictionary: Γ, (d, q), unit columns.
        codes: Â = A/n_j, (q, k), non-negative. Those of a class that is not in the batch are left alone.
        eps_sq: ε², the squared precision.
        mu: the paper's μ; or
        weight: μm/2, the weight of M/m².
        nu_dictionary: ν_Γ; the step is ν_Γ/L_Γ, and none where L_Γ = 0 (all codes zero).
        nu_codes: ν_A; the step is ν_A/L_j.
        codes_rule: "free" (non-negative, the paper's), "simplex" (Euclidean projection onto a trace), "rescaled"
            (multiplied to have it) or "flat" (it is spread evenly over the class's own atoms and stays there).
        codes_trace: that trace; unit features have 1.
        cap_codes_step: keep ν_A·λ_max(G₂)/‖G₂‖_F below 2, beyond which small or coherent dictionaries overshoot.
        max_class_size: as in :func:`rate_reduction`.
        validate: look at the values and raise ``ValueError``.
        fault: as in :func:`coding_rate`.

    A step that would leave anything but finite numbers is not taken.

    >>> z, labels = torch.eye(2), torch.tensor([0, 1])
    >>> dictionary, codes = variational_step(z, labels, torch.eye(2), torch.eye(2), weight=1e6)  # already optimal
    >>> bool(torch.allclose(dictionary, torch.eye(2), atol=1e-3) and torch.allclose(codes, torch.eye(2), atol=1e-3))
    True
    """
    guard = Guard(validate, fault)
    check_codes_rule(codes_rule)
    check_positive(codes_trace, "codes_trace")
    for name, nu in (("nu_dictionary", nu_dictionary), ("nu_codes", nu_codes)):
        if not isinstance(nu, Tensor):
            check_not_negative(nu, name)
    with torch.no_grad():
        problem, dictionary, codes = read_problem(
            z,
            labels,
            dictionary,
            codes,
            eps_sq=eps_sq,
            mu=mu,
            weight=weight,
            max_class_size=max_class_size,
            guard=guard,
        )
        prepared = prepare_step(
            Atoms(dictionary, codes),
            problem.classes,
            c=problem.c,
            weight=problem.weight,
            nu_codes=nu_codes,
            cap_codes_step=cap_codes_step,
            guard=guard,
        )
        rate = dictionary_rate(problem, prepared, nu_dictionary)
        project = codes_projection(codes_rule, codes_trace)
        moved = take_step(problem, Atoms(dictionary, codes), prepared, lambda: rate, project)
        return moved.dictionary, moved.codes


class Atoms(NamedTuple):
    """What Algorithm 1 moves beside the network: Γ, Â, and the multipliers of an augmented Lagrangian, if any."""

    dictionary: Tensor
    codes: Tensor
    multipliers: Tensor | None = None
    """U, (q, k), scaled by 1/2w: what is matched to the data is Γ Diag(Â_j − U_j) Γᵀ (docs/theory.md)."""

    @property
    def matched(self) -> Tensor:
        """Â − U: the codes that stand in the mismatch."""
        return self.codes if self.multipliers is None else self.codes - self.multipliers


class Prepared(NamedTuple):
    """A step of Algorithm 1 as far as it goes without features; what the data add to it is one product each."""

    codes: Tensor
    """Âᵀ after its step but for the data's part, (k, q)."""
    summing: Tensor
    """2w·ν_A/(L_A n_j), (k,): what Σ_{i∈j} (γ_lᵀz_i)² adds to it."""
    dictionary: Tensor
    """∂/∂Γ but for the data's part, (d, q)."""
    spreading: Tensor
    """(4w/m)Âᵀ, (k, q): Zᵀ(ZΓ ∘ of each sample's class) is the data's part."""
    largest: Tensor
    """max_l |Â_lj|, (k,)."""
    multipliers: Tensor | None = None
    """Uᵀ after its step but for the data's part, (k, q)."""
    answering: Tensor | None = None
    """ρ/n_j, (k,): what Σ_{i∈j} (γ_lᵀz_i)² adds to it."""


def prepare_step(
    atoms: Atoms,
    classes: Classes,
    *,
    c: float,
    weight: Scalar,
    nu_codes: Scalar,
    cap_codes_step: bool,
    multiplier_rate: float = 0.0,
    guard: Guard,
) -> Prepared:
    """All of a step that the labels, Γ and Â decide: R^v's gradients, the dictionary's part of M, the codes' rate."""
    m = classes.num_samples
    dictionary, codes, multipliers = atoms
    matched = atoms.matched
    rates, atom_terms = own_terms(dictionary, codes, classes.proportions, c, m, guard, matched)
    limit = CODES_STEP_LIMIT * atom_terms.frobenius / atom_terms.largest_row
    nu = limit.clamp(max=nu_codes) if cap_codes_step else nu_codes
    # the gradient below lacks the factor γ_j that L_j = 2w γ_j ‖G₂‖_F has: it cancels; an absent class stays
    step = torch.where(classes.proportions > 0, nu / (2.0 * weight * atom_terms.frobenius), 0.0)
    own = c / 2 * (rates.leverage.unsqueeze(1) - 1.0 / (1.0 + c * codes)) - 2.0 * weight * atom_terms.product
    per_sample = safe_reciprocal(classes.sizes)
    prepared = Prepared(
        codes=torch.addcmul(codes, own, step).T.contiguous(),
        summing=2.0 * weight * step * per_sample,
        dictionary=rates.dictionary_gradient - 4.0 * weight * atom_terms.gradient,
        spreading=(4.0 / m * weight * matched.T).contiguous(),
        largest=matched.abs().amax(0),
    )
    if multipliers is None:
        return prepared
    gap = multiplier_rate * atom_product(dictionary, codes, m)
    answered = torch.where(classes.proportions > 0, multipliers - gap, multipliers)
    return prepared._replace(multipliers=answered.T.contiguous(), answering=multiplier_rate * per_sample)


def dictionary_rate(problem: Problem, prepared: Prepared, nu: Scalar) -> Tensor:
    """ν_Γ/L_Γ, and 0 where L_Γ = 0 (all codes zero)."""
    lipschitz = _lipschitz_dictionary(problem, prepared.largest)
    moving = lipschitz > 0
    return torch.where(moving, nu / torch.where(moving, lipschitz, 1.0), 0.0)


def take_step(
    problem: Problem,
    atoms: Atoms,
    prepared: Prepared,
    rate: Callable[[], Tensor],
    project: Callable[[Tensor], Tensor],
) -> Atoms:
    """The rest of the step, on a checked problem. ``rate`` is asked for as late as it can be."""
    z, classes = problem.z, problem.classes
    dictionary, codes, multipliers = atoms
    # no multiplier is larger than this where codes are stationary and atoms orthogonal: R^v and R^v_c pull no harder
    bound = cast(Tensor, problem.c / (4.0 * problem.weight))
    with products_as_asked():
        coordinates = z @ dictionary
        squares = coordinates.square()
        with Aside(z, lane=2) as moving:
            moved = classes.add_sums(prepared.codes, prepared.summing, squares)
            new_codes = torch.where(classes.proportions > 0, project(moved.T), codes)
            if prepared.multipliers is not None and prepared.answering is not None:
                answered = classes.add_sums(prepared.multipliers, prepared.answering, squares).T
                multipliers = answered.clamp(-bound, bound)
        data = coordinates.mul_(classes.spread(prepared.spreading))
        by_dictionary = torch.addmm(prepared.dictionary, z.T, data)
    # a step away from unit columns: their squares are in range, or the step is not sound
    new_dictionary = unit_columns(torch.addcmul(dictionary, by_dictionary, rate()))
    moving.join()
    sound = torch.isfinite(new_dictionary.sum() + new_codes.sum())
    problem.guard.report(~sound, lambda: "z, dictionary or codes are so large that a step of Algorithm 1 overflows")
    if multipliers is not None and atoms.multipliers is not None:
        multipliers = torch.where(sound & torch.isfinite(multipliers.sum()), multipliers, atoms.multipliers)
    return Atoms(torch.where(sound, new_dictionary, dictionary), torch.where(sound, new_codes, codes), multipliers)


def codes_projection(rule: CodesRule, trace: float = 1.0) -> Callable[[Tensor], Tensor]:
    """The projection that a rule stands for; rules with a trace are scaled by it."""
    project = _PROJECTIONS[rule]
    if rule == "free" or trace == 1.0:
        return project
    return lambda codes: trace * project(codes / trace)


def check_codes_rule(rule: str) -> None:
    """One of the rules there are."""
    if rule not in get_args(CodesRule):
        raise ValueError(f"the codes' rule must be one of {', '.join(get_args(CodesRule))}; got {rule!r}")


def _lipschitz_dictionary(problem: Problem, largest: Tensor) -> Tensor:
    per_class = problem.pairs.energy.sqrt() * largest + largest.square()
    return 4.0 * problem.weight * (problem.classes.proportions * per_class).sum()
