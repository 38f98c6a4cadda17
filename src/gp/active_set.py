"""Stochastic active sets (Moreno-Muñoz, Feldager & Hauberg, 2022): estimates of log p(x | z) from a part of the data.

All D outputs share one covariance, so one Cholesky factor serves everything. Equation numbers are the paper's.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor

from src.gp.linalg import add_diagonal, cholesky, solve_lower

LOG_2PI = math.log(2 * math.pi)


@dataclass(frozen=True)
class ActiveSet:
    """The GP conditioned on A points: everything that prediction needs, factorised once."""

    z: Tensor  # [A, Q]
    chol: Tensor  # [A, A], of K_AA + noise I
    whitened: Tensor  # [A, D], chol^-1 x_A
    kernel: Kernel
    noise: Tensor
    jitter: float

    def log_marginal(self) -> Tensor:
        """log p(x_A | z_A), Eq. 2, summed over the D outputs."""
        num_active, num_outputs = self.whitened.shape
        log_det = 2 * self.chol.diagonal().log().sum()
        return -0.5 * (num_outputs * log_det + self.whitened.square().sum() + num_active * num_outputs * LOG_2PI)

    def predict(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [R, D] and variance [R] of p(x_n | x_A, z), Eq. 5; the noise is part of the variance."""
        projection = solve_lower(self.chol, covariance(self.kernel, self.z, z))  # [A, R]
        variance = self.kernel(z, diag=True) + self.noise - projection.square().sum(0)
        return projection.mT @ self.whitened, variance

    def log_predictive(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x_n | x_A, z) of each point [R], summed over the D outputs."""
        mean, variance = self.predict(z)
        squared_error = (x - mean).square().sum(-1)
        return -0.5 * (x.shape[-1] * (variance.log() + LOG_2PI) + squared_error / variance)


class Estimate(NamedTuple):
    """An estimate of log p(x | z), the sum of its first two fields, in nats."""

    active: Tensor  # log p(x_A | z_A)
    rest: Tensor  # the weighted sum of log p(x_n | x_A, z) over the rest
    jitter: float


def covariance(kernel: Kernel, z1: Tensor, z2: Tensor) -> Tensor:
    """The dense kernel matrix between two sets of points."""
    return kernel(z1, z2).to_dense()


def condition(x: Tensor, z: Tensor, kernel: Kernel, noise: Tensor) -> ActiveSet:
    """The GP given x [A, D] at z [A, Q]. O(A^3 + A^2 D)."""
    chol, jitter = cholesky(add_diagonal(covariance(kernel, z, z), noise))
    return ActiveSet(z, chol, solve_lower(chol, x), kernel, noise, jitter)


def log_marginal(x: Tensor, z: Tensor, kernel: Kernel, noise: Tensor) -> Tensor:
    """log p(x | z) exactly, Eq. 2. O(N^3)."""
    return condition(x, z, kernel, noise).log_marginal()


def fixed_size(x: Tensor, z: Tensor, kernel: Kernel, noise: Tensor, active_size: int, num_data: int) -> Estimate:
    """Eq. 6 from a batch in random order whose first A points are active: O(A^3 + A^2 (B + D) + A B D).

    log p(x_A | z_A) + (N - A) / (B - A) sum_{n in rest} log p(x_n | x_A, z)
    """
    x_active, x_rest = x.tensor_split([active_size])
    z_active, z_rest = z.tensor_split([active_size])
    given = condition(x_active, z_active, kernel, noise)
    weight = (num_data - active_size) / len(x_rest)
    return Estimate(given.log_marginal(), weight * given.log_predictive(x_rest, z_rest).sum(), given.jitter)


def random_size(x: Tensor, z: Tensor, kernel: Kernel, noise: Tensor, rest_size: int) -> Estimate:
    """The unbiased estimate that follows from Eq. 4: all N points in random order, r = `rest_size` uniform on 1..N.

    N / r sum_{n in rest} log p(x_n | x_A, z), where A is the other N - r points. Its mean over r and the order is
    log p(x | z). Costs O(A^3) with A up to N - 1. (Eq. 6 with a random size is not unbiased: it takes the rest to be
    conditionally independent.)
    """
    x_active, x_rest = x.tensor_split([len(x) - rest_size])
    z_active, z_rest = z.tensor_split([len(x) - rest_size])
    given = condition(x_active, z_active, kernel, noise)
    rest = len(x) / rest_size * given.log_predictive(x_rest, z_rest).sum()
    return Estimate(torch.zeros_like(rest), rest, given.jitter)
