"""Latching (Algorithm 2): from tensors and from batches, against the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, get_args

import pytest
import reference
import torch
from cases import CASES, DOUBLE, Case, relative
from recording import LargestStorage
from seeds import randn, seeded
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from vmcr2.functional import _eigen, latch, latch_batches, normalize_rows
from vmcr2.functional._eigen import MOMENT_BUDGET, Method

METHODS: tuple[Method, ...] = get_args(Method)
LABELS = torch.tensor([0, 0, 1, 1])


def models(dictionary: Tensor, codes: Tensor) -> Tensor:
    """Γ Diag(Â_j) Γᵀ of every class, (k, d, d): free of the signs and the order of atoms."""
    return torch.einsum("dq,qk,eq->kde", dictionary, codes, dictionary)


def ranks(case: Case) -> Tensor:
    """Of every class's second moment, for features in general position."""
    rows = (case.membership() > 0).sum(0)
    return rows.clamp_max(case.d)


def split(z: Tensor, labels: Tensor, sizes: tuple[int, ...]) -> list[tuple[Tensor, Tensor]]:
    """Batches of these sizes, over and over."""
    batches, start = [], 0
    while start < len(z):
        stop = start + sizes[len(batches) % len(sizes)]
        batches.append((z[start:stop], labels[start:stop]))
        start = stop
    return batches


class Counted:
    """Batches that can be read anew, and count how often they are."""

    def __init__(self, batches: list[tuple[Tensor, Tensor]]) -> None:
        self.batches, self.read = batches, 0

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        for batch in self.batches:
            self.read += 1
            yield batch


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_equals_algorithm_2(case: Case, method: Method) -> None:
    z, membership = case.features(), case.membership()
    for s in sorted({1, 2, case.d}):
        dictionary, codes = latch(z, case.labels(), case.k, atoms_per_class=s, method=method)
        expected = reference.latching(z, membership, s)
        assert dictionary.shape == (case.d, s * case.k)
        assert codes.shape == (s * case.k, case.k)
        assert (models(dictionary, codes) - models(*expected)).abs().max() < 1e-10
        assert (codes.sum(0) - expected[1].sum(0)).abs().max() < 1e-12
        assert (codes - expected[1]).abs().max() < 1e-12  # eigenvalues descend in both
        assert (codes >= 0).all()
        assert (torch.linalg.vector_norm(dictionary, dim=0) - 1).abs().max() < 1e-12
        for j in range(case.k):
            own = slice(j * s, (j + 1) * s)
            other = torch.arange(case.k) != j
            assert codes[own][:, other].abs().sum() == 0
            assert int((codes[own, j] > 0).sum()) == min(s, int(ranks(case)[j]))
            if membership[:, j].sum() > 0:
                gram = dictionary[:, own].T @ dictionary[:, own]
                assert (gram - torch.eye(s, dtype=DOUBLE)).abs().max() < 1e-12


@pytest.mark.parametrize("case", CASES, ids=str)
def test_float32(case: Case) -> None:
    s = min(2, case.d)
    labels = case.labels().float() if case.soft else case.labels()
    dictionary, codes = latch(case.features(torch.float32), labels, case.k, atoms_per_class=s)
    assert dictionary.dtype == codes.dtype == torch.float32
    expected = reference.latching(case.features(), case.membership(), s)
    assert (models(dictionary, codes) - models(*expected)).abs().max() < 1e-4
    assert (codes - expected[1]).abs().max() < 1e-6
    for j in range(case.k):
        assert int((codes[:, j] > 0).sum()) == min(s, int(ranks(case)[j]))


@pytest.mark.parametrize("method", METHODS)
def test_with_all_atoms_the_model_is_the_data(method: Method) -> None:
    """s = d and s > d: Γ Diag(Â_j) Γᵀ = Ĉ_j, and the atoms beyond d are unit with code 0."""
    case = Case(24, 6, 3, "skewed", True)
    z, membership = case.features(), case.membership()
    moments = torch.einsum("mk,md,me->kde", membership / membership.sum(0), z, z)
    for s in (6, 7, 20):
        dictionary, codes = latch(z, case.labels(), 3, atoms_per_class=s, method=method)
        assert dictionary.shape == (6, 3 * s)
        assert codes.shape == (3 * s, 3)
        assert (models(dictionary, codes) - moments).abs().max() < 1e-13
        assert (torch.linalg.vector_norm(dictionary, dim=0) - 1).abs().max() < 1e-13
        blocks = codes.view(3, s, 3)
        assert blocks[:, 6:].abs().sum() == 0
        for j in range(3):
            assert (blocks[j, :6, j] > 0).all()
            assert blocks[j][:, [i for i in range(3) if i != j]].abs().sum() == 0


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("s", [1, 3, 9])
def test_absent_classes_get_unit_atoms_of_their_own(s: int, method: Method) -> None:
    z = randn(10, 5)
    dictionary, codes = latch(z, torch.tensor([1, 3] * 5), 6, atoms_per_class=s, method=method)
    assert (torch.linalg.vector_norm(dictionary, dim=0) - 1).abs().max() < 1e-12
    blocks = dictionary.view(5, 6, s)
    for j in (0, 2, 4, 5):
        assert codes[:, j].abs().sum() == 0
        assert codes[j * s : (j + 1) * s].abs().sum() == 0
    for i, j in [(0, 2), (2, 4), (4, 5)]:  # without structure: no two absent classes share their atoms
        assert (blocks[:, i] - blocks[:, j]).abs().max() > 0.1


def test_a_class_of_zero_features_has_unit_atoms_and_zero_codes() -> None:
    z = randn(6, 5)
    z[:3] = 0
    dictionary, codes = latch(z, torch.tensor([0, 0, 0, 1, 1, 1]), 2, atoms_per_class=2)
    assert (torch.linalg.vector_norm(dictionary, dim=0) - 1).abs().max() < 1e-12
    assert codes[:, 0].abs().sum() == 0
    assert (codes[2:, 1] > 0).all()


def test_few_samples_many_atoms() -> None:
    """Codes beyond the rank are exactly 0, atoms unit, in a dimension where subspace iteration iterates."""
    z, labels = torch.nn.functional.normalize(randn(9, 60), dim=1), torch.tensor([0, 1, 1, 2, 2, 2, 2, 2, 2])
    for dtype in (torch.float32, DOUBLE):
        dictionary, codes = latch(z.to(dtype), labels, 3, atoms_per_class=5)
        assert [(codes[:, j] > 0).sum().item() for j in range(3)] == [1, 2, 5]
        assert (torch.linalg.vector_norm(dictionary, dim=0) - 1).abs().max() < 1e-5
        expected = reference.latching(z, reference.one_hot(labels, 3), 5)
        assert relative(models(dictionary, codes), models(*expected)) < (1e-4 if dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("budget", [MOMENT_BUDGET, 0])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_batches_equal_the_tensor(case: Case, budget: int) -> None:
    z, labels, s = case.features(), case.labels(), min(2, case.d)
    expected = latch(z, labels, case.k, atoms_per_class=s)
    for sizes in ((1,), (5, 1, 3), (case.m,)):
        batches = split(z, labels, sizes)
        dictionary, codes = latch_batches(batches, case.k, atoms_per_class=s, budget=budget)
        assert (models(dictionary, codes) - models(*expected)).abs().max() < 1e-10
        assert (codes - expected[1]).abs().max() < 1e-12


@pytest.mark.parametrize("soft", [False, True])
def test_batches_equal_the_tensor_where_the_iteration_has_not_converged(soft: bool) -> None:
    """The same subspaces at every round, not only in the limit."""
    z = torch.nn.functional.normalize(randn(300, 50), dim=1)
    labels = torch.softmax(randn(300, 3, seed=1), dim=1) if soft else torch.arange(300) % 3
    for rounds in (0, 2, 12):
        expected = models(*latch(z, labels, 3, atoms_per_class=3, rounds=rounds))
        for budget in (MOMENT_BUDGET, 0):
            result = latch_batches(split(z, labels, (70, 11)), 3, atoms_per_class=3, rounds=rounds, budget=budget)
            assert relative(models(*result), expected) < 1e-9
        assert relative(models(*latch(z, labels, 3, atoms_per_class=3, rounds=rounds, budget=0)), expected) < 1e-9
    oracle = models(*latch(z, labels, 3, atoms_per_class=3, method="eigh"))
    assert relative(models(*latch(z, labels, 3, atoms_per_class=3, rounds=0)), oracle) > 0.1  # rounds matter here
    assert (
        relative(models(*latch_batches(split(z, labels, (70, 11)), 3, atoms_per_class=3, method="eigh")), oracle) < 1e-9
    )


@pytest.mark.parametrize(
    ("method", "budget", "rounds", "passes"),
    [
        ("subspace", 3 * 40 * 40, 12, 1),
        ("subspace", 3 * 40 * 40 - 1, 12, 13),
        ("subspace", 0, 12, 13),
        ("subspace", 0, 3, 4),
        ("eigh", 3 * 40 * 40, 12, 1),
    ],
)
def test_number_of_passes_is_as_documented(method: Method, budget: int, rounds: int, passes: int) -> None:
    batches = Counted([(randn(8, 40, seed=i), torch.arange(8) % 3) for i in range(5)])
    latch_batches(batches, 3, atoms_per_class=2, method=method, budget=budget, rounds=rounds)
    assert batches.read == 5 * passes


def one_shot() -> Iterator[tuple[Tensor, Tensor]]:
    yield torch.eye(4), LABELS


@pytest.mark.parametrize(
    "make", [one_shot, lambda: iter([(torch.eye(4), LABELS)]), lambda: map(tuple, [(torch.eye(4), LABELS)])]
)
def test_what_can_be_read_only_once_is_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(ValueError, match="batches can be read only once"):
        latch_batches(make(), 2, atoms_per_class=1)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("budget", [MOMENT_BUDGET, 0])
def test_a_data_loader_works(budget: int, shuffle: bool) -> None:
    z, labels = randn(53, 30), torch.arange(53) % 4
    loader = DataLoader(TensorDataset(z, labels), batch_size=10, shuffle=shuffle)
    result = latch_batches(loader, 4, atoms_per_class=3, budget=budget)
    expected = latch(z, labels, 4, atoms_per_class=3)
    assert relative(models(*result), models(*expected)) < 1e-9


def test_normalize_scales_the_rows_of_batches() -> None:
    z, labels = 7 * randn(40, 12), torch.arange(40) % 3
    batches = split(z, labels, (9,))
    unit = latch(normalize_rows(z), labels, 3, atoms_per_class=2)
    assert relative(models(*latch_batches(batches, 3, atoms_per_class=2, normalize=True)), models(*unit)) < 1e-10
    plain = latch(z, labels, 3, atoms_per_class=2)
    assert relative(models(*latch_batches(batches, 3, atoms_per_class=2)), models(*plain)) < 1e-10
    assert latch(normalize_rows(z), labels, 3, atoms_per_class=12)[1].sum(0).tolist() == pytest.approx([1.0] * 3)


@pytest.mark.timeout(60)
def test_a_thousand_classes_in_a_thousand_dimensions() -> None:
    """k = 1000, d = 1024, 4 samples and 3 atoms per class: no k·d² floats, and a few seconds on one core."""
    k, d, n, s = 1000, 1024, 4, 3
    generator = seeded(0)
    z = torch.nn.functional.normalize(torch.randn(k * n, d, generator=generator), dim=1)
    labels = torch.arange(k * n) % k
    with LargestStorage() as memory:
        dictionary, codes = latch(z, labels, k, atoms_per_class=s)
    assert memory.largest >= dictionary.numel()  # it did look
    assert memory.largest <= 2 * k * d * (s + 10)
    assert memory.largest < k * d * d / 30
    # the non-zero eigenvalues of Ĉ_j are those of the n×n Gram matrix
    own = z.view(n, k, d).transpose(0, 1).double()
    expected = torch.linalg.eigvalsh(own @ own.mT / n).flip(1)
    values = codes.view(k, s, k).diagonal(dim1=0, dim2=2).T.double()
    assert int((codes != 0).sum()) == k * s
    assert (values - expected[:, :s]).abs().max() < 1e-5
    assert (values.sum(1) / expected[:, :s].sum(1)).min() > 1 - 1e-5
    for j in (0, 1, 499, 999):  # the best approximation of rank s misses the next eigenvalue only
        atoms = dictionary[:, j * s : (j + 1) * s].double()
        error = own[j].T @ own[j] / n - atoms * values[j] @ atoms.T
        assert torch.linalg.matrix_norm(error).item() == pytest.approx(expected[j, s].item(), abs=1e-4)


def test_a_thousand_classes_from_batches_need_no_moments_either() -> None:
    k, d = 1000, 1024
    z = torch.nn.functional.normalize(randn(k, d), dim=1).float()
    batches = split(z, torch.arange(k), (300, 450))
    with LargestStorage() as memory:
        dictionary, codes = latch_batches(batches, k, atoms_per_class=1, rounds=1)
    assert d * k <= memory.largest <= 2 * k * d * 11
    assert (codes.diagonal() - 1).abs().max() < 1e-5
    assert ((dictionary.T * z).sum(1).abs() - 1).abs().max() < 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_deterministic_and_without_any_generator(method: Method) -> None:
    z, labels = randn(40, 30), torch.arange(40) % 4  # the fifth class is absent: its atoms are made, not learned
    results = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        state = torch.get_rng_state()
        results.append(latch(z, labels, 5, atoms_per_class=3, method=method))
        results.append(latch_batches([(z, labels)], 5, atoms_per_class=3, method=method))
        assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(results[0][0], results[2][0])
    assert torch.equal(results[0][1], results[2][1])
    assert torch.equal(results[1][0], results[3][0])
    assert torch.equal(results[1][1], results[3][1])


@pytest.mark.parametrize("through", ["tensor", "batches"])
def test_autocast_changes_nothing_and_no_graph_is_kept(through: str) -> None:
    z, labels = torch.nn.functional.normalize(randn(60, 30), dim=1).float().requires_grad_(), torch.arange(60) % 3

    def run() -> tuple[Tensor, Tensor]:
        if through == "tensor":
            return latch(z, labels, 3, atoms_per_class=2)
        return latch_batches([(z, labels)], 3, atoms_per_class=2, budget=0)

    plain = run()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = run()
    for a, b in zip(plain, inside, strict=True):
        assert torch.equal(a, b)
        assert not a.requires_grad


@pytest.mark.parametrize(
    ("z", "labels", "options", "message"),
    [
        (torch.eye(4), LABELS, {"atoms_per_class": 0}, "atoms_per_class must be at least 1 and whole, got 0"),
        (torch.eye(4), LABELS, {"method": "svd"}, "method must be .*'svd'"),
        (torch.eye(4), LABELS, {"num_classes": 1}, r"labels .*num_classes=1.*row 2"),
        (torch.eye(4), LABELS, {"num_classes": 0}, "num_classes must be at least 1"),
        (torch.eye(4), LABELS - 1, {}, "labels .*row 0"),
        (torch.eye(4), LABELS[:3], {}, "labels has 3 entries, z has 4"),
        (torch.eye(4), LABELS.float(), {}, "labels must be integers"),
        (torch.eye(4), LABELS.tolist(), {}, "labels must be a tensor"),
        (torch.eye(4), torch.full((4, 2), 0.6), {}, "memberships must .*sum to 1"),
        (torch.eye(4), torch.full((4, 3), 1 / 3), {}, "labels has 3 membership columns"),
        (torch.ones(4), LABELS, {}, "z must be a matrix"),
        (torch.eye(4).long(), LABELS, {}, "z must be floating point"),
        (torch.eye(4)[:0], LABELS[:0], {}, "z is empty"),
        (torch.diag(torch.tensor([1.0, 1.0, torch.nan, 1.0])), LABELS, {}, "z has NaN or inf in row 2"),
        (torch.diag(torch.tensor([1.0, 1.0, 1.0, -torch.inf])), LABELS, {}, "z has NaN or inf in row 3"),
    ],
)
def test_bad_input(z: Any, labels: Any, options: dict[str, Any], message: str) -> None:
    arguments = {"num_classes": 2, "atoms_per_class": 1, **options}
    with pytest.raises(ValueError, match=message):
        latch(z, labels, **arguments)
    with pytest.raises(ValueError, match=message):
        latch_batches([(z, labels)], **arguments)


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ((torch.eye(5), torch.zeros(5, dtype=torch.int64)), "z has 5 features per row, expected 4"),
        ((torch.eye(4)[:0], LABELS[:0]), "z is empty.*skip empty batches"),
        ((torch.full((4, 4), torch.nan), LABELS), "z has NaN or inf in row 0 and 3 more"),
        ((torch.eye(4), LABELS + 1), "labels .*row 2"),
    ],
)
@pytest.mark.parametrize("budget", [MOMENT_BUDGET, 0])
def test_bad_later_batch(second: tuple[Tensor, Tensor], message: str, budget: int) -> None:
    with pytest.raises(ValueError, match=message):
        latch_batches([(torch.eye(4), LABELS), second], 2, atoms_per_class=1, budget=budget)


def test_no_batches_at_all() -> None:
    with pytest.raises(ValueError, match="batches is empty"):
        latch_batches([], 2, atoms_per_class=1)


@pytest.mark.parametrize("method", METHODS)
def test_without_validation_bad_values_set_the_flag(method: Method) -> None:
    z, labels = randn(12, 20), torch.arange(12) % 3
    expected = latch(z, labels, 3, atoms_per_class=2, method=method)

    def run(features: Tensor, classes: Tensor) -> tuple[tuple[Tensor, Tensor], bool]:
        fault = torch.zeros((), dtype=torch.bool)
        result = latch(features, classes, 3, atoms_per_class=2, method=method, validate=False, fault=fault)
        return result, bool(fault)

    result, fault = run(z, labels)
    assert not fault
    assert torch.equal(result[0], expected[0])
    assert torch.equal(result[1], expected[1])
    for wrong in (labels + 1, labels - 1):
        result, fault = run(z, wrong)
        assert fault
        assert result[0].isfinite().all()
        assert result[1].isfinite().all()


def test_batches_are_summed_in_full_precision_whatever_the_caller_has_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[str] = []
    add = _eigen.add_moments

    def watched(*arguments: Any) -> None:
        seen.append(torch.get_float32_matmul_precision())
        add(*arguments)

    monkeypatch.setattr(_eigen, "add_moments", watched)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        latch_batches([(torch.eye(4), LABELS)] * 2, 2, atoms_per_class=1)
        latch(torch.eye(4), LABELS, 2, atoms_per_class=1)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    assert seen == ["highest"] * 3
