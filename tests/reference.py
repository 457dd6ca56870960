"""Slow, literal float64 transcription of "Efficient MCR² by Variational Forms" (Baek et al., CVPR 2022).

The oracle for the tests: class loops, d×d matrices and torch.linalg, independent of the package.
Rows are samples: z (m, d) is the paper's Zᵀ and membership (m, k) is Π.  dictionary (d, q) is Γ.  codes
(q, k) are stored per sample: A_j = n_j · codes[:, j], where n_j is the sum of column j of membership.  eps_sq
is ε²; logs are natural.  A class with n_j = 0 is skipped in every sum.  Equations are numbered as LaTeX
numbers them: 1-8 in the body, 9-19 in the appendix.
"""

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def _f64(x: Tensor) -> Tensor:
    return torch.as_tensor(x).to(torch.float64)


def _present(membership: Tensor) -> list[int]:
    """Return the classes with n_j > 0."""
    return [j for j in range(membership.shape[1]) if membership[:, j].sum().item() != 0.0]


def _class_matrix(z: Tensor, membership: Tensor, j: int) -> Tensor:
    """Z Diag(Π_j) Zᵀ, d×d."""
    return z.T @ torch.diag(membership[:, j]) @ z


def _model_matrix(dictionary: Tensor, a: Tensor, j: int) -> Tensor:
    """Γ Diag(A_j) Γᵀ, d×d, with the paper's A."""
    return dictionary @ torch.diag(a[:, j]) @ dictionary.T


def one_hot(labels: Tensor, k: int) -> Tensor:
    """Π for known labels (the footnote to Section 2.1): binary, one 1 per row."""
    labels = torch.as_tensor(labels)
    membership = torch.zeros(len(labels), k, dtype=torch.float64, device=labels.device)
    for i, label in enumerate(labels.tolist()):
        if not 0 <= label < k:
            raise ValueError(f"label {label} is outside 0..{k - 1}")
        membership[i, label] = 1.0
    return membership


def logdet(matrix: Tensor, c: float | Tensor) -> Tensor:
    """log det(I + c M), left-hand side of Eq. 2."""
    matrix = _f64(matrix)
    eye = torch.eye(matrix.shape[0], dtype=torch.float64, device=matrix.device)
    value: Tensor = torch.linalg.slogdet(eye + c * matrix).logabsdet
    return value


def spectral(x: Tensor, h: Callable[[Tensor], Tensor]) -> Tensor:
    """H(X) = Σ_i h(σ_i(X)), Theorem 1 (and the right-hand side of Eq. 2 for h(σ) = log(1 + cσ))."""
    return h(torch.linalg.svdvals(_f64(x))).sum()


def variational_spectral(left: Tensor, right: Tensor, h: Callable[[Tensor], Tensor]) -> Tensor:
    """Σ_i h(‖U_i‖ ‖V_i‖) over columns: Theorem 1's bound; Eq. 4, and Proposition 1 / Eq. 3 when U = V."""
    left, right = _f64(left), _f64(right)
    total = left.new_zeros(())
    for i in range(left.shape[1]):
        total = total + h(torch.linalg.vector_norm(left[:, i]) * torch.linalg.vector_norm(right[:, i]))
    return total


def coding_rate(z: Tensor, eps_sq: float) -> Tensor:
    """R(Z) = ½ log det(I + α Z Zᵀ), α = d / (m ε²), Eq. 1."""
    z = _f64(z)
    m, d = z.shape
    return 0.5 * logdet(z.T @ z, d / (m * eps_sq))


def compression(z: Tensor, membership: Tensor, eps_sq: float) -> Tensor:
    """R_c(Z, Π) = Σ_j γ_j/2 log det(I + α_j Z Diag(Π_j) Zᵀ), α_j = d/(n_j ε²), γ_j = n_j/m, Eq. 1."""
    z, membership = _f64(z), _f64(membership)
    m, d = z.shape
    total = z.new_zeros(())
    for j in _present(membership):
        n_j = membership[:, j].sum()
        total = total + n_j / m / 2 * logdet(_class_matrix(z, membership, j), d / (n_j * eps_sq))
    return total


def rate_reduction(z: Tensor, membership: Tensor, eps_sq: float) -> tuple[Tensor, Tensor, Tensor]:
    """(R, R_c, ΔR = R - R_c), Eq. 1."""
    expansion, compressed = coding_rate(z, eps_sq), compression(z, membership, eps_sq)
    return expansion, compressed, expansion - compressed


def carried_loss(
    z: Tensor, membership: Tensor, past: Tensor, past_membership: Tensor, eps_sq: float
) -> tuple[Tensor, Tensor]:
    """-(R(Z) - R_c([past, Z])) and the gradient that a step takes: of -R, and of R_c times rows/m.  (Not in the paper.)

    ``past`` (p, d) are the rows remembered from before, p = 0 if none are.
    """
    leaf, past = _f64(z).detach().clone().requires_grad_(), _f64(past).detach()
    together = torch.cat([_f64(past_membership), _f64(membership)])
    with torch.enable_grad():
        expansion = coding_rate(leaf, eps_sq)
        compressed = compression(torch.cat([past, leaf]), together, eps_sq)
    (by_expansion,), (by_compression,) = (torch.autograd.grad(term, leaf) for term in (expansion, compressed))
    gradient = len(together) / len(leaf) * by_compression - by_expansion
    return (compressed - expansion).detach(), gradient


def factored_objective(factors: Sequence[Tensor], membership: Tensor, eps_sq: float) -> Tensor:
    """½ log det(I + α Σ_j U⁽ʲ⁾U⁽ʲ⁾ᵀ) - Σ_j γ_j/2 Σ_i log(1 + α_j ‖U⁽ʲ⁾_i‖²), Eq. 5; factors[j] is U⁽ʲ⁾."""
    membership = _f64(membership)
    m, d = membership.shape[0], factors[0].shape[0]
    summed = torch.zeros(d, d, dtype=torch.float64, device=membership.device)
    compressed = membership.new_zeros(())
    for j in _present(membership):
        u, n_j = _f64(factors[j]), membership[:, j].sum()
        summed = summed + u @ u.T
        for i in range(u.shape[1]):
            compressed = compressed + n_j / m / 2 * torch.log(1 + d / (n_j * eps_sq) * (u[:, i] ** 2).sum())
    return 0.5 * logdet(summed, d / (m * eps_sq)) - compressed


def paper_codes(codes: Tensor, membership: Tensor) -> Tensor:
    """A of Eq. 6: A_j = n_j · codes[:, j]."""
    codes, membership = _f64(codes), _f64(membership)
    return torch.stack([membership[:, j].sum() * codes[:, j] for j in range(codes.shape[1])], dim=1)


def _expansion(dictionary: Tensor, a: Tensor, membership: Tensor, eps_sq: float) -> Tensor:
    """R^v(Γ, A), Eq. 7, with the paper's A."""
    d, m = dictionary.shape[0], membership.shape[0]
    summed = torch.zeros(d, d, dtype=torch.float64, device=dictionary.device)
    for j in _present(membership):
        summed = summed + _model_matrix(dictionary, a, j)
    return 0.5 * logdet(summed, d / (m * eps_sq))


def _compression(a: Tensor, membership: Tensor, dim: int, eps_sq: float) -> Tensor:
    """R^v_c(A), Eq. 7, with the paper's A."""
    m = membership.shape[0]
    total = a.new_zeros(())
    for j in _present(membership):
        n_j = membership[:, j].sum()
        for atom in range(a.shape[0]):
            total = total + n_j / m / 2 * torch.log(1 + dim / (n_j * eps_sq) * a[atom, j])
    return total


def _mismatch(z: Tensor, membership: Tensor, dictionary: Tensor, a: Tensor) -> Tensor:
    """M(Z, Γ, A), Eq. 7, with the paper's A."""
    m = membership.shape[0]
    total = z.new_zeros(())
    for j in _present(membership):
        gamma_j = membership[:, j].sum() / m
        difference = _class_matrix(z, membership, j) - _model_matrix(dictionary, a, j)
        total = total + (difference**2).sum() / gamma_j
    return total


def _objective(z: Tensor, membership: Tensor, dictionary: Tensor, a: Tensor, eps_sq: float, mu: float) -> Tensor:
    """Eq. 7 with the paper's A."""
    m, d = z.shape
    rate = _expansion(dictionary, a, membership, eps_sq) - _compression(a, membership, d, eps_sq)
    return rate - mu / (2 * m) * _mismatch(z, membership, dictionary, a)


def variational_expansion(dictionary: Tensor, codes: Tensor, membership: Tensor, eps_sq: float) -> Tensor:
    """R^v(Γ, A) = ½ log det(I + α Σ_j Γ Diag(A_j) Γᵀ), Eq. 7."""
    return _expansion(_f64(dictionary), paper_codes(codes, membership), _f64(membership), eps_sq)


def variational_compression(codes: Tensor, membership: Tensor, dim: int, eps_sq: float) -> Tensor:
    """R^v_c(A) = Σ_j γ_j/2 Σ_l log(1 + α_j A_lj), Eq. 7."""
    return _compression(paper_codes(codes, membership), _f64(membership), dim, eps_sq)


def mismatch(z: Tensor, membership: Tensor, dictionary: Tensor, codes: Tensor) -> Tensor:
    """M(Z, Γ, A) = Σ_j 1/γ_j ‖Z Diag(Π_j) Zᵀ - Γ Diag(A_j) Γᵀ‖_F², Eq. 7."""
    return _mismatch(_f64(z), _f64(membership), _f64(dictionary), paper_codes(codes, membership))


def objective(z: Tensor, membership: Tensor, dictionary: Tensor, codes: Tensor, eps_sq: float, mu: float) -> Tensor:
    """R^v - R^v_c - μ/(2m) M, Eq. 7."""
    a = paper_codes(codes, membership)
    return _objective(_f64(z), _f64(membership), _f64(dictionary), a, eps_sq, mu)


def mismatch_debiased(z: Tensor, membership: Tensor, dictionary: Tensor, codes: Tensor) -> Tensor:
    """M of Eq. 7 with the pairs i = i' left out of each ‖Z Diag(Π_j) Zᵀ‖_F² and the rest rescaled.

    The square is expanded as in Eq. 9; its first part, Σ_{i≠i'} Π_ij Π_i'j (z_iᵀz_i')², is multiplied by
    n_j² / (n_j² - Σ_i Π_ij²), or is 0 where that denominator vanishes.  (Not in the paper.)
    """
    z, membership, dictionary = _f64(z), _f64(membership), _f64(dictionary)
    a = paper_codes(codes, membership)
    m = z.shape[0]
    total = z.new_zeros(())
    for j in _present(membership):
        weight = membership[:, j]
        n_j = weight.sum()
        off_diagonal = n_j**2 - (weight**2).sum()
        pairs = z.new_zeros(())
        if off_diagonal.item() > 1e-12 * n_j.item() ** 2:
            for i in range(m):
                for other in range(m):
                    if i != other:
                        pairs = pairs + weight[i] * weight[other] * torch.dot(z[i], z[other]) ** 2
            pairs = pairs * n_j**2 / off_diagonal
        data, model = _class_matrix(z, membership, j), _model_matrix(dictionary, a, j)
        total = total + (pairs - 2 * (data * model).sum() + (model**2).sum()) / (n_j / m)
    return total


def appendix_penalty_dense(z: Tensor, membership: Tensor, dictionary: Tensor, codes: Tensor, mu: float) -> Tensor:
    """f(Γ, A) = μk/(2m) Σ_j ‖Z Diag(Π_j) Zᵀ - Γ Diag(A_j) Γᵀ‖_F², Eq. 9, first line (balanced classes)."""
    z, membership, dictionary = _f64(z), _f64(membership), _f64(dictionary)
    a = paper_codes(codes, membership)
    m, k = membership.shape
    total = z.new_zeros(())
    for j in range(k):
        total = total + ((_class_matrix(z, membership, j) - _model_matrix(dictionary, a, j)) ** 2).sum()
    return mu * k / (2 * m) * total


def appendix_penalty(z: Tensor, membership: Tensor, dictionary: Tensor, codes: Tensor, mu: float) -> Tensor:
    """f(Γ, A) in three inner products, Eq. 9, second line (balanced classes)."""
    z, membership, dictionary = _f64(z), _f64(membership), _f64(dictionary)
    a = paper_codes(codes, membership)
    m, k = membership.shape
    data = ((membership @ membership.T) * (z @ z.T) ** 2).sum()
    cross = ((a @ membership.T) * (dictionary.T @ z.T) ** 2).sum()
    model = ((a @ a.T) * (dictionary.T @ dictionary) ** 2).sum()
    return mu * k / (2 * m) * data - mu * k / m * cross + mu * k / (2 * m) * model


def appendix_gradients(
    z: Tensor, membership: Tensor, dictionary: Tensor, codes: Tensor, mu: float
) -> tuple[Tensor, Tensor]:
    """(∇_Γ f, ∇_A f) of Eq. 9 with respect to Γ and the paper's A, Eqs. 10 and 11 (balanced classes)."""
    z, membership, dictionary = _f64(z), _f64(membership), _f64(dictionary)
    a = paper_codes(codes, membership)
    m, k = membership.shape
    grad_dictionary = torch.zeros_like(dictionary)
    for j in range(k):
        diag = torch.diag(a[:, j])
        g_j = _class_matrix(z, membership, j) @ dictionary @ diag
        h_j = dictionary @ diag @ dictionary.T @ dictionary @ diag
        grad_dictionary = grad_dictionary - 2 * mu * k / m * (g_j - h_j)
    grad_a = mu * k / m * ((dictionary.T @ dictionary) ** 2 @ a - (dictionary.T @ z.T) ** 2 @ membership)
    return grad_dictionary, grad_a


def lipschitz_dictionary(z: Tensor, membership: Tensor, codes: Tensor, mu: float) -> Tensor:
    """L_Γ = 2μk/m Σ_j (‖Z Diag(Π_j) Zᵀ‖_F ‖A_j‖_∞ + ‖A_j‖_∞²), Eq. 17 (balanced classes)."""
    z, membership = _f64(z), _f64(membership)
    a = paper_codes(codes, membership)
    m, k = membership.shape
    total = z.new_zeros(())
    for j in range(k):
        largest = a[:, j].abs().max()
        total = total + torch.linalg.matrix_norm(_class_matrix(z, membership, j)) * largest + largest**2
    return 2 * mu * k / m * total


def lipschitz_codes(dictionary: Tensor, membership: Tensor, mu: float) -> Tensor:
    """L_A = μk/m ‖(ΓᵀΓ)^⊙2‖_F, with respect to the paper's A, Eq. 19 (balanced classes)."""
    dictionary = _f64(dictionary)
    m, k = membership.shape
    norm: Tensor = torch.linalg.matrix_norm((dictionary.T @ dictionary) ** 2)
    return mu * k / m * norm


def gradients(
    z: Tensor, membership: Tensor, dictionary: Tensor, codes: Tensor, eps_sq: float, mu: float
) -> dict[str, Tensor]:
    """Autograd gradients of Eq. 7: "z", "dictionary", "codes" (as stored), "paper_codes" (the paper's A)."""
    membership = _f64(membership).detach()
    leaf_z, leaf_dictionary, leaf_codes, leaf_a = (
        _f64(x).detach().clone().requires_grad_() for x in (z, dictionary, codes, paper_codes(codes, membership))
    )
    with torch.enable_grad():
        stored = objective(leaf_z, membership, leaf_dictionary, leaf_codes, eps_sq, mu)
        literal = _objective(leaf_z, membership, leaf_dictionary, leaf_a, eps_sq, mu)
    grad_z, grad_dictionary, grad_codes = torch.autograd.grad(stored, (leaf_z, leaf_dictionary, leaf_codes))
    (grad_a,) = torch.autograd.grad(literal, (leaf_a,))
    return {"z": grad_z, "dictionary": grad_dictionary, "codes": grad_codes, "paper_codes": grad_a}


@torch.no_grad()
def algorithm1_step(
    z: Tensor,
    membership: Tensor,
    dictionary: Tensor,
    codes: Tensor,
    eps_sq: float,
    mu: float,
    nu_dictionary: float,
    nu_codes: float,
) -> tuple[Tensor, Tensor]:
    """Algorithm 1, lines 5-10, in the paper's A with L_Γ and L_A of the appendix (balanced classes).

    Both gradients and both constants are taken at the old point.  The stored codes of an absent class stay.
    """
    z, membership, dictionary, codes = _f64(z), _f64(membership), _f64(dictionary), _f64(codes)
    a = paper_codes(codes, membership)
    grads = gradients(z, membership, dictionary, codes, eps_sq, mu)  # line 5
    l_a = lipschitz_codes(dictionary, membership, mu)  # line 6
    l_dictionary = lipschitz_dictionary(z, membership, codes, mu)
    new_dictionary = dictionary + nu_dictionary / l_dictionary * grads["dictionary"]  # line 7
    a = torch.relu(a + nu_codes / l_a * grads["paper_codes"])  # lines 8 and 9
    for atom in range(new_dictionary.shape[1]):  # line 10
        new_dictionary[:, atom] = new_dictionary[:, atom] / torch.linalg.vector_norm(new_dictionary[:, atom])
    new_codes = codes.clone()
    for j in _present(membership):
        new_codes[:, j] = a[:, j] / membership[:, j].sum()
    return new_dictionary, new_codes


@torch.no_grad()
def latching(z: Tensor, membership: Tensor, atoms_per_class: int) -> tuple[Tensor, Tensor]:
    """Algorithm 2: (Γ, codes) from the top s singular pairs of every Z Diag(Π_j) Zᵀ; codes are σ / n_j.

    An absent class gets the singular vectors of the zero matrix, and codes 0.
    """
    z, membership = _f64(z), _f64(membership)
    d, k, s = z.shape[1], membership.shape[1], atoms_per_class
    if s > d:
        raise ValueError(f"a {d}×{d} matrix has no {s} singular vectors")
    dictionary, codes = z.new_zeros(d, s * k), z.new_zeros(s * k, k)
    present = _present(membership)
    for j in range(k):
        u, sigma, _ = torch.linalg.svd(_class_matrix(z, membership, j))
        dictionary[:, j * s : (j + 1) * s] = u[:, :s]
        if j in present:
            codes[j * s : (j + 1) * s, j] = sigma[:s] / membership[:, j].sum()
    return dictionary, codes


@torch.no_grad()
def class_subspaces(z: Tensor, membership: Tensor, components: int | None = None) -> list[Tensor]:
    """V⁽ʲ⁾ of Eq. 8: top principal components (⌊d/k⌋ by default) of every Z Diag(Π_j) Zᵀ, uncentred.

    An absent class gets zeros: the subspace {0}.
    """
    z, membership = _f64(z), _f64(membership)
    d, k = z.shape[1], membership.shape[1]
    r = d // k if components is None else components
    present = _present(membership)
    bases = []
    for j in range(k):
        vectors = torch.linalg.eigh(_class_matrix(z, membership, j)).eigenvectors.flip(1)[:, :r]
        bases.append(vectors if j in present else torch.zeros_like(vectors))
    return bases


def nearest_subspace(z_test: Tensor, bases: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """(Squared residuals ‖(I - V⁽ʲ⁾V⁽ʲ⁾ᵀ) z‖² (n, k), predictions argmin_j (n,)), Eq. 8."""
    z_test = _f64(z_test)
    columns = []
    for basis in bases:
        v = _f64(basis)
        projector = torch.eye(v.shape[0], dtype=torch.float64, device=v.device) - v @ v.T
        columns.append(((z_test @ projector.T) ** 2).sum(dim=1))
    residuals = torch.stack(columns, dim=1)
    return residuals, residuals.argmin(dim=1)


def max_delta(m: int, d: int, eps_sq: float) -> float:
    """½ r log(1 + d/(ε² r)), r = min(m, d): bounds R, hence ΔR, of Eq. 1 on unit-norm features."""
    r = min(m, d)
    return 0.5 * r * math.log(1 + d / (eps_sq * r))


def balanced_max_delta(d: int, k: int, eps_sq: float) -> float:
    """ΔR of Eq. 1 for k balanced classes, each isotropic on its own d/k of d orthogonal directions."""
    return d / 2 * (math.log(1 + 1 / eps_sq) - math.log(1 + k / eps_sq) / k)


def block_objective(
    z: Tensor, labels: Tensor, atoms: Tensor, codes: Tensor, shares: Tensor, weights: Tensor, eps_sq: float, w: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """(R^v, R^v_c, D, R^v - R^v_c - w D): a class owns its atoms, atoms[j] (s, d) is Γ_jᵀ.  (Not in the paper.)

    R^v = ½ log det(I + c Σ_j π_j Γ_j Diag(Â_j) Γ_jᵀ) over all classes, c = d/ε², π = ``shares``.
    R^v_c = Σ_j ω_j/2 Σ_l log(1 + c Â_lj) and D = Σ_j ω_j ‖Ĉ_j - Γ_j Diag(Â_j) Γ_jᵀ‖² over the batch's, ω = ``weights``.
    """
    z, atoms, codes, shares, weights = _f64(z), _f64(atoms), _f64(codes), _f64(shares), _f64(weights)
    d = z.shape[1]
    c = d / eps_sq
    summed = torch.zeros(d, d, dtype=torch.float64)
    compressed, mismatched = z.new_zeros(()), z.new_zeros(())
    for j in range(len(atoms)):
        model = atoms[j].T @ torch.diag(codes[j]) @ atoms[j]
        summed = summed + shares[j] * model
        own = z[labels == j]
        if len(own):
            compressed = compressed + weights[j] / 2 * torch.log(1 + c * codes[j]).sum()
            mismatched = mismatched + weights[j] * ((own.T @ own / len(own) - model) ** 2).sum()
    expanded = 0.5 * logdet(summed, c)
    return expanded, compressed, mismatched, expanded - compressed - w * mismatched


@torch.no_grad()
def block_step(
    z: Tensor,
    labels: Tensor,
    atoms: Tensor,
    codes: Tensor,
    shares: Tensor,
    weights: Tensor,
    eps_sq: float,
    w: float,
    nu_dictionary: float,
    nu_codes: float,
) -> tuple[Tensor, Tensor]:
    """Algorithm 1, lines 5-10, of the blocks of the batch's classes.  (Not in the paper.)

    The gradient of a block is that of the objective of all classes with the shares π, times ω_j/π_j, so that its mean
    over batches is the gradient itself.  L_Γ is Eq. 17 with γ = ω.  L_j = 2w ω_j ‖G‖_F of Eq. 19, in the stored codes,
    where G is (ΓᵀΓ)^⊙2 of the batch's classes with zeros between atoms of different classes: no code uses those.
    """
    leaf_atoms, leaf_codes = (_f64(x).detach().clone().requires_grad_() for x in (atoms, codes))
    with torch.enable_grad():
        value = block_objective(z, labels, leaf_atoms, leaf_codes, shares, shares, eps_sq, w)[3]
    grad_atoms, grad_codes = torch.autograd.grad(value, (leaf_atoms, leaf_codes))
    z, new_atoms, new_codes = _f64(z), _f64(atoms).clone(), _f64(codes).clone()
    present = sorted(set(labels.tolist()))
    l_dictionary, norm = 0.0, 0.0
    for j in present:
        own, largest = z[labels == j], codes[j].abs().max().item()
        size = torch.linalg.matrix_norm(own.T @ own / len(own)).item()
        l_dictionary += 4 * w * weights[j].item() * (size * largest + largest**2)
        norm += ((atoms[j] @ atoms[j].T) ** 2).square().sum().item()
    for j in present:
        l_codes = 2 * w * weights[j] * norm**0.5
        ratio = weights[j] / shares[j]
        new_atoms[j] = new_atoms[j] + nu_dictionary / l_dictionary * ratio * grad_atoms[j]
        new_atoms[j] = new_atoms[j] / torch.linalg.vector_norm(new_atoms[j], dim=1, keepdim=True)
        new_codes[j] = torch.relu(new_codes[j] + nu_codes / l_codes * ratio * grad_codes[j])
    return new_atoms, new_codes
