"""Marginals of sparse GPs for training steps, with their gradients in closed form.

The values are those of `Whitened.marginals`; autograd would take two to three times the products with the points.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from src.gp.linalg import cholesky, solve_lower, well_conditioned_cholesky
from src.gp.sparse import Statistics, Whitened, outputs_at_once, weighted_grams

WELL_CONDITIONED = 100.0  # of |W| k, below which products in float32 are exact to about 1e-5


def batch_marginals(q: Whitened, k_mm: Tensor, k_mx: Tensor, k_xx: Tensor) -> tuple[Tensor, Tensor, float]:
    """Means and variances [..., X, P] of f under any q, from the kernel k_mx [..., M, X].

    The mean is k_xm a_p and the variance k_xx - k_xm W_p k_mx, with a_p = L^-T m_p and

        W_p = L^-T (I - C_p C_p^T) L^-1

    The gradient in k_mx has the factor W_p k_mx that the value has, so that a step has a third of the products with X
    points. Also returns the jitter that L took, a constant to gradients. O(P M^3 + P X M^2).
    """
    chol, jitter = cholesky(k_mm.detach())
    weights = PredictiveWeights.apply(k_mm, chol, q.mean.double(), q.scale.double())
    mean, explained = LinearAndQuadratic.apply(*weights, k_mx)
    variance = k_xx.double().unsqueeze(-2) - explained
    return mean.mT.to(q.mean), variance.mT.to(q.mean), jitter


def optimal_marginals(
    data: Statistics, repeats: float, projection: Tensor, k_xx: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor]:
    """Means and variances [..., X, P] of f under `optimal_q`, and its KL divergence [...].

    O(P (M^3 + X M^2)).
    """
    mean, weight, kl = OptimalMoments.apply(data.precision, data.shift, repeats)
    mean, explained = LinearAndQuadratic.apply(mean, weight, projection)
    variance = k_xx.unsqueeze(-2) - explained
    return mean.mT.to(dtype), variance.mT.to(dtype), kl.to(dtype)


class PredictiveWeights(torch.autograd.Function):
    """a_p = L^-T m_p [..., M, P] and W_p = L^-T (I - C_p C_p^T) L^-1 [..., P, M, M] of K = L L^T.

    With R = L^-1, A the gradient in a, G the symmetric one in W, and E_p = R G_p R^T, that in m is R A, that in C_p is
    -2 E_p C_p, and that in K the symmetric part of R^T F R, where F is the lower triangle, with half its diagonal, of

        -sum_p (2 (I - C_p C_p^T) E_p + m_p A_p^T R^T)
    """

    @staticmethod
    def forward(ctx: Any, k_mm: Tensor, chol: Tensor, mean: Tensor, scale: Tensor) -> tuple[Tensor, Tensor]:
        """O(P M^3)."""
        identity = torch.eye(chol.shape[-1], dtype=chol.dtype, device=chol.device)
        root = solve_lower(chol, identity.expand_as(chol))
        spread = outputs_at_once(scale.mT, root)  # [..., P, M, M], C^T R
        ctx.save_for_backward(root, mean, scale)
        return root.mT @ mean, (root.mT @ root).unsqueeze(-3) - spread.mT @ spread

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_a: Tensor, by_weight: Tensor) -> tuple[Tensor, None, Tensor, Tensor]:
        """O(P M^3)."""
        root, mean, scale = ctx.saved_tensors
        each = root.unsqueeze(-3)
        inner, by_mean = each @ by_weight @ each.mT, root @ by_a  # E
        by_scale = -2 * inner @ scale
        factor = -(2 * inner + scale @ by_scale.mT).sum(-3) - mean @ by_mean.mT
        factor = factor.tril_()
        factor.diagonal(dim1=-2, dim2=-1).mul_(0.5)
        by_k = root.mT @ factor @ root
        return 0.5 * (by_k + by_k.mT), None, by_mean, by_scale


class LinearAndQuadratic(torch.autograd.Function):
    """k_x^T a_p and k_x^T W_p k_x, both [..., P, X], of the columns of k [..., M, X].

    a is [..., M, P], the symmetric W [..., P, M, M], both in float64. The products with X points run in the precision
    of k if W is so small that rounding does not matter, as with inducing inputs far apart, and in float64 otherwise.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, weight: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """O(P X M^2)."""
        exact = k.dtype == torch.float64 or bool(weight.abs().amax() * k.abs().amax() > WELL_CONDITIONED)
        wide = k.double() if exact else k
        product = outputs_at_once(weight.to(wide), wide)  # [..., P, M, X]
        ctx.save_for_backward(a, wide, product.to(k, copy=True))
        return a.to(wide).mT @ wide, product.mul_(wide.unsqueeze(-3)).sum(-2)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_linear: Tensor, by_quadratic: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """O(P X M^2)."""
        a, k, product = ctx.saved_tensors
        by_weight = weighted_grams(k, by_quadratic)
        by_k, doubled = a.to(product) @ by_linear.to(product), 2 * by_quadratic.to(product)
        for output in range(a.shape[-1]):
            by_k.addcmul_(product[..., output, :, :], doubled[..., output, :].unsqueeze(-2))
        return (k @ by_linear.mT).to(a), by_weight.to(a), by_k


class OptimalMoments(torch.autograd.Function):
    """m_p = S_p b_p [..., M, P], W_p = I - S_p [..., P, M, M] and the KL [...] of the optimal q(v_p) = N(m_p, S_p).

    S = A^-1 with A = I + r precision, b = r shift and the KL is sum_p (|m_p|^2 + tr S_p - M + log|A_p|) / 2. With g the
    gradient in the KL, a that in m and G that in W the gradients are, with c = S (a + g m),

        in A   S G S + g (S - S S) / 2 - c m^T,   in b   c
    """

    @staticmethod
    def forward(ctx: Any, precision: Tensor, shift: Tensor, repeats: float) -> tuple[Tensor, Tensor, Tensor]:
        """O(P M^3)."""
        identity = torch.eye(shift.shape[-2], dtype=shift.dtype, device=shift.device)
        chol = well_conditioned_cholesky(identity + repeats * precision)
        spread = torch.cholesky_inverse(chol)
        mean = repeats * (spread @ shift.mT.unsqueeze(-1)).squeeze(-1).mT
        weight = identity - spread
        log_det = 2 * chol.diagonal(dim1=-2, dim2=-1).log().sum((-2, -1))
        kl = 0.5 * (mean.square().sum((-2, -1)) - weight.diagonal(dim1=-2, dim2=-1).sum((-2, -1)) + log_det)
        ctx.save_for_backward(mean, weight, spread)
        ctx.repeats = repeats
        return mean, weight, kl

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, by_mean: Tensor, by_weight: Tensor, by_kl: Tensor) -> tuple[Tensor, Tensor, None]:
        """O(P M^3)."""
        mean, weight, spread = ctx.saved_tensors
        by_kl = by_kl[..., None, None]
        by_target = spread @ (by_mean + by_kl * mean).mT.unsqueeze(-1)  # [..., P, M, 1], c
        by_precision = (spread @ by_weight + 0.5 * by_kl.unsqueeze(-1) * weight) @ spread
        by_precision.sub_(by_target * mean.mT.unsqueeze(-2))
        return ctx.repeats * by_precision, ctx.repeats * by_target.squeeze(-1).mT, None
