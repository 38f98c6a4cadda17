"""Sparse GPs: the posterior of P functions through their values at M inducing inputs.

One form serves every model. All P outputs share the kernel and the inducing inputs Z. With the Cholesky factor L of
K_MM the inducing values are u = L v, so that p(v) = N(0, I), and q(v) is Gaussian with one mean per output and either
one covariance for all outputs or one per output. Leading dimensions are sets of points with independent functions,
such as videos.

The optimal q(v) is that of Jazbec et al., "Scalable Gaussian Process Variational Autoencoders", AISTATS 2021, whose
equation numbers these are.

The M x M systems run in float64, whatever the precision of the inputs: K_MM of a smooth kernel has eigenvalues far
below the rounding of float32, and at M of a few hundred they cost little. Results come back in the precision of q(v).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.autograd.function import once_differentiable

from src.gp.geometry import JacobianMoments, whitened_moments
from src.gp.kernels import covariance
from src.gp.linalg import add_diagonal, cholesky, solve_lower, well_conditioned_cholesky

# Relative to the mean of the diagonal of K_MM. A smaller one lets rounding errors of psi2, which grow by 1 / JITTER,
# reach the size of a noise of 1e-4; a larger one loosens the bounds, since it blurs what close inducing points tell
# apart.
JITTER = 1e-7


class Whitened(NamedTuple):
    """q(v_p) = N(mean_p, C_p C_p^T) of the whitened inducing values of P outputs.

    C is any square factor with a positive diagonal whose product is the root of the determinant, such as a triangular
    one, lower or upper. C [..., 1, M, M] is one covariance for all outputs, C [..., P, M, M] one per output.
    """

    mean: Tensor  # [..., M, P]
    scale: Tensor  # [..., 1 or P, M, M], C

    def values(self, chol: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [..., M, P] and covariance [..., 1 or P, M, M] of q(u), u = L v. O(P M^3)."""
        scale = chol @ self.scale.double()
        return (chol @ self.mean.double()).to(self.mean), (scale @ scale.mT).to(self.mean)

    def marginals(
        self, projection: Tensor, k_xx: Tensor, mean_dtype: torch.dtype = torch.float64
    ) -> tuple[Tensor, Tensor]:
        """Means [..., X, P] and variances [..., X, 1 or P] of f at X points, Eq. 3.

        With the projection H = L^-1 k_mx [..., M, X] in float64 and the kernel's diagonal k_xx [..., X] the variance is

            k_xx - k_xm K_MM^-1 k_mx + k_xm K_MM^-1 S K_MM^-1 k_mx = k_xx - h_x^T (I - C C^T) h_x,   S = L C C^T L^T

        O(X M^2) for one covariance, O(P X M^2) for P. The product with the mean, O(X M P), runs in `mean_dtype`: if P
        is the number of pixels, the precision of x saves time, and H does not amplify its rounding.
        """
        unexplained = k_xx.double() - projection.square().sum(-2)
        explained = outputs_at_once(self.scale.double().mT, projection).square().sum(-2)  # [..., 1 or P, X]
        variance = unexplained.unsqueeze(-2) + explained
        mean = projection.to(mean_dtype).mT @ self.mean.to(mean_dtype)
        return mean.to(self.mean), variance.mT.to(self.mean)

    def kl(self) -> Tensor:
        """sum_p KL[q(v_p) || N(0, I)] of each set [...], which is sum_p KL[q(u_p) || p(u_p)]."""
        mean, scale = self.mean.double(), self.scale.double()
        num_scales, size = scale.shape[-3:-1]
        log_det = 2 * scale.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
        spread = scale.square().sum((-3, -2, -1)) - num_scales * size - log_det
        return (0.5 * (mean.square().sum((-2, -1)) + mean.shape[-1] // num_scales * spread)).to(self.mean)


def add_jitter(k_mm: Tensor) -> Tensor:
    """The covariance of u = f(Z) + a little noise, in float64. Bounds with these u are still bounds."""
    k_mm = k_mm.double()
    return add_diagonal(k_mm, JITTER * k_mm.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True))


def prior_covariance(kernel: Kernel, inducing: Tensor) -> Tensor:
    """K_MM [..., M, M] of the inducing inputs [..., M, Q] in float64, with the jitter."""
    return add_jitter(covariance(kernel, inducing.double(), inducing.double()))


def prior_factor(kernel: Kernel, inducing: Tensor) -> tuple[Tensor, float]:
    """The Cholesky factor L of `prior_covariance`, and the jitter that it took beyond the usual one. O(M^3)."""
    return cholesky(prior_covariance(kernel, inducing))


class Statistics(NamedTuple):
    """What data say about v: the likelihood is exp(v^T shift - v^T precision v / 2) up to a constant.

    Both fields are sums over points, so the statistics of chunks add up to those of all points.
    """

    precision: Tensor  # [..., 1 or P, M, M]
    shift: Tensor  # [..., M, P]


def statistics(projection: Tensor, y: Tensor, weight: Tensor) -> Statistics:
    """The statistics of observations y with precisions `weight`, both [..., B, P], at points with the projection H.

    H diag(weight_p) H^T and H diag(weight_p) y_p with H = L^-1 k_mb [..., M, B] in float64; a weight of 0 means no
    observation. O(P B M^2).
    """
    weight = weight.double()
    return Statistics(WeightedGrams.apply(projection, weight.mT), projection @ (weight * y))


class WeightedGrams(torch.autograd.Function):
    """H diag(w_p) H^T [..., P, M, M] of H [..., M, B] and weights [..., P, B].

    With the symmetric part G_p of the gradient and g_pb = G_p h_b the gradient in w_pb is h_b^T g_pb, that in h_b
    2 sum_p w_pb g_pb: one product with B points, where autograd's own gradient has two.
    """

    @staticmethod
    def forward(ctx: Any, projection: Tensor, weight: Tensor) -> Tensor:
        """O(P B M^2)."""
        ctx.save_for_backward(projection, weight)
        return weighted_grams(projection, weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_grams: Tensor) -> tuple[Tensor, Tensor]:
        """O(P B M^2)."""
        projection, weight = ctx.saved_tensors
        product = outputs_at_once(by_grams + by_grams.mT, projection)  # [..., P, M, B], 2 g
        by_weight = 0.5 * (product * projection.unsqueeze(-3)).sum(-2)
        return product.mul_(weight.unsqueeze(-2)).sum(-3), by_weight


def optimal_q(data: Statistics, repeats: float, dtype: torch.dtype) -> Whitened:
    """Eq. 9 from a batch that counts `repeats` = N / B times, in the precision `dtype`. O(P M^3).

    In the paper's terms Sigma_p = L A_p L^T with A_p = I + (N / B) precision_p. No eigenvalue of A is below 1, so it
    needs no jitter, and the inverse of its Cholesky factor has no entry above 1.
    """
    identity = torch.eye(data.shift.shape[-2], dtype=data.shift.dtype, device=data.shift.device)
    q = q_from_factor(well_conditioned_cholesky(identity + repeats * data.precision), repeats * data.shift)
    return Whitened(q.mean.to(dtype), q.scale.to(dtype))


def q_from_factor(chol: Tensor, shift: Tensor) -> Whitened:
    """q(v_p) = N(A_p^-1 shift_p, A_p^-1) from the Cholesky factors [..., 1 or P, M, M] of A; its C is upper triangular.

    O(M^3 + M^2 P) for one factor, O(P M^3) for P.
    """
    num_scales, size = chol.shape[-3:-1]
    identity = torch.eye(size, dtype=chol.dtype, device=chol.device)
    root = solve_lower(chol, identity.expand_as(chol))  # A^-1 = root^T root
    columns = shift.mT.unflatten(-2, (num_scales, -1)).mT  # [..., 1, M, P] or [..., P, M, 1]
    mean = root.mT @ (root @ columns)
    return Whitened(mean.mT.flatten(-3, -2).mT, root.mT)


def weighted_grams(columns: Tensor, weight: Tensor) -> Tensor:
    """K diag(w_p) K^T [..., P, M, M] of K [..., M, X] and weights [..., P, X]. O(P X M^2).

    Rows that lie together in memory make the product up to four times faster.
    """
    columns = columns.contiguous()
    return outputs_at_once(columns.unsqueeze(-3) * weight.contiguous().unsqueeze(-2), columns.mT)


def outputs_at_once(a: Tensor, b: Tensor) -> Tensor:
    """a_p b for all outputs: [..., P, M, K] times [..., K, X] as one product, with no copy of b per output."""
    return (a.flatten(-3, -2) @ b).unflatten(-2, a.shape[-3:-1])


@dataclass(frozen=True)
class SparseGP:
    """A GP decoder given q(v): everything that prediction needs, factorised once."""

    z: Tensor  # [M, Q], Z
    chol: Tensor  # [M, M], L in float64
    q: Whitened  # of D outputs
    kernel: Kernel
    noise: Tensor
    jitter: float

    def predict(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [R, D] and variance of x at z [R, Q]; the noise is part of the variance. O(R M (M + D)).

        The variance is [R] if the outputs share one covariance, and [R, D] otherwise.
        """
        projection = solve_lower(self.chol, covariance(self.kernel, self.z.double(), z.double()))
        k_xx = self.kernel(z.double(), diag=True) + self.noise
        mean, variance = self.q.marginals(projection, k_xx, mean_dtype=self.q.mean.dtype)
        return mean, variance.squeeze(-1) if self.q.scale.shape[-3] == 1 else variance

    @cached_property
    def jacobian_moments(self) -> list[JacobianMoments]:
        """What the expected metric needs, made once; the covariance of q(u) is part of it."""
        scale, outputs = self.q.scale.detach().double(), self.q.mean.shape[-1]
        spread = outputs // len(scale) * (scale @ scale.mT).sum(0)
        return [whitened_moments(self.z, self.kernel, self.chol, self.q.mean, outputs, spread)]


def make_sparse_gp(inducing: Tensor, kernel: Kernel, noise: Tensor, q: Whitened) -> SparseGP:
    """The GP given q(v) at the inducing inputs [M, Q]. O(M^3)."""
    chol, jitter = prior_factor(kernel, inducing)
    return SparseGP(inducing, chol, q, kernel, noise, jitter)
