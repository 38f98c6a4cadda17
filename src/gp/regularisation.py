"""How far inducing inputs are from the points that they stand for: the regularisers of sparse GPs.

Meng, Lee, Soper & Ray, "Regularized Sparse Gaussian Processes". Equation numbers are the paper's. Everything runs in
float64, since inducing inputs that collapse have covariances that float32 cannot invert.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from src.gp.linalg import add_diagonal, cholesky, solve_lower

FLOOR = 1e-5  # added to variances, so that points without spread in a dimension have a finite divergence


class Moments(NamedTuple):
    """The Gaussian that fits points best."""

    mean: Tensor  # [Q]
    covariance: Tensor  # [Q, Q]


def moments(points: Tensor, known: Tensor | None = None) -> Moments:
    """The maximum-likelihood Gaussian of points [B, Q], which are all points or a random batch of `known` [N, Q].

    With `known`, values are those of all N points and gradients reach the batch, whose points count N / B times: the
    mean over batches of value and gradient is that of all points. O(N Q^2).
    """
    points = points.double()
    known = points.detach() if known is None else known.detach().double()
    centre = known.mean(0)
    around, fixed = points - centre, points.detach() - centre
    shift = (around - fixed).mean(0)  # 0, with a gradient
    scatter = (known - centre).mT @ (known - centre) / len(known)
    change = (around.mT @ around - fixed.mT @ fixed) / len(points)  # 0, with a gradient
    return Moments(centre + shift, add_diagonal(scatter + change - torch.outer(shift, shift), FLOOR))


def divergence(q: Moments, p: Moments) -> Tensor:
    """KL[q || p], Eq. 8: (log|S_p| - log|S_q| - Q + tr(S_p^-1 S_q) + |L_p^-1 (m_p - m_q)|^2) / 2. O(Q^3)."""
    chol_q, chol_p = cholesky(q.covariance)[0], cholesky(p.covariance)[0]
    log_ratio = 2 * (chol_p.diagonal().log() - chol_q.diagonal().log()).sum()
    spread = solve_lower(chol_p, chol_q).square().sum()
    distance = solve_lower(chol_p, (p.mean - q.mean).unsqueeze(1)).square().sum()
    return 0.5 * (log_ratio - len(q.mean) + spread + distance)


def latent_divergence(inducing: Tensor, means: Tensor, known: Tensor | None = None) -> Tensor:
    """R = KL[q_Z || q_X] between inducing inputs [M, Q] and latent means [B, Q], Eq. 8."""
    return divergence(moments(inducing), moments(means, known)).to(means)


def distance_to_nearest(x: Tensor, inducing: Tensor) -> Tensor:
    """D = sum_n min_m |x_n - z_m| between inputs [B, D] and inducing inputs [M, D], after Eq. 1. O(B M D)."""
    nearest = torch.cdist(x.detach(), inducing.detach()).argmin(1)
    return torch.linalg.vector_norm(x - inducing[nearest], dim=1).sum()


def symmetric_divergence(means: Tensor, inducing: Tensor) -> Tensor:
    """ASKL: the mean over dimensions of (KL[q_X || q_Z] + KL[q_Z || q_X]) / 2 between Gaussians of one dimension.

    ((v_X + d^2) / v_Z + (v_Z + d^2) / v_X - 2) / 4 with variances v_X, v_Z and a difference d of the means.
    """
    (mean_x, var_x), (mean_z, var_z) = (
        (points.double().mean(0), points.double().var(0, correction=0)) for points in (means, inducing)
    )
    square = (mean_x - mean_z).square()
    return (0.25 * ((var_x + square) / var_z + (var_z + square) / var_x - 2)).mean()
