"""Block mode of the variational loss: its equations, its expectation, its running sum, and what a step touches."""

from __future__ import annotations

import copy
from itertools import combinations
from typing import Any

import pytest
import reference
import torch
from cases import DOUBLE, relative
from seeds import SEED, seeded
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from vmcr2 import VMCR2Loss
from vmcr2.functional import _block_latching as block_latching, latch

K, D, S = 6, 14, 2
EPS_SQ, W = 0.5, 7.0
PLAIN: dict[str, Any] = {"max_gradient": None, "scale": 1.0, "cap_codes_step": False, "self_latch": False}


def unit(*shape: int, seed: int = 0) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(*shape, generator=seeded(seed), dtype=DOUBLE), dim=-1)


def made(**options: Any) -> VMCR2Loss:
    """Latched on many samples of all classes, in float64."""
    given = {"atoms_per_class": S, "weight": W, "normalize": False, "debias": False, **PLAIN, **options}
    loss = VMCR2Loss(K, D, block=True, **given).double()
    loss.latch(unit(30 * K, D, seed=5), torch.arange(30 * K) % K)
    return loss


def some_shares() -> Tensor:
    values = torch.arange(1.0, K + 1.0, dtype=DOUBLE)
    return values / values.sum()


def drawn(balance: str) -> Tensor:
    """Labels of a batch."""
    return {
        "all": torch.arange(36) % K,
        "skewed": torch.arange(36).square() * K // 36**2,
        "some": torch.arange(36) % 3 * 2,
        "single": torch.tensor([4] + [1] * 20),
        "one": torch.tensor([3]),
    }[balance]


@pytest.mark.parametrize("balanced", [False, True])
@pytest.mark.parametrize("balance", ["all", "skewed", "some", "single", "one"])
def test_steps_terms_and_gradients_are_the_equations(balance: str, balanced: bool) -> None:
    labels, shares = drawn(balance), some_shares()
    loss = made(class_shares=shares, balanced_batches=balanced, batch_expansion=0.3, nu_codes=0.7)
    assert relative(loss.class_shares, shares) < 1e-7
    shares = loss.class_shares
    proportions = torch.bincount(labels, minlength=K).double() / len(labels)
    weights = proportions * (shares * K if balanced else 1.0)
    for number in range(3):
        z = unit(len(labels), D, seed=10 + number)
        new = reference.block_step(z, labels, loss.dictionary, loss.codes, shares, weights, EPS_SQ, W, 5.0, 0.7)
        leaf, twin = z.clone().requires_grad_(), z.clone().requires_grad_()
        value = loss(leaf, labels)
        value.backward()
        assert relative(loss.dictionary, new[0]) < 1e-10
        assert relative(loss.codes, new[1]) < 1e-10
        R_v, R_vc, mismatch, objective = reference.block_objective(twin, labels, *new, shares, weights, EPS_SQ, W)
        expected = -objective - 0.3 * reference.coding_rate(twin, EPS_SQ)
        expected.backward()
        assert value.item() == pytest.approx(expected.item(), rel=1e-10)
        assert relative(leaf.grad, twin.grad) < 1e-10  # type: ignore[arg-type]
        terms = loss.terms(z, labels)
        assert terms.variational_expansion.item() == pytest.approx(R_v.item(), rel=1e-10)
        assert terms.variational_compression.item() == pytest.approx(R_vc.item(), rel=1e-10)
        assert terms.mismatch.item() == pytest.approx(len(labels) ** 2 * mismatch.item(), rel=1e-10)
        assert loss.precise_mismatch(z, labels).item() == pytest.approx(terms.mismatch.item(), rel=1e-10)


def restricted(loss: VMCR2Loss, **options: Any) -> VMCR2Loss:
    """The shared dictionary with the atoms and codes of a loss in blocks."""
    given = {"atoms_per_class": S, "weight": W, "normalize": False, "debias": False, **PLAIN, **options}
    shared = VMCR2Loss(K, D, **given).double()
    shared.dictionary.copy_(loss.dictionary.flatten(0, 1).T)
    shared.codes.copy_(block_diagonal(loss.codes))
    shared.latched.fill_(True)
    return shared


def block_diagonal(codes: Tensor) -> Tensor:
    return torch.block_diag(*(own.unsqueeze(1) for own in codes))


@pytest.mark.parametrize("debias", [False, True])
@pytest.mark.parametrize("with_ahead", [False, True])
def test_with_all_classes_it_is_the_shared_dictionary_with_own_atoms_only(debias: bool, with_ahead: bool) -> None:
    """Orthogonal classes: then L_A of both is one number, and all settings are equal."""
    atoms = torch.linalg.qr(torch.randn(D, S * K, generator=seeded(3), dtype=DOUBLE)).Q.T
    labels = torch.arange(8 * K) % K
    loss = made(debias=debias)
    loss.dictionary.copy_(atoms.reshape(K, S, D))
    loss.codes.copy_(torch.rand(K, S, generator=seeded(4), dtype=DOUBLE))
    loss.refresh()
    shared = restricted(loss, debias=debias)
    z = unit(8 * K, D, seed=1)
    for one, other in zip(loss.terms(z, labels), shared.terms(z, labels), strict=True):
        assert one.item() == pytest.approx(other.item(), rel=1e-10)
    leaf, twin = z.clone().requires_grad_(), z.clone().requires_grad_()
    loss.surrogate(leaf, labels, loss.look_ahead(labels) if with_ahead else None).backward()
    shared.update(z, labels)
    shared.codes.mul_(block_diagonal(torch.ones(K, S)))
    shared(twin, labels, update=False).backward()
    assert relative(loss.dictionary.flatten(0, 1).T, shared.dictionary) < 1e-10
    assert relative(block_diagonal(loss.codes), shared.codes) < 1e-10
    assert relative(leaf.grad, twin.grad) < 1e-10  # type: ignore[arg-type]


def test_with_all_classes_and_coherent_atoms_too() -> None:
    """As above, for any atoms: L_A of the shared dictionary also counts atoms of other classes, which ν_A takes out."""
    labels = torch.arange(8 * K) % K
    loss = made()
    shared = restricted(loss)
    whole = torch.linalg.matrix_norm((shared.dictionary.T @ shared.dictionary) ** 2)
    shared.nu_codes = 5.0 * whole.item() / (S * K) ** 0.5  # latched atoms of a class are orthonormal
    z = unit(8 * K, D, seed=1)
    loss.update(z, labels)
    shared.update(z, labels)
    assert relative(loss.dictionary.flatten(0, 1).T, shared.dictionary) < 1e-10
    assert relative(block_diagonal(loss.codes), shared.codes * block_diagonal(torch.ones(K, S))) < 1e-10


def test_over_batches_of_some_classes_the_mean_is_the_training_set_s() -> None:
    """All batches of 2 of 6 classes, each with its 5 samples, are equally likely: shares are not even."""
    z, labels = unit(5 * K, D), torch.arange(5 * K) % K
    loss = made(class_shares=some_shares(), balanced_batches=True).eval()
    weights = loss.class_shares
    expected = reference.block_objective(z, labels, loss.dictionary, loss.codes, weights, weights, EPS_SQ, W)
    found = []
    for pair in combinations(range(K), 2):
        rows = (labels.unsqueeze(1) == torch.tensor(pair)).any(1)
        terms = loss.terms(z[rows], labels[rows])
        found.append(torch.stack([terms.variational_compression, terms.mismatch / rows.sum() ** 2]))
    assert relative(torch.stack(found).mean(0), torch.stack(expected[1:3])) < 1e-10


def test_over_batches_of_some_samples_the_mean_is_the_training_set_s() -> None:
    """All batches of 3 of 7 samples: a class is drawn by its share."""
    labels = torch.tensor([0, 0, 0, 0, 2, 2, 5])
    z = unit(7, D)
    loss = made(class_shares=torch.bincount(labels, minlength=K) / 7).eval()
    rates = [
        loss.terms(z[list(rows)], labels[list(rows)]).variational_compression for rows in combinations(range(7), 3)
    ]
    assert relative(torch.stack(rates).mean(), loss.terms(z, labels).variational_compression) < 1e-10


def test_a_step_leaves_the_classes_that_are_not_in_the_batch() -> None:
    loss = made()
    before = copy.deepcopy(loss.state_dict())
    labels = drawn("some")
    loss.update(unit(len(labels), D), labels)
    for name in ("dictionary", "codes"):
        after = loss.state_dict()[name]
        assert torch.equal(after[1::2], before[name][1::2])
        assert not any(torch.equal(after[j], before[name][j]) for j in (0, 2, 4))


def test_the_running_sum_drifts_little_and_is_computed_again() -> None:
    """1,000 steps in float32 without a refresh: 2.1e-6 to 2.7e-6 over 8 seeds."""
    k, d, s = 40, 16, 2
    loss = VMCR2Loss(k, d, atoms_per_class=s, block=True, self_latch=False, refresh_every=1001)
    generator = seeded(0)
    centres = torch.randn(k, d, generator=generator)

    def step() -> None:
        labels = torch.randint(0, k, (32,), generator=generator)
        loss.update(centres[labels] + torch.randn(32, d, generator=generator), labels)

    def drift() -> float:
        exact = torch.einsum(
            "ksd,ks,ksc,k->dc",
            *(x.double() for x in (loss.dictionary, loss.codes)),
            *(x.double() for x in (loss.dictionary, loss.class_shares)),
        )
        return ((loss.running_sum - exact).norm() / exact.norm()).item()

    loss.latch(torch.randn(400, d, generator=generator), torch.arange(400) % k)
    for _ in range(1000):
        step()
    drifted = drift()
    assert 1e-7 < drifted < 1e-4
    assert loss.since_refresh == 1000
    step()
    step()  # the first is the 1,001st
    assert loss.since_refresh == 1
    assert drift() < drifted / 2


class Sizes(TorchDispatchMode):
    """The numbers of entries of all that is computed, and of operations, but for the loss's own buffers."""

    def __init__(self, loss: VMCR2Loss) -> None:
        super().__init__()
        self.own = {buffer.data_ptr() for buffer in loss.buffers()}
        self.largest, self.operations = 0, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.operations += 1
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor) and tensor.data_ptr() not in self.own:
                self.largest = max(self.largest, tensor.numel())
        return result


@pytest.mark.parametrize("self_latch", [False, True])
def test_a_step_does_not_grow_with_the_classes(self_latch: bool) -> None:
    """Nothing that is computed is larger at 100,000 classes than at 1,000, and there are no more operations."""
    m, d, s = 256, 64, 2
    seen = []
    for k in (1000, 100_000):
        loss = VMCR2Loss(k, d, atoms_per_class=s, block=True, self_latch=self_latch)
        labels = torch.arange(m) // 4 * (k // 64)  # 64 classes, spread over all
        loss(torch.randn(m, d, generator=seeded(0)), labels)
        with Sizes(loss) as sizes:
            loss(torch.randn(m, d, generator=seeded(1), requires_grad=True), labels).backward()
            loss.surrogate(torch.randn(m, d, requires_grad=True), labels, loss.look_ahead(labels)).backward()
        seen.append((sizes.largest, sizes.operations))
    assert seen[0] == seen[1]
    assert seen[0][0] <= 8 * m * d
    total = sum(buffer.numel() for buffer in loss.buffers())
    assert total <= k * s * (d + 1) + k + d * d + 10  # Γ, Â and π: O(d·s·k)


def test_latching_in_blocks_is_that_of_the_shared_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    z, labels = unit(200, D), torch.randint(0, K - 1, (200,), generator=seeded(2))  # the last class has no sample
    dictionary, codes = latch(z, labels, K, atoms_per_class=S)
    monkeypatch.setattr(block_latching, "BLOCK_BUDGET", 2 * D * D)
    monkeypatch.setattr(block_latching, "MOMENT_BUDGET", 2 * D * D)  # three blocks of two classes
    batches = list(zip(z.split(33), labels.split(33), strict=True))
    for given in ((z, labels), (batches,)):
        loss = made()
        loss.latch(*given)  # type: ignore[arg-type]
        assert relative(block_diagonal(loss.codes), codes) < 1e-4
        for j in range(K - 1):
            own = loss.dictionary[j]
            expected = dictionary[:, j * S : (j + 1) * S]
            assert relative(own.T @ own, expected @ expected.T) < 1e-3
        assert loss.codes[-1].abs().max() == 0
        assert relative(loss.dictionary.norm(dim=2), torch.ones(K, S)) < 1e-5
        sums = loss.running_sum.clone()
        loss.refresh()
        assert relative(loss.running_sum, sums) < 1e-12


def test_it_latches_the_classes_of_a_batch_at_every_call_until_the_caller_does() -> None:
    """20 rows are more than 4·s: atoms and codes are then those of the batch's rows. Other classes stay."""
    loss = VMCR2Loss(50, D, atoms_per_class=S, block=True, nu_dictionary=0.0, nu_codes=0.0)
    for number in range(4):
        z = unit(20, D, seed=number).float()
        before = loss.dictionary.clone()
        loss(z, torch.full((20,), 7 + number // 2))
        own = loss.dictionary[7 + number // 2]
        assert not torch.equal(own, before[7 + number // 2])
        assert relative(loss.codes[7 + number // 2], (z.T @ z / 20 @ own.T * own.T).sum(0)) < 1e-4
        others = torch.arange(50) != 7 + number // 2
        assert torch.equal(loss.dictionary[others], before[others])
    assert int((loss.codes.sum(1) > 0).sum()) == 2
    assert loss.calls == 4
    loss.latch(unit(100, D).float(), torch.arange(100) % 50)
    before = loss.dictionary.clone()
    loss(unit(20, D, seed=20).float(), torch.full((20,), 30))
    assert relative(loss.dictionary, before) < 1e-6  # the caller latches from here on
    assert loss.calls == -1


def test_few_rows_add_to_what_a_class_knew() -> None:
    """Batches with one row of the class each: its two atoms come to span both directions."""
    loss = VMCR2Loss(10, D, atoms_per_class=2, block=True, nu_dictionary=0.0, nu_codes=0.0)
    basis = torch.eye(D)
    for number in range(32):
        loss(basis[number % 3 % 2].unsqueeze(0).repeat(2, 1), torch.tensor([4, 5]))
    assert loss.dictionary[4, :, :2].norm() ** 2 > 1.99
    assert (loss.codes[4] > 0.1).all()


def test_a_batch_that_is_not_finite_changes_nothing() -> None:
    z, labels = unit(36, D), drawn("all")
    z[3, 2] = torch.nan
    loss = made()
    before = copy.deepcopy(loss.state_dict())
    with pytest.raises(ValueError, match="NaN or inf in row 3"):
        loss(z, labels)
    for self_latch in (False, True):
        quiet = VMCR2Loss(K, D, block=True, atoms_per_class=S, validate=False, self_latch=self_latch).double()
        quiet.load_state_dict(before, strict=False)
        quiet.calls = torch.tensor(5)
        leaf = z.clone().requires_grad_()
        for call in (quiet, quiet.surrogate):
            call(leaf, labels)
        for name in ("dictionary", "codes", "running_sum"):
            assert torch.equal(quiet.state_dict()[name], before[name]), name
        assert quiet.fault


def test_state_travels_and_goes_on() -> None:
    one = VMCR2Loss(K, D, atoms_per_class=S, block=True, class_shares=some_shares(), refresh_every=4)
    for seed in range(6):
        one(unit(20, D, seed=seed).float(), torch.arange(20) % 4)
    two = VMCR2Loss(K, D, atoms_per_class=S, block=True, refresh_every=4)
    two.load_state_dict(one.state_dict())
    for seed in range(6, 12):
        labels = torch.arange(20) % K
        one(unit(20, D, seed=seed).float(), labels)
        two(unit(20, D, seed=seed).float(), labels)
        for name, value in one.state_dict().items():
            assert torch.equal(value, two.state_dict()[name]), name
    twin = copy.deepcopy(one)
    assert type(twin) is type(one)
    assert isinstance(one, VMCR2Loss)


def test_flat_codes() -> None:
    loss = made(codes="flat", codes_trace=3.0)
    loss.update(unit(36, D), drawn("some"))
    assert torch.equal(loss.codes, torch.full((K, S), 1.5, dtype=DOUBLE))
    assert loss.mean_trace == 3.0


def test_what_is_wrong_is_said() -> None:
    with pytest.raises(ValueError, match="sum to 1"):
        made(class_shares=torch.ones(K))
    with pytest.raises(ValueError, match="6 shares"):
        made(class_shares=torch.ones(K - 1) / (K - 1))
    with pytest.raises(ValueError, match="refresh_every"):
        made(refresh_every=0)
    with pytest.raises(ValueError, match="for block=True"):
        VMCR2Loss(K, D, atoms_per_class=S, max_classes=3)
    loss = made()
    soft = torch.full((4, K), 1 / K, dtype=DOUBLE)
    for call in (loss, loss.latch):
        with pytest.raises(ValueError, match="integer labels"):
            call(unit(4, D), soft)
    with pytest.raises(ValueError, match=r"0\.\.5"):
        loss(unit(4, D), torch.tensor([0, 1, 2, 6]))
    with pytest.raises(ValueError, match="read only once"):
        loss.latch(iter([(unit(4, D), torch.arange(4))]))


def test_more_classes_than_there_is_room_for_set_the_flag_while_compiled() -> None:
    torch.compiler.reset()
    loss = made(max_classes=3)
    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    twin = copy.deepcopy(loss)
    z, labels = unit(36, D).requires_grad_(), drawn("some")  # three classes
    assert compiled(z, labels).item() == pytest.approx(twin(z, labels).item(), rel=1e-9)
    assert relative(loss.running_sum, twin.running_sum) < 1e-9
    assert not loss.fault
    compiled(z, drawn("all"))
    assert loss.fault


def test_it_separates_classes_that_are_more_than_the_dimensions() -> None:
    """24 classes in 8 dimensions, of which a batch has 8: they cannot be orthogonal, but fill all directions evenly.

    Free features. Over 6 seeds the smallest eigenvalue of the running sum goes from 0.002 of the mean to 0.62–0.69.
    """
    k, d, per = 24, 8, 10
    generator = seeded(SEED)
    labels = torch.arange(k * per) % k
    z = torch.nn.Parameter(torch.randn(k * per, d, generator=generator) + 4.0)  # all in one direction
    loss = VMCR2Loss(k, d, atoms_per_class=1, block=True, codes="flat", codes_trace=4.0)
    loss.latch(z.detach(), labels)
    evenness = []
    optimizer = torch.optim.SGD([z], lr=10.0, momentum=0.9)
    for _ in range(600):
        spectrum = torch.linalg.eigvalsh(loss.running_sum)
        evenness.append((spectrum[0] / spectrum.mean()).item())
        classes = torch.randperm(k, generator=generator)[:8]
        rows = (classes.unsqueeze(1) + k * torch.arange(per)).flatten()
        optimizer.zero_grad()
        loss(z[rows], labels[rows]).backward()
        optimizer.step()
    assert evenness[0] < 0.1
    assert evenness[-1] > 0.4
    unit_z = torch.nn.functional.normalize(z.detach(), dim=1)
    own = (unit_z.unsqueeze(1) * loss.dictionary[labels]).sum(2).square().mean()
    assert own > 0.95  # a class's samples lie along its atom
