"""Variational lower bounds on log p(x) of a sparse GP whose inputs are uncertain.

Titsias & Lawrence, 2010 (collapsed); Hensman, Fusi & Lawrence, 2013, and Bui & Turner, 2015 (mini-batches). The D
outputs are those of `src.gp.sparse`: u = L v with K_MM = L L^T. The inputs enter through their psi statistics.

Products over D outputs run in the precision of x, on factors that are whitened already, where rounding is not
amplified; everything else runs in float64. Results come back in the precision of x.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from src.gp.evidence import LOG_2PI
from src.gp.kernels import covariance
from src.gp.linalg import add_diagonal, cholesky, solve_lower, solve_upper
from src.gp.psi import ClosedForm, Psi
from src.gp.sparse import Whitened, prior_factor, q_from_factor


class Bound(NamedTuple):
    """A lower bound on log p(x), in nats: the first field minus the second, and minus the KL divergence of q(z)."""

    likelihood: Tensor  # E[log p(x | f)]
    kl: Tensor  # KL[q(v) || p(v)]
    jitter: float


class Projected(NamedTuple):
    """The psi statistics in the whitened basis, where p(v) = N(0, I)."""

    psi1: Tensor  # [M, B], L^-1 psi1^T
    psi2: Tensor  # [M, M], L^-1 psi2 L^-T
    unexplained: Tensor  # sum_n E[var(f(z_n) | u)] = psi0 - tr(K_MM^-1 psi2)
    jitter: float

    def optimal_precision(self, noise: Tensor) -> Tensor:
        """A = I + L^-1 psi2 L^-T / noise [M, M], the precision of the optimal q(v)."""
        return add_diagonal(self.psi2 / noise, 1.0)

    def times(self, x: Tensor) -> Tensor:
        """G = L^-1 psi1^T x [M, D] in float64; the product over the B points runs in the precision of x."""
        return (self.psi1.to(x) @ x).double()


def project(psi: Psi | ClosedForm, k_mm: Tensor) -> Projected:
    """The statistics in the whitened basis, by the one Cholesky of K_MM. O(M^3 + B M^2)."""
    chol, jitter = cholesky(k_mm.double())
    psi2 = solve_lower(chol, solve_lower(chol, psi.psi2.double()).mT)
    return Projected(solve_lower(chol, psi.psi1.double().mT), psi2, psi.psi0.double() - psi2.trace(), jitter)


def collapsed_bound(x: Tensor, psi: Psi | ClosedForm, k_mm: Tensor, noise: Tensor) -> tuple[Tensor, float]:
    """The bound on log p(x) at the optimal q(u), in nats, and the jitter. O(M^3 + N M^2 + M^2 D + N M D).

    Titsias & Lawrence, Section 3, before the KL divergence of q(z) is subtracted; s2 is the noise, G = L^-1 psi1^T x
    and A = I + L^-1 psi2 L^-T / s2:

        -N D / 2 log(2 pi s2) - D / 2 log|A| - (|x|^2 - tr(A^-1 G G^T) / s2 + D (psi0 - tr(K_MM^-1 psi2))) / (2 s2)

    With psi from samples its mean is a bound too, above this one and below E_q[log p(x | z)]: each draw has the q(u)
    that fits it best.
    """
    noise, projected = noise.double().squeeze(), project(psi, k_mm)
    chol, jitter = cholesky(projected.optimal_precision(noise))
    explained = solve_lower(chol, projected.times(x)).square().sum() / noise
    error = x.square().sum(dtype=torch.float64) - explained + x.shape[-1] * projected.unexplained
    log_det = 2 * x.shape[-1] * chol.diagonal().log().sum()
    bound = -0.5 * (x.numel() * (noise.log() + LOG_2PI) + log_det + error / noise)
    return bound.to(x), max(jitter, projected.jitter)


def optimal_q_of_bound(x: Tensor, psi: Psi | ClosedForm, k_mm: Tensor, noise: Tensor) -> Whitened:
    """The q(v) with the highest bound on all N points, N(A^-1 G / s2, A^-1): Bui & Turner, Eq. 7. Same cost.

    Its C is lower triangular: the factor of the values in reverse order is upper triangular.
    """
    noise, projected = noise.double().squeeze(), project(psi, k_mm)
    chol, _ = cholesky(projected.optimal_precision(noise).flip(-2, -1))
    reverse = q_from_factor(chol.unsqueeze(0), (projected.times(x) / noise).flip(-2))
    return Whitened(reverse.mean.flip(-2).to(x), reverse.scale.flip(-2, -1).to(x))


def uncollapsed_bound(
    x: Tensor, psi: Psi | ClosedForm, k_mm: Tensor, noise: Tensor, q: Whitened, num_data: int
) -> Bound:
    """An unbiased estimate of the bound at any q(v) from a batch x [B, D]. O(M^3 + B M^2 + M^2 D + B M D).

    Hensman et al.; Bui & Turner, Eq. 6: (N / B) sum_{n in batch} E[log p(x_n | f)] - KL[q(v) || p(v)], with

        E|x - f|^2 = |x|^2 - 2 tr(m^T G) + D psi0 + tr(W psi2),   W = L^-T (m m^T + sum_d (C_d C_d^T - I)) L^-1

    and G = L^-1 psi1^T x. It is linear in psi, so samples keep it unbiased.
    """
    chol, jitter = cholesky(k_mm.double())
    noise, num_outputs = noise.double().squeeze(), x.shape[-1]
    projected_data = (solve_lower(chol, psi.psi1.double().mT).to(x) @ x).double()  # [M, D], G
    weight = whiten_twice(chol, excess_moment(q))
    fit = x.square().sum(dtype=torch.float64) - 2 * (q.mean * projected_data).sum()
    error = fit + num_outputs * psi.psi0.double() + psi.energy(weight).double()
    likelihood = -0.5 * (x.numel() * (noise.log() + LOG_2PI) + error / noise)
    return Bound((num_data / len(x) * likelihood).to(x), q.kl(), jitter)


def incomplete_bound(
    x: Tensor, mask: Tensor, z: Tensor, inducing: Tensor, kernel: Kernel, noise: Tensor, q: Whitened, num_data: int
) -> Bound:
    """The same estimate over the values of x [B, D] that the mask calls observed, from samples z [S, B, Q] of q(z).

    (N / B) sum_{n, d observed} E[log p(x_nd | f)] - KL[q(v) || p(v)], with f(z_n) ~ N(mean, variance) given a sample.
    O(M^3 + S B M (M + D)): samples keep it as cheap as complete data, where closed forms need a psi2 per output.
    """
    chol, jitter = prior_factor(kernel, inducing)
    noise = noise.squeeze()
    error = torch.zeros((), dtype=torch.float64, device=x.device)
    for points in z.double():
        projection = solve_lower(chol, covariance(kernel, inducing.double(), points))
        mean, variance = q.marginals(projection, kernel(points, diag=True), mean_dtype=x.dtype)  # [B, D], [B, 1 or D]
        error = error + torch.where(mask, (x - mean).square() + variance, 0.0).sum(dtype=torch.float64) / len(z)
    likelihood = -0.5 * (mask.sum() * (noise.double().log() + LOG_2PI) + error / noise)
    return Bound((num_data / len(x) * likelihood).to(x), q.kl(), jitter)


def bound_by_samples(
    expected: Callable[[Tensor, Tensor], Tensor],
    z: Tensor,
    inducing: Tensor,
    kernel: Kernel,
    q: Whitened,
    num_data: int,
) -> Bound:
    """The same estimate for any likelihood, from samples z [S, B, Q] of q(z). O(M^3 + S B M (M + D)).

    (N / B) sum_n E[log p(x_n | f)] - KL[q(v) || p(v)], where `expected` gives E[log p(x | f)], summed over the batch,
    if f ~ N(mean [B, D], variance [B, 1 or D]).
    """
    chol, jitter = prior_factor(kernel, inducing)
    fits = []
    for points in z.double():
        projection = solve_lower(chol, covariance(kernel, inducing.double(), points))
        fits.append(expected(*q.marginals(projection, kernel(points, diag=True), mean_dtype=q.mean.dtype)))
    return Bound(num_data / z.shape[1] * torch.stack(fits).mean(), q.kl(), jitter)


def excess_moment(q: Whitened) -> Tensor:
    """sum_d E[v_d v_d^T] [M, M] beyond that of the prior; D-sized products in the precision of the mean."""
    num_scales = q.scale.shape[-3]
    factors = q.scale.double().mT.flatten(-3, -2)  # [M or D M, M], all C^T in one column
    spread = add_diagonal(factors.mT @ factors, -num_scales)
    return (q.mean @ q.mean.mT).double() + q.mean.shape[-1] // num_scales * spread


def whiten_twice(chol: Tensor, symmetric: Tensor) -> Tensor:
    """L^-T S L^-1."""
    return torch.linalg.solve_triangular(chol, solve_upper(chol.mT, symmetric), upper=False, left=False)
