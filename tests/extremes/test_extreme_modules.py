"""hypothesis drives losses, classifiers and objectives, as test_extreme_functions does with the pure functions."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from batches import ODD_NUMBERS, Batch, assert_finite, attempt, batches, driven, in_range
from hypothesis import given, strategies as st
from torch import Tensor, nn

from vmcr2 import MCR2Loss, NearestSubspace, VMCR2Loss
from vmcr2.functional import normalize_rows
from vmcr2.losses import CrossEntropyLoss
from vmcr2.objectives import OBJECTIVES

STEPS = 4


def assert_sound(module: nn.Module) -> None:
    for name, part in [*module.named_buffers(), *module.named_parameters()]:
        assert bool(torch.isfinite(part.double()).all()), name


def train(loss: nn.Module, batch: Batch, surrogate: bool) -> bool:
    """Some steps on the batch, then the value in eval mode. Whatever was refused, the state stays finite."""
    for step in range(STEPS):
        z = batch.z.roll(step, 0).clone().requires_grad_()
        labels = batch.labels.roll(step, 0)

        def value(z: Tensor = z, labels: Tensor = labels) -> Tensor:
            return loss.surrogate(z, labels) if surrogate else loss(z, labels)  # type: ignore[operator]

        found = attempt(value, must_work=batch.plain and getattr(loss, "usual", False))
        assert_sound(loss)
        if found is None:
            return False
        found.backward()
        assert z.grad is not None
        assert_finite(found.detach(), in_range(z.grad))
    loss.eval()
    assert_finite(attempt(lambda: loss(batch.z, batch.labels)))
    return True


@driven(slow=True)
@given(
    batches(),
    ODD_NUMBERS,
    st.sampled_from([0, 40, 50]),
    st.booleans(),
    st.one_of(st.none(), ODD_NUMBERS),
    st.booleans(),
)
def test_the_exact_loss(
    batch: Batch, eps_sq: float, memory: int, normalize: bool, bound: float | None, surrogate: bool
) -> None:
    def build() -> MCR2Loss:
        return MCR2Loss(
            batch.num_classes, eps_sq=eps_sq, memory=memory, dim=batch.dim, normalize=normalize, max_gradient=bound
        )

    loss = attempt(build)
    if loss is None:
        return
    loss.usual = eps_sq >= 1e-4 and batch.labels.ndim == 1
    train(loss, batch, surrogate)


@driven(slow=True)
@given(
    batches(),
    st.integers(1, 5),
    st.fixed_dictionaries(
        {},
        optional={
            "eps_sq": ODD_NUMBERS,
            "weight": ODD_NUMBERS,
            "nu_dictionary": ODD_NUMBERS,
            "nu_codes": ODD_NUMBERS,
            "batch_expansion": ODD_NUMBERS,
            "scale": ODD_NUMBERS,
            "codes_trace": ODD_NUMBERS,
            "max_gradient": st.one_of(st.none(), ODD_NUMBERS),
            "debias": st.booleans(),
            "cap_codes_step": st.booleans(),
            "codes": st.sampled_from(["free", "flat"]),
            "self_latch": st.booleans(),
            "normalize": st.booleans(),
        },
    ),
    st.booleans(),
)
def test_the_variational_loss(batch: Batch, atoms: int, options: dict[str, Any], surrogate: bool) -> None:
    loss = attempt(lambda: VMCR2Loss(batch.num_classes, batch.dim, atoms_per_class=atoms, **options))
    if loss is None:
        return
    loss.usual = not options.keys() - {"debias", "codes", "self_latch", "normalize"}
    if train(loss, batch, surrogate):
        assert_finite(attempt(lambda: loss.terms(batch.z, batch.labels)))
    attempt(lambda: loss.latch(batch.z, batch.labels), must_work=batch.plain)
    assert_sound(loss)


@driven(slow=True)
@given(batches(), st.sampled_from([torch.float32, torch.float64]))
def test_cross_entropy(batch: Batch, dtype: torch.dtype) -> None:
    loss = CrossEntropyLoss(batch.dim, batch.num_classes).to(dtype)
    z = batch.z.clone().requires_grad_()
    labels = batch.labels.to(dtype) if batch.labels.ndim == 2 else batch.labels
    value = loss(z, labels)
    value.backward()
    if bool((batch.z.double().abs() <= 1e15).all()):
        assert_finite(value.detach(), in_range(z.grad))
    assert bool((loss.predict(z) < batch.num_classes).all())


@driven(slow=True)
@given(batches(), batches(), st.one_of(st.none(), st.integers(1, 24)), st.booleans())
def test_the_nearest_subspace(batch: Batch, points: Batch, components: int | None, whole: bool) -> None:
    classifier = NearestSubspace(batch.num_classes, components)
    usual = batch.plain and (components is None or components <= batch.dim)
    if whole:
        learned = attempt(lambda: classifier.fit(batch.z, batch.labels), must_work=usual)
    else:
        halves = [slice(0, None, 2), slice(1, None, 2)] if len(batch.z) > 1 else [slice(None)]
        for half in halves:
            learned = attempt(lambda h=half: classifier.partial_fit(batch.z[h], batch.labels[h]), must_work=usual)
    assert_sound(classifier)
    if learned is None:
        return
    assert_finite(classifier.bases, classifier.energies)
    for own in (batch, points):
        labels = attempt(lambda own=own: classifier.predict(own.z), must_work=own is batch and batch.plain)
        if labels is not None:
            assert bool((labels < batch.num_classes).all())
            assert_finite(classifier.residuals(own.z))


SETTINGS = {
    "eps_sq": ODD_NUMBERS,
    "loss_scale": ODD_NUMBERS,
    "weight": ODD_NUMBERS,
    "batch_expansion": ODD_NUMBERS,
    "nu_dictionary": ODD_NUMBERS,
    "codes_trace": ODD_NUMBERS,
    "rate_weight": ODD_NUMBERS,
    "debias": st.booleans(),
    "memory": st.integers(0, 100),
    "atoms_per_class": st.integers(1, 5),
}


@driven(slow=True)
@given(
    batches(soft=False, dtypes=[torch.float32]),
    st.sampled_from(sorted(OBJECTIVES)),
    st.fixed_dictionaries({}, optional=SETTINGS),
)
def test_objectives(batch: Batch, name: str, options: dict[str, Any]) -> None:
    """In eager mode and without checks, as the trainer runs them: what goes wrong sets the flag or is not finite."""
    kind = OBJECTIVES[name]
    known = {key: value for key, value in options.items() if key in kind.known()}
    settings = attempt(lambda: kind(**known))
    if settings is None:
        return
    labels = batch.labels.long()
    z = normalize_rows(torch.nan_to_num(batch.z, 0.0, 1.0, -1.0).clamp(-1e15, 1e15))
    objective = attempt(lambda: settings.build(batch.num_classes, batch.dim, labels, len(z)), must_work=not known)
    if objective is None:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        objective.begin(0)
        if not known.get("memory") or known["memory"] >= len(z):
            _step(objective, z, labels, must_be_sound=not known.keys() - {"debias", "memory", "atoms_per_class"})


def _step(objective: Any, z: Tensor, labels: Tensor, must_be_sound: bool) -> None:
    objective.latch(z, labels)
    for _ in range(STEPS):
        leaf = z.clone().requires_grad_()
        ahead = objective.look_ahead(labels)
        objective.surrogate(leaf, labels, ahead).backward()
        flagged = objective.fault is not None and bool(objective.fault)
        sound = leaf.grad is None or bool(torch.isfinite(leaf.grad).all())
        assert sound or flagged or not must_be_sound
        assert not (must_be_sound and flagged)
        assert objective.not_finite() == []
    terms = objective.terms(z, labels)
    assert not must_be_sound or all(bool(torch.isfinite(term).all()) for term in terms.values()), terms
    predicted = objective.predict(z)
    assert predicted is None or bool((predicted < objective.num_classes).all())
