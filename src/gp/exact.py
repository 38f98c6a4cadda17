"""The exact posterior of P functions given independent observations of each.

Pearce, "The Gaussian Process Prior VAE for Interpretable Latent Dynamics from Pixels", AABI 2019: the encoder of a
VAE gives a pseudo-observation y and its precision `weight` = 1 / s2, both [..., N, P], at N points; a weight of 0
means no observation. All outputs share the kernel. Leading dimensions are sets of points with independent functions,
such as videos. Everything runs in float64; results come back in the precision of y.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from src.gp.linalg import solve_lower, well_conditioned_cholesky


@dataclass(frozen=True)
class ExactPosterior:
    """The GP given y, through A_p = I + W_p^1/2 K W_p^1/2, W_p = diag(weight_p), with eigenvalues of at least 1."""

    chol: Tensor  # [..., P, N, N], of A, in float64
    weight_root: Tensor  # [..., P, N], W^1/2
    whitened: Tensor  # [..., P, N], chol^-1 W^1/2 y
    dtype: torch.dtype

    def marginals(self, k_nx: Tensor, k_xx: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances [..., X, P] at points with kernel [..., N, X] and diagonal [..., X]. O(P N^2 X)."""
        scaled = self.weight_root.unsqueeze(-1) * k_nx.double().unsqueeze(-3)  # [..., P, N, X]
        projection = solve_lower(self.chol, scaled)
        mean = (projection.mT @ self.whitened.unsqueeze(-1)).squeeze(-1)
        variance = k_xx.double().unsqueeze(-2) - projection.square().sum(-2)
        return mean.mT.to(self.dtype), variance.mT.to(self.dtype)

    def log_normaliser(self) -> Tensor:
        """sum_p log Z_p of each set [...], Z_p = N(y_p | 0, K + W_p^-1), without the constant log N(0 | 0, W_p^-1)."""
        log_det = self.chol.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
        return -(log_det + 0.5 * self.whitened.square().sum((-2, -1))).to(self.dtype)

    def kl(self, y: Tensor, weight: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """sum_p KL[q(z_p) || GP] = E_q[log N(z | y, 1 / weight)] - log Z of each set [...], from the marginals there.

        The constants of the two terms are the same, and a point without an observation adds nothing.
        """
        expected = -0.5 * (weight * ((y - mean).square() + variance)).sum((-2, -1))
        return expected - self.log_normaliser()


def exact_posterior(k: Tensor, y: Tensor, weight: Tensor) -> ExactPosterior:
    """The GP with covariance k [..., N, N] given y. O(P N^3)."""
    weight_root = weight.double().sqrt().mT  # [..., P, N]
    inner = weight_root.unsqueeze(-1) * k.double().unsqueeze(-3) * weight_root.unsqueeze(-2)
    identity = torch.eye(k.shape[-1], dtype=inner.dtype, device=inner.device)
    chol = well_conditioned_cholesky(inner + identity)
    whitened = solve_lower(chol, (weight_root * y.double().mT).unsqueeze(-1)).squeeze(-1)
    return ExactPosterior(chol, weight_root, whitened, y.dtype)
