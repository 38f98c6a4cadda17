"""Inducing points: variational lower bounds on log p(x) of a GP whose inputs are uncertain.

Titsias & Lawrence, 2010 (collapsed); Hensman, Fusi & Lawrence, 2013, and Bui & Turner, 2015 (mini-batches). All D
outputs share the kernel, the M inducing inputs Z and one Cholesky factor L of K_MM; the inducing values are u = L v.

The M x M systems run in float64 whatever the inputs are: K_MM of a smooth kernel has eigenvalues far below the rounding
of float32, and at M of a few hundred they cost little. D-sized products run in the precision of x, on factors that are
whitened already, where rounding is not amplified; results come back in the precision of x.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from src.gp.active_set import LOG_2PI
from src.gp.kernels import covariance
from src.gp.linalg import add_diagonal, cholesky, solve_lower, solve_upper
from src.gp.psi import ClosedForm, Psi

# Of the mean of the diagonal of K_MM. A smaller one lets rounding errors of psi2, which grow by 1 / JITTER, reach the
# size of a noise of 1e-4; a larger one loosens the bounds, since it blurs what close inducing points tell apart.
JITTER = 1e-7


class Whitened(NamedTuple):
    """q(v) of the inducing values u = L v: one mean an output, one covariance C C^T for all."""

    mean: Tensor  # [M, D]
    scale: Tensor  # [M, M], C, lower triangular with a positive diagonal


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


@dataclass(frozen=True)
class InducingPoints:
    """The GP given q(v): everything that prediction needs, factorised once."""

    z: Tensor  # [M, Q]
    chol: Tensor  # [M, M], L in float64
    q: Whitened
    kernel: Kernel
    noise: Tensor
    jitter: float

    def values(self) -> tuple[Tensor, Tensor]:
        """Mean [M, D] and covariance [M, M] of q(u), u = L v."""
        scale = self.chol @ self.q.scale.double()
        mean = self.chol @ self.q.mean.double()
        return mean.to(self.q.mean), (scale @ scale.mT).to(self.q.mean)

    def predict(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [R, D] and variance [R] of x at z [R, Q]; the noise is part of the variance. O(R M (M + D))."""
        projection = solve_lower(self.chol, covariance(self.kernel, self.z.double(), z.double()))  # [M, R]
        prior = self.kernel(z.double(), diag=True) - projection.square().sum(0)
        variance = prior + (self.q.scale.double().mT @ projection).square().sum(0) + self.noise
        return projection.to(self.q.mean).mT @ self.q.mean, variance.to(self.q.mean)


def prior_covariance(kernel: Kernel, inducing: Tensor) -> Tensor:
    """K_MM [M, M] in float64, with a jitter: that of u = f(Z) + a little noise, so every bound is still a bound."""
    k_mm = covariance(kernel, inducing.double(), inducing.double())
    return add_diagonal(k_mm, JITTER * k_mm.diagonal().mean())


def condition(inducing: Tensor, kernel: Kernel, noise: Tensor, q: Whitened) -> InducingPoints:
    """The GP given q(v) at the inducing inputs [M, Q]. O(M^3)."""
    chol, jitter = cholesky(prior_covariance(kernel, inducing))
    return InducingPoints(inducing, chol, q, kernel, noise, jitter)


def project(psi: Psi | ClosedForm, k_mm: Tensor) -> Projected:
    """The statistics in the whitened basis, by the one Cholesky of K_MM. O(M^3 + B M^2)."""
    chol, jitter = cholesky(k_mm.double())
    psi2 = solve_lower(chol, solve_lower(chol, psi.psi2.double()).mT)
    return Projected(solve_lower(chol, psi.psi1.double().mT), psi2, psi.psi0.double() - psi2.trace(), jitter)


def collapsed_bound(x: Tensor, psi: Psi | ClosedForm, k_mm: Tensor, noise: Tensor) -> tuple[Tensor, float]:
    """The bound on log p(x) at the optimal q(u), in nats, and the jitter. O(M^3 + N M^2 + M^2 D + N M D).

    Titsias & Lawrence, Section 3, before the KL divergence of q(z) is taken off; s2 is the noise, P = L^-1 psi1^T x and
    A = I + L^-1 psi2 L^-T / s2:

        -N D / 2 log(2 pi s2) - D / 2 log|A| - (|x|^2 - tr(A^-1 P P^T) / s2 + D (psi0 - tr(K_MM^-1 psi2))) / (2 s2)

    With psi from samples its mean is a bound too, above this one and below E_q[log p(x | z)]: each draw has the q(u)
    that fits it best.
    """
    noise, projected = noise.double().squeeze(), project(psi, k_mm)
    chol, jitter = cholesky(precision(projected, noise))  # of A
    explained = solve_lower(chol, project_data(projected, x)).square().sum() / noise
    error = x.square().sum(dtype=torch.float64) - explained + x.shape[-1] * projected.unexplained
    log_det = 2 * x.shape[-1] * chol.diagonal().log().sum()
    bound = -0.5 * (x.numel() * (noise.log() + LOG_2PI) + log_det + error / noise)
    return bound.to(x), max(jitter, projected.jitter)


def optimal(x: Tensor, psi: Psi | ClosedForm, k_mm: Tensor, noise: Tensor) -> Whitened:
    """The q(v) with the highest bound on all N points, N(A^-1 P / s2, A^-1): Bui & Turner, Eq. 7. Same cost."""
    noise, projected = noise.double().squeeze(), project(psi, k_mm)
    reversed_chol, _ = cholesky(precision(projected, noise).flip(0, 1))
    upper = reversed_chol.flip(0, 1)  # A = U U^T, so that the factor U^-T of A^-1 is lower triangular
    scale = solve_lower(upper.mT, torch.eye(len(upper), dtype=upper.dtype, device=upper.device))
    mean = scale @ (scale.mT @ project_data(projected, x)) / noise
    return Whitened(mean.to(x), scale.to(x))


def precision(projected: Projected, noise: Tensor) -> Tensor:
    """A = I + L^-1 psi2 L^-T / noise, the precision of the optimal q(v)."""
    return add_diagonal(projected.psi2 / noise, torch.ones_like(noise))


def project_data(projected: Projected, x: Tensor) -> Tensor:
    """P = L^-1 psi1^T x [M, D] in float64, its product over the N points in the precision of x."""
    return (projected.psi1.to(x) @ x).double()


def uncollapsed_bound(
    x: Tensor, psi: Psi | ClosedForm, k_mm: Tensor, noise: Tensor, q: Whitened, num_data: int
) -> Bound:
    """An unbiased estimate of the bound at any q(v) from a batch x [B, D]. O(M^3 + B M^2 + M^2 D + B M D).

    Hensman et al.; Bui & Turner, Eq. 6: (N / B) sum_{n in batch} E[log p(x_n | f)] - KL[q(v) || p(v)], with

        E|x - f|^2 = |x|^2 - 2 tr(m^T P) + D psi0 + tr(W psi2),   W = L^-T (m m^T + D (C C^T - I)) L^-1

    and P = L^-1 psi1^T x. It is linear in psi, so samples keep it unbiased.
    """
    chol, jitter = cholesky(k_mm.double())
    noise, num_outputs = noise.double().squeeze(), x.shape[-1]
    projected_data = (solve_lower(chol, psi.psi1.double().mT).to(x) @ x).double()  # [M, D], P
    weight = whiten_twice(chol, excess_moment(q))
    fit = x.square().sum(dtype=torch.float64) - 2 * (q.mean * projected_data).sum()
    error = fit + num_outputs * psi.psi0.double() + psi.energy(weight).double()
    likelihood = -0.5 * (x.numel() * (noise.log() + LOG_2PI) + error / noise)
    return Bound((num_data / len(x) * likelihood).to(x), kl_to_prior(q), jitter)


def excess_moment(q: Whitened) -> Tensor:
    """sum_d E[v_d v_d^T] [M, M] beyond that of the prior."""
    scale = q.scale.double()
    return (q.mean @ q.mean.mT).double() + q.mean.shape[1] * add_diagonal(scale @ scale.mT, -scale.new_ones(()))


def whiten_twice(chol: Tensor, symmetric: Tensor) -> Tensor:
    """L^-T S L^-1."""
    return torch.linalg.solve_triangular(chol, solve_upper(chol.mT, symmetric), upper=False, left=False)


def kl_to_prior(q: Whitened) -> Tensor:
    """KL[q(v) || N(0, I)], summed over the D outputs."""
    size, num_outputs = q.mean.shape
    scale = q.scale.double()
    spread = scale.square().sum() - size - 2 * scale.diagonal().log().sum()
    return 0.5 * (q.mean.square().sum(dtype=torch.float64) + num_outputs * spread).to(q.mean)
