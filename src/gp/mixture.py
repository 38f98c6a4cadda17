"""A mixture of Gaussians as the posterior of whitened inducing values, p(v) = N(0, I).

Krauth, Bonilla, Cutajar & Filippone, "AutoGP", UAI 2017; the bound on the entropy is that of Dezfouli & Bonilla, 2015.
K components have weights [K], means [K, P, M] and square factors [K, P, M, M] of the covariances of P functions.
Everything runs in float64: the matrices are small.
"""

import torch
from torch import Tensor

from src.gp.evidence import LOG_2PI
from src.gp.linalg import solve_lower, well_conditioned_cholesky


def divergence_bound(log_weights: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """An upper bound on KL[q(v) || N(0, I)]. O(K^2 P M^3)."""
    log_weights, mean, scale = log_weights.double(), mean.double(), scale.double()
    return -entropy_bound(log_weights, mean, scale) - expected_log_prior(log_weights, mean, scale)


def entropy_bound(log_weights: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """A lower bound on the entropy, by Jensen's inequality:

    -sum_k pi_k log sum_l pi_l prod_p N(m_kp | m_lp, S_kp + S_lp)

    One component has P M (1 - log 2) / 2 nats more than the bound says.
    """
    cov = scale @ scale.mT  # [K, P, M, M]
    chol = well_conditioned_cholesky(cov.unsqueeze(0) + cov.unsqueeze(1))  # [K, K, P, M, M]
    difference = solve_lower(chol, (mean.unsqueeze(0) - mean.unsqueeze(1)).unsqueeze(-1)).squeeze(-1)
    log_det = 2 * chol.diagonal(dim1=-2, dim2=-1).log()
    overlap = -0.5 * (LOG_2PI + log_det + difference.square()).sum((-2, -1))  # [K, K]
    return -(log_weights.exp() * torch.logsumexp(log_weights + overlap, 1)).sum()


def expected_log_prior(log_weights: Tensor, mean: Tensor, scale: Tensor) -> Tensor:
    """sum_k pi_k E_k[log N(v | 0, I)]."""
    second_moment = mean.square() + scale.square().sum(-1)  # [K, P, M]
    return (log_weights.exp() * -0.5 * (LOG_2PI + second_moment).sum((-2, -1))).sum()
