"""The counted arithmetic: by hand at small sizes, and against what torch sees itself multiply."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from vmcr2.bench import _contenders as ways, _work as work
from vmcr2.bench.latch import LatchSize, _source, _work
from vmcr2.functional import latch

M, D, K, Q = 12, 5, 3, 6  # n = 4


def test_a_product_by_hand() -> None:
    one = work.product(2, 3, 4)
    assert (one.flops, one.bytes, one.products) == (2 * 2 * 3 * 4, 4 * (6 + 12 + 8), 48)
    assert work.product(2, 3, 4, 10) == one * 10
    assert one + one == one * 2


def test_factors_and_inverses_by_hand() -> None:
    assert work.cholesky(6).flops == 72  # n³/3
    assert work.inverse_by_cholesky(6).flops == 216  # n³ with its factor
    assert work.lu(6).flops == 144  # 2n³/3
    assert work.inverse_by_lu(6).flops == 432  # 2n³ with its factors
    assert work.triangular_solve(6, 5).flops == 180  # n² per right-hand side
    assert {work.cholesky(6).products, work.lu(6).products, work.triangular_solve(6, 5).products} == {0.0}


def test_the_exact_objective_by_hand() -> None:
    # R on 5×5: 2·5·12·5 for ZᵀZ, 5³ for the inverse, 2·12·5·5 for Z times it
    expansion = 600 + 125 + 600
    # R_c on three Gram matrices 4×4: 2·4·5·4, 4³, 2·4·4·5 each
    compression = 3 * (160 + 64 + 160)
    assert work.exact_work(M, D, K).flops == pytest.approx(expansion + compression)
    # three 5×5 instead
    assert work.dense_exact_work(M, D, K).flops == pytest.approx(expansion + 3 * (200 + 125 + 200))
    # by autograd: each of ZᵀZ and the Z_jᵀZ_j costs three products, each inverse 2·5³
    assert work.class_loop_work(M, D, K).flops == pytest.approx(3 * 600 + 250 + 3 * (3 * 200 + 250))


def test_the_variational_objective_by_hand() -> None:
    pairs = 3 * (2 * 4 * 5 * 4 + 2 * 4 * 4 * 5)
    rate = 2 * 5 * 6 * 5 + 125 / 3  # ΓDiag(s)Γᵀ and its factor
    own = 2 * 6 * 5 * 6 + 2 * 6 * 6 * 3  # ΓᵀΓ, and its square times A
    step = 2 * 25 * 6 + 2 * 6 * 3 * 6 + 2 * 5 * 6 * 6  # two solves, A Diag(γ) Aᵀ, Γ times it
    features = 4 * 2 * 12 * 5 * 6  # ZΓ and its two uses, at the old and at the new Γ
    need = pairs + rate + own + step + features
    assert work.variational_work(M, D, K, Q, with_value=False, with_rate=False).flops == pytest.approx(need)
    value = work.variational_work(M, D, K, Q, with_value=True, with_rate=False).flops
    assert value == pytest.approx(need + rate + own)
    with_rate = work.variational_work(M, D, K, Q, with_value=True, with_rate=True).flops
    assert with_rate == pytest.approx(value + 600 + 125 + 600)
    models, mixture = 3 * 2 * 5 * 6 * 5, 2 * 5 * 6 * 5
    dense = 3 * 3 * 200 + 4 * models + 4 * mixture + (250 + 250 / 3) + 2 * 6 * 5 * 6
    assert work.dense_variational_work(M, D, K, Q).flops == pytest.approx(dense)


def even_batch(size: ways.Size) -> ways.Batch:
    batch = ways.Batch(size, torch.device("cpu"))
    batch.labels = torch.arange(size.m) % size.k
    batch.class_size = size.m // size.k
    return batch


def multiplied(contender: str, size: ways.Size) -> int:
    job = ways.job_for(ways.CONTENDERS[contender].make(even_batch(size)), even_batch(size).features)
    with FlopCounterMode(display=False) as counter:
        job()
    return counter.get_total_flops()


@pytest.mark.parametrize("contender", [ways.EXACT_LOOP, ways.DENSE])
@pytest.mark.parametrize("size", [ways.Size("", 240, 64, 8, 5), ways.Size("", 96, 40, 4, 3)])
def test_the_textbooks_multiply_as_counted(contender: str, size: ways.Size) -> None:
    assert multiplied(contender, size) == pytest.approx(ways.CONTENDERS[contender].work(size).products)


@pytest.mark.parametrize("contender", [name for name in ways.CONTENDERS if name not in (ways.EXACT_LOOP, ways.DENSE)])
@pytest.mark.parametrize("size", [ways.Size("", 240, 64, 8, 5), ways.Size("", 320, 16, 8, 2)])
def test_no_other_multiplies_less_than_counted(contender: str, size: ways.Size) -> None:
    """They may do more, an inverse by products for instance, and never much: the shares would mean nothing."""
    counted = ways.CONTENDERS[contender].work(size)
    assert counted.products - 1 <= multiplied(contender, size) <= 1.5 * counted.flops


@pytest.mark.parametrize(("samples", "d"), [(600, 40), (700, 200), (100, 40)], ids=["moments", "passes", "at once"])
def test_latching_multiplies_as_counted(samples: int, d: int) -> None:
    k, s = 10, 3
    labels = torch.arange(samples) % k
    z = torch.nn.functional.normalize(torch.randn(samples, d), dim=1)
    with FlopCounterMode(display=False) as counter:
        latch(z, labels, k, atoms_per_class=s, validate=False)
    counted = _work(LatchSize(samples, d, k, s), _source(z, labels, LatchSize(samples, d, k, s)))
    assert counter.get_total_flops() == pytest.approx(counted.products)
