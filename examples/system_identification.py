"""Recover the order of a linear system from noisy data with a rank penalty that needs no SVD (Theorem 1 of the paper).

What: a system of order r has a Hankel matrix [g_{i+j}] of rank r; g is its impulse response. Fit X = UVᵀ to the data,
    keep it close to Hankel, and add λ Σ_i log(1 + σ_i(X)/δ) in its variational form, a sum over the columns of (U, V).
    Columns that do not improve the fit enough go to zero. The number of the others is the order.
On what: random stable systems of order 3 or 4; 80 samples of the response to white noise, 47 unknown g_k, 10 % noise.
Result: it finds the order of 40 of 40 systems, in 1 s each on one core, and the error of the impulse response is a
    quarter of that of least squares. Without the penalty it does not. The singular values of the least-squares Hankel
    matrix do not show the order either: with the same threshold never, with the best one in hindsight for 29 of 40.
    λ and δ were chosen for this noise. With more noise it finds fewer: at 15 % 37 of 40, at 20 % 29, at 30 % 10.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import LBFGS

from vmcr2.functional import variational_spectral

SAMPLES, NOISE, SIDE, COLUMNS = 80, 0.1, 24, 12  # a 24 × 24 Hankel matrix from 12 columns: three times what is needed
LENGTH = 2 * SIDE - 1
ENTRY = torch.arange(SIDE)[:, None] + torch.arange(SIDE)  # g[ENTRY] is the Hankel matrix of g
PENALTY, DELTA, STRUCTURE = 1e-3, 0.03, 100.0  # λ, δ, and the weight of the distance to the nearest Hankel matrix
THRESHOLD = 0.02  # a singular value counts if it is above this fraction of the largest


class Estimate(NamedTuple):
    """The result of one way to estimate the system: its order, and the relative error of its impulse response."""

    order: int
    error: float


class Identification(NamedTuple):
    """One system, estimated in three ways; slack = max_i |‖U_i‖‖V_i‖ − σ_i(UVᵀ)|, 0 where Theorem 1 is tight."""

    true_order: int
    least_squares: Estimate
    unpenalised: Estimate
    penalised: Estimate
    slack: float


def random_system(generator: torch.Generator) -> tuple[int, Tensor]:
    """Order and unit-norm impulse response, with modes in separate frequency bands, so that all are visible."""
    order = 3 + int(torch.randint(2, (), generator=generator))
    pairs = order // 2
    time, band = torch.arange(LENGTH, dtype=torch.float64), torch.arange(2, dtype=torch.float64)[:, None]
    amplitude, radius, angle, phase = torch.rand(4, 2, 1, generator=generator, dtype=torch.float64)
    angle, phase = math.pi * (band + 0.25 + 0.5 * angle) / pairs, 2 * math.pi * phase
    angle[pairs:], phase[pairs:] = 0, 0  # an odd order has one real pole
    response = ((0.7 + 0.6 * amplitude) * (0.7 + 0.15 * radius) ** time * torch.cos(angle * time + phase)).sum(0)
    return order, response / response.norm()


def measure(response: Tensor, noise: float, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Past inputs, (samples, length), and noisy outputs of the system, at rest before it is driven by white noise."""
    drive = torch.randn(SAMPLES, generator=generator, dtype=torch.float64)
    past = torch.nn.functional.pad(drive, (LENGTH - 1, 0)).unfold(0, LENGTH, 1).flip(1)
    clean = past @ response
    return past, clean + noise * clean.std() * torch.randn(SAMPLES, generator=generator, dtype=torch.float64)


def mean_antidiagonals(matrix: Tensor) -> Tensor:
    """The impulse response of the Hankel matrix nearest to ``matrix``."""
    sums = torch.zeros(LENGTH, dtype=matrix.dtype).index_add(0, ENTRY.flatten(), matrix.flatten())
    return sums / torch.bincount(ENTRY.flatten())


def fit(past: Tensor, outputs: Tensor, start: Tensor, penalty: float) -> tuple[Tensor, Tensor]:
    """The factors (U, V) of the estimated Hankel matrix, by L-BFGS from ``start``, U above V."""
    both = start.clone().requires_grad_()
    optimizer = LBFGS([both], max_iter=500, history_size=20, tolerance_change=1e-12, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        matrix = both[:SIDE] @ both[SIDE:].T
        response = mean_antidiagonals(matrix)
        misfit = (outputs - past @ response).square().mean() / 2
        structure = (matrix - response[ENTRY]).square().mean() / 2
        # [U; V]/√2 as one factor weighs a column by (‖U_i‖² + ‖V_i‖²)/2 ≥ ‖U_i‖‖V_i‖: the same minimum, but smooth. The
        # product has a kink where one of U_i, V_i is zero and the other is not: L-BFGS, caught in it, then finds the
        # order of 20 systems of 40.
        rank = variational_spectral(both / math.sqrt(2), h=lambda weights: torch.log1p(weights / DELTA))
        loss = misfit + STRUCTURE * structure + penalty * rank
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return both.detach()[:SIDE], both.detach()[SIDE:]


def assess(matrix: Tensor, truth: Tensor) -> Estimate:
    """Count the singular values of an estimated Hankel matrix, and compare its impulse response with the true one."""
    spectrum = torch.linalg.svdvals(matrix)
    error = (mean_antidiagonals(matrix) - truth).norm() / truth.norm()
    return Estimate(int((spectrum > THRESHOLD * spectrum[0]).sum()), float(error))


def run(seed: int = 0, noise: float = NOISE) -> Identification:
    """Draw a system, measure it, and estimate it by least squares and in factors, without and with the penalty."""
    generator = torch.Generator().manual_seed(seed)
    order, truth = random_system(generator)
    past, outputs = measure(truth, noise, generator)
    start = 0.3 * torch.randn(2 * SIDE, COLUMNS, generator=generator, dtype=torch.float64)
    plain = torch.linalg.lstsq(past, outputs).solution[ENTRY]
    (free_left, free_right), (left, right) = (fit(past, outputs, start, penalty) for penalty in (0.0, PENALTY))
    free, penalised = free_left @ free_right.T, left @ right.T
    columns = (left.norm(dim=0) * right.norm(dim=0)).sort(descending=True).values
    slack = (columns - torch.linalg.svdvals(penalised)[:COLUMNS]).abs().max()
    return Identification(order, assess(plain, truth), assess(free, truth), assess(penalised, truth), float(slack))


def main() -> None:
    """Print a line per system."""
    print("             order found                        error of the impulse response")
    print("seed  order  least squares  no penalty  penalty  least squares  no penalty  penalty    slack")
    for seed in range(5):
        order, plain, free, penalised, slack = run(seed)
        orders = f"{plain.order:13}{free.order:12}{penalised.order:9}"
        errors = f"{plain.error:15.3f}{free.error:12.3f}{penalised.error:9.3f}"
        print(f"{seed:4}{order:7}  {orders}{errors}{slack:9.0e}")


if __name__ == "__main__":
    main()
