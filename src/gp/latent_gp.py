"""GPs on the L latent channels of a VAE: posteriors given what the encoder says of each point.

Sparse: Jazbec et al., "Scalable Gaussian Process Variational Autoencoders", AISTATS 2021 (SVGP-VAE), whose equation
numbers these are. Exact: Pearce, "The Gaussian Process Prior VAE for Interpretable Latent Dynamics from Pixels", 2019.

For every point and channel the encoder gives a pseudo-observation y and its precision `weight` = 1 / s2, both
[..., b, L]; a weight of 0 says that there is none. All channels share the kernel. Leading dimensions are sets of points
with independent functions, such as videos. Everything runs in float64, since the kernels of objects have no float32
Cholesky factor; results come back in the precision of y.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from src.gp.linalg import add_diagonal, cholesky, solve_lower

JITTER = 1e-7  # of the mean of the diagonal of K_mm: the inducing values are f(U) + that much noise


class Statistics(NamedTuple):
    """What the inducing values learn from data, in the whitened basis: sums over points, so that chunks add up."""

    precision: Tensor  # [..., L, M, M], P diag(weight_l) P^T with P = chol^-1 K_mb
    shift: Tensor  # [..., L, M], P diag(weight_l) y_l


@dataclass(frozen=True)
class Sparse:
    """q(f_m) = N(mu_l, A_l) for each channel, as f_m = chol v with q(v_l) = N(mean_l, root_l^T root_l)."""

    chol: Tensor  # [M, M], of K_mm, in float64
    mean: Tensor  # [..., L, M]
    root: Tensor  # [..., L, M, M], lower triangular

    def values(self) -> tuple[Tensor, Tensor]:
        """mu [..., L, M] and A [..., L, M, M] of Eq. 9."""
        root = self.root.double() @ self.chol.mT
        return (self.mean.double() @ self.chol.mT).to(self.mean), (root.mT @ root).to(self.mean)

    def marginals(self, k_xm: Tensor, k_xx: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances [..., X, L] of q_S at points with kernel [..., X, M] and [..., X], Eq. 3.

        k_xx - k_xm K_mm^-1 k_mx + k_xm K_mm^-1 A K_mm^-1 k_mx. O(L X M^2).
        """
        projection = solve_lower(self.chol, k_xm.double().mT)  # [..., M, X]
        mean = self.mean.double() @ projection
        unexplained = k_xx.double() - projection.square().sum(-2)
        variance = unexplained.unsqueeze(-2) + channels_at_once(self.root.double(), projection).square().sum(-2)
        return mean.mT.to(self.mean), variance.mT.to(self.mean)

    def kl(self) -> Tensor:
        """sum_l KL[N(mu_l, A_l) || N(0, K_mm)] of each set [...]."""
        mean, root = self.mean.double(), self.root.double()
        log_det = 2 * root.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
        norms = mean.square().sum((-2, -1)) + root.square().sum((-3, -2, -1))
        return (0.5 * (norms - mean.shape[-2] * mean.shape[-1] - log_det)).to(self.mean)


def factorise(k_mm: Tensor) -> tuple[Tensor, float]:
    """The Cholesky factor of K_mm in float64, and the jitter beyond the usual one that it took. O(M^3)."""
    k_mm = k_mm.double()
    return cholesky(add_diagonal(k_mm, JITTER * k_mm.diagonal().mean()))


def statistics(chol: Tensor, k_bm: Tensor, y: Tensor, weight: Tensor) -> Statistics:
    """The sums over the b points of a batch. O(L b M^2)."""
    projection, weight = solve_lower(chol, k_bm.double().mT), weight.double()  # [..., M, b], [..., b, L]
    weighted = projection.unsqueeze(-3) * weight.mT.unsqueeze(-2)  # [..., L, M, b]
    return Statistics(channels_at_once(weighted, projection.mT), (projection @ (weight * y)).mT)


def sparse(chol: Tensor, data: Statistics, scale: float, dtype: torch.dtype) -> Sparse:
    """Eq. 9 from a batch that stands for `scale` = N / b times as many points. O(L M^3).

    With Sigma_l = chol B_l chol^T, B_l = I + (N / b) P diag(weight_l) P^T, the posterior of v is
    N(B_l^-1 (N / b) P diag(weight_l) y_l, B_l^-1). No eigenvalue of B is below 1: it needs no jitter, and the inverse
    of its Cholesky factor has no entry above 1.
    """
    identity = torch.eye(len(chol), dtype=chol.dtype, device=chol.device)
    factor = well_conditioned_cholesky(identity + scale * data.precision)
    root = solve_lower(factor, identity.expand_as(factor))
    mean = root.mT @ (root @ (scale * data.shift).unsqueeze(-1))
    return Sparse(chol, mean.squeeze(-1).to(dtype), root.to(dtype))


def channels_at_once(a: Tensor, b: Tensor) -> Tensor:
    """a_l b for all channels: [..., L, M, K] times [..., K, X] as one product, with no copy of b for each channel."""
    return (a.flatten(-3, -2) @ b).unflatten(-2, a.shape[-3:-1])


def well_conditioned_cholesky(b: Tensor) -> Tensor:
    """The Cholesky factor of identity plus a covariance, which cannot fail: nothing to check, nothing to wait for."""
    factor: Tensor = torch.linalg.cholesky_ex(b).L
    return factor


@dataclass(frozen=True)
class Exact:
    """The GP given pseudo-observations at T points, by B_l = I + W_l^1/2 K W_l^1/2 with eigenvalues of at least 1."""

    chol: Tensor  # [..., L, T, T], of B, in float64
    weight_root: Tensor  # [..., L, T], W^1/2
    whitened: Tensor  # [..., L, T], chol^-1 W^1/2 y
    dtype: torch.dtype

    def marginals(self, k_xt: Tensor, k_xx: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances [..., X, L] of the posterior at points with kernel [..., X, T] and [..., X]."""
        scaled = self.weight_root.unsqueeze(-1) * k_xt.double().mT.unsqueeze(-3)  # [..., L, T, X]
        projection = solve_lower(self.chol, scaled)
        mean = (projection.mT @ self.whitened.unsqueeze(-1)).squeeze(-1)
        variance = k_xx.double().unsqueeze(-2) - projection.square().sum(-2)
        return mean.mT.to(self.dtype), variance.mT.to(self.dtype)

    def log_evidence(self) -> Tensor:
        """sum_l log Z_l of each set [...], Z_l = N(y_l | 0, K + W_l^-1), less the constant log N(0 | 0, W_l^-1)."""
        log_det = self.chol.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
        return -(log_det + 0.5 * self.whitened.square().sum((-2, -1))).to(self.dtype)

    def kl(self, y: Tensor, weight: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """sum_l KL[q(z_l) || GP] = E_q[log N(z | y, 1 / weight)] - log Z of each set [...], from the marginals there.

        Their constants are the same, and a point without an observation adds nothing.
        """
        expected = -0.5 * (weight * ((y - mean).square() + variance)).sum((-2, -1))
        return expected - self.log_evidence()


def exact(k: Tensor, y: Tensor, weight: Tensor) -> Exact:
    """The GP with covariance k [..., T, T] given y. O(L T^3)."""
    weight_root = weight.double().sqrt().mT  # [..., L, T]
    inner = weight_root.unsqueeze(-1) * k.double().unsqueeze(-3) * weight_root.unsqueeze(-2)
    identity = torch.eye(k.shape[-1], dtype=inner.dtype, device=inner.device)
    chol = well_conditioned_cholesky(inner + identity)
    whitened = solve_lower(chol, (weight_root * y.double().mT).unsqueeze(-1)).squeeze(-1)
    return Exact(chol, weight_root, whitened, y.dtype)
