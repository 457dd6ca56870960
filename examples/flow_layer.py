"""The log-determinant of a normalising-flow layer W = I + UUᵀ, and a flow fitted with it (Proposition 1 of the paper).

What: Σ_i log(1 + ‖U_i‖²) equals log det W if the columns of U are orthogonal, and is larger if not. It costs O(dn), not
    O(d³). So the negative log-likelihood of the flow x = Wy, y ~ N(0, I), is exact for orthogonal columns, and an upper
    bound for free ones. Minimised over free columns, the bound becomes exact by itself.
On what: 4000 samples of a Gaussian in 16 dimensions with covariance identity plus rank 3; float64.
Result: equal to torch.logdet to 1e-12. Both flows, with columns from a QR factorisation and with free ones, reach the
    best likelihood of the samples to 1e-8 nats (the true density is 0.006 worse: it was not fitted to them).
    At d = 512, n = 16, value and gradient are about 50 times faster than by the d × d matrix on one x86 core, but only
    1.7 times faster than by the n × n one, log det(I + UᵀU), which is exact for any columns.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.optim import LBFGS

from vmcr2 import variational_logdet

DIM, RANK, SAMPLES = 16, 3, 4000


class Flow(NamedTuple):
    """Differences of log-determinants, and negative log-likelihoods per sample, in nats."""

    error: float  # |variational − exact| for orthogonal columns
    excess: float  # variational − exact for other columns, never negative
    optimum: float  # the best W of this form, in closed form
    truth: float  # the density that the samples came from
    orthogonal: float  # fitted, columns kept orthogonal
    free: float  # fitted, any columns


def exact_logdet(factors: Tensor) -> Tensor:
    """Log det(I + UUᵀ) by the d × d matrix; by the n × n one if given Uᵀ."""
    return torch.logdet(torch.eye(len(factors), dtype=factors.dtype) + factors @ factors.T)


def orthogonalise(factors: Tensor) -> Tensor:
    """Orthogonal columns as long as those of ``factors``, by its QR factorisation."""
    columns: Tensor = torch.linalg.qr(factors).Q * factors.norm(dim=0)
    return columns


def negative_log_likelihood(factors: Tensor, x: Tensor) -> Tensor:
    """Mean of ‖W⁻¹x‖²/2 + (d/2) log 2π + log det W over the rows of x; W⁻¹ = I − U(I + UᵀU)⁻¹Uᵀ."""
    gram = torch.eye(factors.shape[1], dtype=factors.dtype) + factors.T @ factors
    y: Tensor = x - torch.linalg.solve(gram, factors.T @ x.T).T @ factors.T
    return y.square().sum(1).mean() / 2 + x.shape[1] / 2 * math.log(2 * math.pi) + variational_logdet(factors)


def fit(x: Tensor, start: Tensor, columns: Callable[[Tensor], Tensor]) -> float:
    """The negative log-likelihood that U = columns(parameters) reaches by L-BFGS from ``start``."""
    parameters = start.clone().requires_grad_()
    optimizer = LBFGS([parameters], max_iter=300, tolerance_change=1e-14, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = negative_log_likelihood(columns(parameters), x)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
    return float(negative_log_likelihood(columns(parameters.detach()), x))


def best_likelihood(x: Tensor) -> float:
    """The smallest negative log-likelihood: W² has the n largest eigenvalues of the covariance, if above 1."""
    spectrum = torch.linalg.eigvalsh(x.T @ x / len(x)).flip(0)
    taken = (torch.arange(len(spectrum)) < RANK) & (spectrum > 1)
    return float(torch.where(taken, 1 + spectrum.log(), spectrum).sum() + len(spectrum) * math.log(2 * math.pi)) / 2


def run(seed: int = 0) -> Flow:
    """Compare the log-determinants, draw samples of a flow, and fit another to them in two ways."""
    generator = torch.Generator().manual_seed(seed)
    free, start, truth = torch.randn(3, DIM, RANK, generator=generator, dtype=torch.float64) / 2
    orthogonal, truth = orthogonalise(free), orthogonalise(truth)
    y = torch.randn(SAMPLES, DIM, generator=generator, dtype=torch.float64)
    x = y + y @ truth @ truth.T
    return Flow(
        error=float((variational_logdet(orthogonal) - exact_logdet(orthogonal)).abs()),
        excess=float(variational_logdet(free) - exact_logdet(free)),
        optimum=best_likelihood(x),
        truth=float(negative_log_likelihood(truth, x)),
        orthogonal=fit(x, start, orthogonalise),
        free=fit(x, start, lambda parameters: parameters),
    )


def milliseconds(function: Callable[[Tensor], Tensor], factors: Tensor) -> float:
    """The shortest of twenty times of a value and its gradient."""
    times = []
    for _ in range(20):
        start = time.perf_counter()
        torch.autograd.grad(function(factors), factors)
        times.append(1e3 * (time.perf_counter() - start))
    return min(times)


def main() -> None:
    """Print the log-determinants, the fits and the times."""
    flow = run()
    print(f"variational - exact log det   orthogonal columns {flow.error:.0e}   other columns {flow.excess:+.3f}")
    print(f"negative log-likelihood       optimum {flow.optimum:.6f}   true density {flow.truth:.6f}")
    print(f"  fit, orthogonal columns     {flow.orthogonal:.6f}   gap {flow.orthogonal - flow.optimum:.0e}")
    print(f"  fit, free columns           {flow.free:.6f}   gap {flow.free - flow.optimum:.0e}")
    factors = orthogonalise(torch.randn(512, 16, dtype=torch.float64)).requires_grad_()
    ours, large = milliseconds(variational_logdet, factors), milliseconds(exact_logdet, factors)
    small = milliseconds(lambda U: exact_logdet(U.T), factors)
    print(f"value and gradient, 512 x 16  variational {ours:.2f} ms   d x d {large:.2f} ms   n x n {small:.2f} ms")
    print(f"  ratio to variational        d x d {large / ours:.0f}   n x n {small / ours:.1f}")


if __name__ == "__main__":
    main()
