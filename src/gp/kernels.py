"""A kernel that GPyTorch does not have, and a faster way to the matrix of one that it has."""

import math
from typing import Any

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from src.runs.errors import UserError

AT_ZERO_ANGLE = (1, 1, 3)  # J_n(0) / pi


def is_scaled_rbf(kernel: Kernel) -> bool:
    """Whether this is s exp(-|z - z'|^2 / 2) of all latent dimensions, with one length scale or one per dimension."""
    scaled_rbf = type(kernel) is ScaleKernel and type(kernel.base_kernel) is RBFKernel
    return (
        scaled_rbf and kernel.active_dims is None and kernel.base_kernel.active_dims is None and not kernel.batch_shape
    )


def covariance(kernel: Kernel, z1: Tensor, z2: Tensor) -> Tensor:
    """The dense kernel matrix between two sets of points; for the papers' kernel without GPyTorch's many passes."""
    if not is_scaled_rbf(kernel) or z1.ndim != 2:
        return kernel(z1, z2).to_dense()
    lengthscale, centre = kernel.base_kernel.lengthscale, z1.detach().mean(0)  # centred, squares are rounded less
    matrix: Tensor = ScaledRBF.apply((z1 - centre) / lengthscale, (z2 - centre) / lengthscale, kernel.outputscale)
    return matrix


def variances(kernel: Kernel, z: Tensor) -> Tensor:
    """k(z_n, z_n) [N] of the points z [N, Q]; for the papers' kernel without GPyTorch's calls, which cost more."""
    if not is_scaled_rbf(kernel):
        answer: Tensor = kernel(z, diag=True)
        return answer
    return kernel.outputscale.expand(len(z))


@torch.no_grad()
def widened(kernel: Kernel, latent_dim: int) -> Kernel:
    """The kernel with length scales that start sqrt(Q / 2) times as long in Q > 2 dimensions.

    Points of N(0, I) are sqrt(2 Q) apart. With length scales for the plane they would be strangers to each other, no
    gradient would bring them together, and the noise would swallow the data.
    """
    for part in kernel.modules():
        if latent_dim > 2 and isinstance(part, Kernel) and part.has_lengthscale and part.is_stationary:
            part.lengthscale = part.lengthscale * math.sqrt(latent_dim / 2)
    return kernel


class ScaledRBF(torch.autograd.Function):
    """K = s exp(-|a - b|^2 / 2) of points a [N, Q] and b [M, Q], by one product and two passes over the matrix.

    With G the gradient in K and H = G K (entry by entry), that in a is H b - a sum_m H_m, and that in s is sum H / s.
    """

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, scale: Tensor) -> Tensor:
        """O(N M Q)."""
        half_a, half_b = (-0.5 * points.square().sum(1, keepdim=True) for points in (a, b))
        left, right = (
            torch.cat([a, half_a, torch.ones_like(half_a)], 1),
            torch.cat([b, torch.ones_like(half_b), half_b], 1),
        )
        matrix = (left @ right.mT).clamp_max_(0).exp_().mul_(scale)
        ctx.save_for_backward(a, b, scale, matrix)
        return matrix

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """O(N M Q)."""
        a, b, scale, matrix = ctx.saved_tensors
        weights = grad * matrix
        by_row, by_column = weights.sum(1, keepdim=True), weights.sum(0)[:, None]
        by_scale = (by_row.sum() / scale).to(scale)
        return weights @ b - by_row * a, weights.mT @ a - by_column * b, by_scale


class ArcCosine(Kernel):
    """The covariance of an infinitely wide net with random Gaussian weights (Cho & Saul, 2009).

    Degree n is the activation max(0, w.a)^n (0 step, 1 ReLU, 2 squared ReLU), depth the number of hidden layers:

        k(a, b) = |a|^n |b|^n J_n(theta) / pi,  cos theta = a.b / (|a| |b|),  a = (z / lengthscale, sqrt(bias))

    and each further layer takes the kernel of the one before in place of a.b, |a|^2 and |b|^2.
    """

    has_lengthscale = True
    is_stationary = False

    def __init__(self, degree: int = 1, depth: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if degree not in (0, 1, 2):
            raise UserError(f"the degree of an arc-cosine kernel is 0, 1 or 2, not {degree}")
        if depth < 1:
            raise UserError(f"an arc-cosine kernel has at least one layer, not depth={depth}")
        self.degree, self.depth = degree, depth
        inverse_softplus_of_one = math.log(math.expm1(1))
        self.raw_bias = nn.Parameter(torch.full((*self.batch_shape, 1, 1), inverse_softplus_of_one))
        self.register_constraint("raw_bias", Positive())

    @property
    def bias(self) -> Tensor:
        """The variance of the biases of the first layer, [*batch, 1, 1]; positive, so that no input has length zero."""
        return self.raw_bias_constraint.transform(self.raw_bias)

    def forward(
        self, x1: Tensor, x2: Tensor, diag: bool = False, last_dim_is_batch: bool = False, **params: Any
    ) -> Tensor:
        """k(x1, x2), [*batch, N, M]; with `diag` only k(x1_n, x2_n), [*batch, N]."""
        if last_dim_is_batch:
            raise NotImplementedError("an arc-cosine kernel does not take the latent dimensions apart")
        a, b = x1 / self.lengthscale, x2 / self.lengthscale
        aa = a.square().sum(-1, keepdim=True) + self.bias  # [*batch, N, 1]
        bb = b.square().sum(-1, keepdim=True) + self.bias  # [*batch, M, 1]
        ab = (a * b).sum(-1, keepdim=True) + self.bias if diag else a @ b.mT + self.bias
        k = self.layers(aa, bb if diag else bb.mT, ab)
        return k.squeeze(-1) if diag else k

    def layers(self, aa: Tensor, bb: Tensor, ab: Tensor) -> Tensor:
        """The kernel after all layers, from |a|^2, |b|^2 and a.b."""
        for _ in range(self.depth):
            lengths = (aa * bb).sqrt()
            ab = lengths**self.degree * angular(angle(ab / lengths), self.degree) / math.pi
            aa, bb = (AT_ZERO_ANGLE[self.degree] * squared**self.degree for squared in (aa, bb))
        return ab


def angle(cosine: Tensor) -> Tensor:
    """acos, but exactly 0, with gradient 0, where rounding cannot tell the angle from 0.

    There the derivative of acos is infinite or, for a cosine rounded above 1, NaN. Zero is right: the cosine is at its
    maximum where two points coincide, so they have no gradient to give (for degree 0, a kink: its middle subgradient).
    """
    limit = 1 - 8 * torch.finfo(cosine.dtype).eps
    return torch.where(cosine < limit, cosine.clamp(-limit, limit).acos(), 0.0)


def angular(theta: Tensor, degree: int) -> Tensor:
    """J_n(theta), the part of the kernel that depends on the angle alone."""
    sin, cos, rest = theta.sin(), theta.cos(), math.pi - theta
    if degree == 0:
        return rest
    if degree == 1:
        return sin + rest * cos
    return 3 * sin * cos + rest * (1 + 2 * cos.square())


class ObjectAngleKernel(Kernel):
    """Periodic in the angle and linear in the object: exp(-2 sin^2(|a - a'| / 2) / lengthscale^2) o.o'.

    The kernel of Casale et al. (2018) on inputs (o, a), whose period is the full circle. Both factors are cheap, so it
    is one kernel and not a product of GPyTorch's, whose period would be learned.
    """

    has_lengthscale = True
    is_stationary = False

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(lengthscale_constraint=Positive(initial_value=1.0), **kwargs)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """k(x1, x2), [*batch, N, M]; with `diag` only k(x1_n, x2_n), [*batch, N]."""
        objects1, objects2, angles1, angles2 = x1[..., :-1], x2[..., :-1], x1[..., -1], x2[..., -1]
        if diag:
            linear, difference = (objects1 * objects2).sum(-1), angles1 - angles2
        else:
            linear, difference = objects1 @ objects2.mT, angles1.unsqueeze(-1) - angles2.unsqueeze(-2)
        lengthscale = self.lengthscale.squeeze(-1) if diag else self.lengthscale
        return linear * (-2 * ((difference / 2).sin() / lengthscale).square()).exp()


def rbf(lengthscale: float = 2.0) -> RBFKernel:
    """A squared exponential of variance 1 that starts at a length scale."""
    kernel = RBFKernel()
    kernel.lengthscale = lengthscale
    return kernel
