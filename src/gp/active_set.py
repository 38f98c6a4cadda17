"""Stochastic active sets (Moreno-Muñoz, Feldager & Hauberg, 2022): estimates of log p(x | z) from a part of the data.

All D outputs share one covariance, so one Cholesky factor serves everything. Equation numbers are the paper's.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.autograd.function import once_differentiable

from src.gp.evidence import LOG_2PI, gaussian_log_density
from src.gp.geometry import JacobianMoments, whitened_moments
from src.gp.kernels import covariance, variances
from src.gp.linalg import add_diagonal, cholesky, solve_lower, solve_upper
from src.gp.patterns import PatternedActiveSet, condition_by_pattern, log_densities_by_pattern


@dataclass(frozen=True)
class ActiveSet:
    """The GP conditioned on A points: everything that prediction needs, factorised once."""

    z: Tensor  # [A, Q]
    chol: Tensor  # [A, A], of K_AA + noise I
    whitened: Tensor  # [A, D], chol^-1 x_A
    kernel: Kernel
    noise: Tensor
    jitter: float

    def predict(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [R, D] and variance [R] of p(x_n | x_A, z), Eq. 5; the noise is part of the variance."""
        projection = solve_lower(self.chol, covariance(self.kernel, self.z, z))  # [A, R]
        variance = variances(self.kernel, z) + self.noise - projection.square().sum(0)
        return projection.mT @ self.whitened, variance

    @cached_property
    def jacobian_moments(self) -> list[JacobianMoments]:
        """What the expected metric needs, made once."""
        return [whitened_moments(self.z, self.kernel, self.chol, self.whitened, self.whitened.shape[1])]


def log_active(chol: Tensor, whitened: Tensor) -> Tensor:
    """log p(x_A | z_A), Eq. 2, summed over the D outputs, from the factor of K_AA + noise I and chol^-1 x_A."""
    log_det = 2 * chol.diagonal().log().sum()
    return gaussian_log_density(log_det, whitened.square().sum(), *whitened.shape)


def log_rest(squared_error: Tensor, variance: Tensor, num_outputs: int) -> Tensor:
    """sum_n log p(x_n | x_A, z) of D outputs with squared errors |x_n - mean_n|^2 [R], Eq. 5."""
    return -0.5 * (num_outputs * (variance.log() + LOG_2PI) + squared_error / variance).sum()


class Estimate(NamedTuple):
    """An estimate of log p(x | z), the sum of its first two fields, in nats."""

    active: Tensor  # log p(x_A | z_A)
    rest: Tensor  # the weighted sum of log p(x_n | x_A, z) over the rest
    jitter: float


def condition(
    x: Tensor, z: Tensor, kernel: Kernel, noise: Tensor, mask: Tensor | None = None
) -> ActiveSet | PatternedActiveSet:
    """The GP given x [A, D], or what the mask [A, D] calls observed, at z [A, Q]. O(A^3 + A^2 D)."""
    if mask is not None and not mask.all():
        return condition_by_pattern(x, mask, z, kernel, noise)
    chol, jitter = cholesky(add_diagonal(covariance(kernel, z, z), noise))
    return ActiveSet(z, chol, solve_lower(chol, x), kernel, noise, jitter)


def log_marginal(x: Tensor, z: Tensor, kernel: Kernel, noise: Tensor) -> Tensor:
    """log p(x | z) exactly, Eq. 2, with autograd's own gradient. O(N^3)."""
    chol, _ = cholesky(add_diagonal(covariance(kernel, z, z), noise))
    return log_active(chol, solve_lower(chol, x))


def log_densities(
    x: Tensor, z: Tensor, kernel: Kernel, noise: Tensor, active_size: int, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, float]:
    """log p(x_A | z_A) and sum_{n in rest} log p(x_n | x_A, z) if the first A points are active, and the jitter.

    O(A^3 + A^2 (B + D) + A R D), value and gradient together; x is data and has none. With a mask [B, D] they are the
    densities of the values that it calls observed.
    """
    if mask is not None and not mask.all():
        return log_densities_by_pattern(x, mask, z, kernel, noise, active_size)
    x_active, x_rest = x.tensor_split([active_size])
    z_active, z_rest = z.tensor_split([active_size])
    k = covariance(kernel, z, z_active).split([active_size, len(z_rest)])
    k_aa, k_ar = (part.mT for part in k)  # by columns, as the solves take them
    with torch.no_grad():
        chol, jitter = cholesky(add_diagonal(k_aa, noise))
    active, rest = LogDensities.apply(x_active, x_rest, k_aa, k_ar, variances(kernel, z_rest), noise, chol)
    return active, rest, jitter


class LogDensities(torch.autograd.Function):
    """The two densities as functions of the covariances, with a gradient of few products, all in the whitened basis.

    With K_AA + noise I = L L^T, W = L^-1 x_A and V = L^-1 K_AR the rest has residuals E = x_R - V^T W and variances
    v = k_rr + noise - sum_a V_a^2. Write e = |E|^2, h = -1 / (2 v), g = (e / v - D) / (2 v), the derivatives of the
    rest in e and v, and Y = W E^T. Then

        d rest / d K_AR = -2 L^-T (Y h + V g)                d active / d K_AA = L^-T (W W^T - D I) L^-1 / 2
        d rest / d K_AA = L^-T V (2 Y h + V g)^T L^-1        d rest / d k_rr = g

    and the noise has what K_AA has on its diagonal and k_rr together.

    All that is D wide, W W^T and Y, is made with the value; nothing D wide is kept, and x has no gradient.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x_active: Tensor,
        x_rest: Tensor,
        k_aa: Tensor,
        k_ar: Tensor,
        k_rr: Tensor,
        noise: Tensor,
        chol: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Eq. 2 and Eq. 5."""
        whitened, projection = solve_lower(chol, x_active), solve_lower(chol, k_ar)
        error = torch.addmm(x_rest, projection.mT, whitened, alpha=-1)  # x - mean
        squared_error = torch.linalg.vector_norm(error, dim=1).square()
        variance = k_rr + noise - projection.square().sum(0)
        ctx.num_outputs, ctx.noise_shape = x_active.shape[1], noise.shape
        gram, errors = whitened @ whitened.mT, (error @ whitened.mT).mT  # the latter in the order of the projection
        ctx.save_for_backward(chol, projection, variance, squared_error, gram, errors)
        return log_active(chol, whitened), log_rest(squared_error, variance, ctx.num_outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_active: Tensor, grad_rest: Tensor) -> tuple[Tensor | None, ...]:
        """O(A^3 + A^2 R)."""
        chol, projection, variance, squared_error, whitened_gram, whitened_errors = ctx.saved_tensors
        by_error = -0.5 * grad_rest / variance
        by_variance = -by_error * (squared_error / variance - ctx.num_outputs)
        through_mean, through_variance = whitened_errors * by_error, projection * by_variance
        inner = add_diagonal(whitened_gram, -ctx.num_outputs) * (0.5 * grad_active)
        inner.addmm_(projection, torch.add(through_variance, through_mean, alpha=2).mT)
        by_k_ar = solve_upper(chol.mT, through_mean.add_(through_variance).mul_(-2))
        by_k_aa = solve_upper(chol.mT, torch.linalg.solve_triangular(chol, inner, upper=False, left=False))
        by_noise = (by_k_aa.trace() + by_variance.sum()).expand(ctx.noise_shape)
        return None, None, by_k_aa, by_k_ar, by_variance, by_noise, None


def fixed_size(
    x: Tensor, z: Tensor, kernel: Kernel, noise: Tensor, active_size: int, num_data: int, mask: Tensor | None = None
) -> Estimate:
    """Eq. 6 from a batch in random order whose first A points are active: O(A^3 + A^2 (B + D) + A B D).

    log p(x_A | z_A) + (N - A) / (B - A) sum_{n in rest} log p(x_n | x_A, z)
    """
    active, rest, jitter = log_densities(x, z, kernel, noise, active_size, mask)
    weight = (num_data - active_size) / (len(x) - active_size)
    return Estimate(active, weight * rest, jitter)


def random_size(
    x: Tensor, z: Tensor, kernel: Kernel, noise: Tensor, rest_size: int, mask: Tensor | None = None
) -> Estimate:
    """The unbiased estimate that follows from Eq. 4: all N points in random order, r = `rest_size` uniform on 1..N.

    N / r sum_{n in rest} log p(x_n | x_A, z), where A is the other N - r points. Its mean over r and the order is
    log p(x | z). Costs O(A^3) with A up to N - 1. (Eq. 6 with a random size is not unbiased: it takes the rest to be
    conditionally independent.)
    """
    _, rest, jitter = log_densities(x, z, kernel, noise, len(x) - rest_size, mask)
    return Estimate(torch.zeros_like(rest), len(x) / rest_size * rest, jitter)
