"""How many operations and bytes each implementation of an objective needs, computed from the sizes.

Matrix operations in float32, forward and backward: products by the schoolbook count, factorisations and inverses by
LAPACK's. Each reads its operands once and writes its result once. Elementwise operations and the sorting of samples by
class are not counted. Classes are taken as even, n = m/k. This is what the algorithm needs. The code may do more: on a
GPU it pads classes to one size, and inverts by products where that is faster.
"""

from __future__ import annotations

from dataclasses import dataclass

_FLOAT = 4


@dataclass(frozen=True)
class Work:
    """Operations and bytes; ``products`` is the part of the operations that is in matrix products."""

    flops: float = 0.0
    bytes: float = 0.0
    products: float = 0.0

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.bytes + other.bytes, self.products + other.products)

    def __mul__(self, times: float) -> Work:
        return Work(self.flops * times, self.bytes * times, self.products * times)


def product(rows: float, inner: float, columns: float, batch: float = 1) -> Work:
    """(rows × inner) · (inner × columns)."""
    flops = 2 * batch * rows * inner * columns
    return Work(flops, _FLOAT * batch * (rows * inner + inner * columns + rows * columns), flops)


def cholesky(n: float, batch: float = 1) -> Work:
    """n³/3."""
    return Work(batch * n**3 / 3, _FLOAT * batch * 2 * n**2)


def inverse_by_cholesky(n: float, batch: float = 1) -> Work:
    """The factor, then 2n³/3 for the inverse."""
    return cholesky(n, batch) + Work(batch * 2 * n**3 / 3, _FLOAT * batch * 2 * n**2)


def lu(n: float, batch: float = 1) -> Work:
    """2n³/3."""
    return Work(batch * 2 * n**3 / 3, _FLOAT * batch * 2 * n**2)


def inverse_by_lu(n: float, batch: float = 1) -> Work:
    """The factors, then 4n³/3 for the inverse."""
    return lu(n, batch) + Work(batch * 4 * n**3 / 3, _FLOAT * batch * 2 * n**2)


def triangular_solve(n: float, columns: float) -> Work:
    """n² for each right-hand side."""
    return Work(n**2 * columns, _FLOAT * (n**2 + 2 * n * columns))


def orthonormalise(rows: float, columns: float, batch: float) -> Work:
    """Householder's QR, with Q computed: 4rc² − 4c³/3."""
    return Work(batch * (4 * rows * columns**2 - 4 * columns**3 / 3), _FLOAT * batch * 2 * rows * columns)


def rate_work(samples: float, d: float, side: float, batch: float = 1) -> Work:
    """log det(I + αZZᵀ) on one side with its gradient in Z: Gram matrix, factor, inverse, inverse times Z."""
    other = d if side == samples else samples
    gram = product(side, other, side, batch)
    return gram + inverse_by_cholesky(side, batch) + product(side, side, other, batch)


def class_loop_work(m: float, d: float, k: float) -> Work:
    """The textbook formula: d×d LU per class and for R, and autograd, which adds two products per Gram matrix."""
    n = m / k
    of_classes = product(d, n, d, k) + product(d, d, n, k) * 2 + inverse_by_lu(d, k)
    return of_classes + product(d, m, d) + product(d, d, m) * 2 + inverse_by_lu(d)


def dense_exact_work(m: float, d: float, k: float) -> Work:
    """d×d per class and for R, gradients in closed form."""
    return rate_work(m, d, d) + rate_work(m / k, d, d, k)


def exact_work(m: float, d: float, k: float) -> Work:
    """The smaller side of every matrix."""
    return rate_work(m, d, min(m, d)) + rate_work(m / k, d, min(m / k, d), k)


def variational_work(m: float, d: float, k: float, q: float, *, with_value: bool, with_rate: bool) -> Work:
    """Algorithm 1's step on (Γ, A), then ∂/∂z at the new ones; optionally with its value, and with R(z)."""
    n = m / k
    pairs = product(n, d, n, k) + product(n, n, d, k) if n <= d else product(d, n, d, k) + product(n, d, d, k)
    rate = product(d, q, d) + cholesky(d)  # R^v
    own = product(q, d, q) + product(q, q, k)  # K = ΓᵀΓ and (K ∘ K)A
    gradients = triangular_solve(d, q) * 2 + product(q, k, q) + product(d, q, q)
    data = product(m, d, q) + product(d, m, q)
    model = product(m, d, q) + product(m, q, d)
    total = pairs + rate + own + gradients + data + model
    if with_value:
        total += rate + own
    if with_rate:
        total += rate_work(m, d, min(m, d))
    return total


def dense_variational_work(m: float, d: float, k: float, q: float) -> Work:
    """The same from k matrices d×d by autograd: Eq. 7 with gradients in (Γ, A), then again with one in z."""
    models = product(d, q, d, k)  # Γ Diag(A_j) Γᵀ
    mixture = product(d, q, d)
    moments = product(d, m / k, d, k) + product(d, d, m / k, k) * 2
    first = models * 3 + mixture * 3 + inverse_by_lu(d)
    second = models + mixture + lu(d)
    return moments + first + second + product(q, d, q)


def few_work(samples: float, d: float, k: float, width: float) -> Work:
    """Eigenpairs from the classes' Gram matrices: the matrices, 9n³ for their eigenpairs, orthonormal directions."""
    n = samples / k
    return product(n, d, n, k) + Work(9 * k * n**3) + product(d, n, n, k) + orthonormalise(d, width, k)


def moments_work(samples: float, d: float, k: float) -> Work:
    """Second moments of all classes."""
    return product(d, samples / k, d, k)


def eigenpairs_work(d: float, k: float, width: float, rounds: int, samples: float | None) -> Work:
    """Subspace iteration with ``width`` directions per class, on second moments or (``samples``) on the samples."""
    if samples is None:
        once = product(d, d, width, k)
    else:
        once = product(samples / k, d, width, k) + product(d, samples / k, width, k)
    last = once + product(width, d, width, k) + product(d, width, width, k)
    return (once + orthonormalise(d, width, k)) * rounds + last
