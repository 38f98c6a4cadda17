"""GPs with a covariance of low rank plus noise: K = V V^T + alpha I, with V [N, H] and H far below N.

Casale, Dalca, Saglietti, Listgarten & Fusi, "Gaussian Process Prior Variational Autoencoders", NeurIPS 2018; the low
rank of its kernel is Appendix B.3 of Jazbec et al., "Scalable Gaussian Process Variational Autoencoders", AISTATS 2021.

P functions share K; q(z) is independent normals with means and variances [N, P]. No matrix is N x N: with the lower
Cholesky factor C of A = I + V^T V / alpha and U = C^-1 V^T / sqrt(alpha),

    K^-1 = (I - U^T U) / alpha          (Woodbury)
    log |K| = N log alpha + log |A|     (determinant lemma)

Everything runs in float64; results come back in the precision of the means.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from src.gp.linalg import solve_lower, well_conditioned_cholesky


def expected_log_prior(mean: Tensor, variance: Tensor, v: Tensor, noise: Tensor) -> Tensor:
    """sum_p E_q[log N(z_p | 0, K)] = sum_p log N(mean_p | 0, K) - sum_np variance_np [K^-1]_nn / 2. O(N H^2)."""
    num_points, num_functions = mean.shape
    mu, v, alpha = mean.double(), v.double(), noise.double()
    chol = well_conditioned_cholesky(gram(v, alpha))
    u = solve_lower(chol, v.mT) / alpha.sqrt()  # [H, N]
    squares = mu.square().sum() - (u @ mu).square().sum()
    spread = (variance.double().sum(1) * (1 - u.square().sum(0))).sum()
    log_det = num_points * (2 * torch.pi * alpha).log() + 2 * chol.diagonal().log().sum()
    return (-0.5 * ((squares + spread) / alpha + num_functions * log_det)).squeeze().to(mean)


def gram(v: Tensor, alpha: Tensor) -> Tensor:
    """A = I + V^T V / alpha [H, H]."""
    return torch.eye(v.shape[1], dtype=v.dtype, device=v.device) + v.mT @ v / alpha


class Taylor(NamedTuple):
    """The first-order expansion of `expected_log_prior` in all it depends on: one row per point, and the noise.

    The coefficients are constants, so that the gradient of the expansion is that of the exact term where it was made.
    """

    constant: Tensor
    mean: Tensor  # [N, P]
    variance: Tensor  # [N, P]
    v: Tensor  # [N, H]
    noise: Tensor  # [1]

    def at(self, rows: Tensor, mean: Tensor, variance: Tensor, v: Tensor, noise: Tensor) -> Tensor:
        """What some of the points contribute: the contributions of all points add up. O(B H).

        The constant and the noise belong to all points, so that each batch has its part of them.
        """
        shared = self.constant + (self.noise * noise).sum()
        own = ((self.mean, mean), (self.variance, variance), (self.v, v))
        terms = [(slope[rows] * now).sum() for slope, now in own]
        return len(rows) / len(self.mean) * shared + torch.stack(terms).sum()


def expand(mean: Tensor, variance: Tensor, v: Tensor, noise: Tensor) -> Taylor:
    """The expansion around given values. O(N H^2)."""
    around = [values.detach().requires_grad_() for values in (mean, variance, v, noise)]
    with torch.enable_grad():
        value = expected_log_prior(*around)
        slopes = torch.autograd.grad(value, around)
    reached = [(slope * values).sum() for slope, values in zip(slopes, around, strict=True)]
    return Taylor((value - torch.stack(reached).sum()).detach(), *slopes)


class Weights(NamedTuple):
    """q(w_p) = N(mean_p, C_p C_p^T) of the weights in f_p = V w_p, w_p ~ N(0, I), given q(z)."""

    mean: Tensor  # [H, P]
    scale: Tensor  # [P, H, H], C

    def marginals(self, v: Tensor, unexplained: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances [X, P] of f at rows v [X, H], with the prior variance [X] that they leave out."""
        wide = v.double()
        explained = (self.scale.double().mT @ wide.mT).square().sum(-2)  # [P, X]
        return (wide @ self.mean.double()).to(self.mean), (unexplained + explained).mT.to(self.mean)


class Moments(NamedTuple):
    """What q(z) of some points says about the weights; those of chunks add up."""

    gram: Tensor  # [H, H], V^T V
    shift: Tensor  # [H, P], V^T mean
    spread: Tensor  # [P, H, H], V^T diag(variance_p) V


def moments(mean: Tensor, variance: Tensor, v: Tensor) -> Moments:
    """The moments of points with q(z) = N(mean, variance) and rows v. O(P N H^2)."""
    mean, variance, v = (values.double() for values in (mean, variance, v))
    return Moments(v.mT @ v, v.mT @ mean, v.mT @ (variance.mT.unsqueeze(-1) * v))


def weights_given(data: Moments, noise: Tensor) -> Weights:
    """E_q[p(w | z)], as a normal with its mean and covariance. O(P H^3).

    Given z the weights are N(M V^T z, alpha M) with M = (alpha I + V^T V)^-1; z itself varies with q(z).
    """
    alpha = noise.double()
    identity = torch.eye(len(data.gram), dtype=data.gram.dtype, device=data.gram.device)
    inverse = torch.cholesky_inverse(well_conditioned_cholesky(identity + data.gram / alpha)) / alpha  # M
    covariance = alpha * inverse + inverse @ data.spread @ inverse
    return Weights(inverse @ data.shift, torch.linalg.cholesky(covariance))
