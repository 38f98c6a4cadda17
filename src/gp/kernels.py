"""Kernels that GPyTorch does not have, and faster ways to the matrices of one that it has."""

import math
from typing import Any, NamedTuple

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from src.runs.errors import UserError

AT_ZERO_ANGLE = (1, 1, 3)  # J_n(0) / pi


def is_scaled_rbf(kernel: Kernel) -> bool:
    """Whether this is s exp(-|z - z'|^2 / 2) of all latent dimensions, with one length scale or one per dimension."""
    return is_stack_of_rbfs(kernel) and not kernel.batch_shape


def is_stack_of_rbfs(kernel: Kernel) -> bool:
    """Whether this is one such kernel, or a stack of them with parameters of their own."""
    if type(kernel) is not ScaleKernel or type(kernel.base_kernel) is not RBFKernel:
        return False
    alike = kernel.batch_shape == kernel.base_kernel.batch_shape
    return alike and kernel.active_dims is None and kernel.base_kernel.active_dims is None


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


class RBFStack(NamedTuple):
    """The parameters of S scaled RBFs on D dimensions, or of one for all S sets of points."""

    precision: Tensor  # [S or 1, 1, D or 1], 1 / lengthscale^2
    scale: Tensor  # [S or 1, 1, 1]


def rbf_stack(kernel: Kernel, dtype: torch.dtype) -> RBFStack:
    """The parameters of a kernel that `is_stack_of_rbfs`, in the precision of the points."""
    lengthscale, scale = kernel.base_kernel.lengthscale.to(dtype), kernel.outputscale.to(dtype)
    return RBFStack(lengthscale.view(-1, 1, lengthscale.shape[-1]) ** -2, scale.view(-1, 1, 1))


def prior_stack(kernel: Kernel, z: Tensor) -> Tensor:
    """The kernel matrices [S, M, M] of S sets of points z [S, M, D], each with itself, in float64. O(S M^2 D)."""
    if not is_stack_of_rbfs(kernel):
        matrices: Tensor = kernel(z.double(), z.double()).to_dense()
        return matrices
    precision, scale = rbf_stack(kernel, z.dtype)
    answer: Tensor = PriorRBF.apply(z, precision.expand(len(z), 1, z.shape[-1]), scale.expand(len(z), 1, 1))
    return answer


def cross_stack(kernel: Kernel, z: Tensor, x: Tensor) -> Tensor:
    """The kernel matrices [S, M, B] between S sets of points z [S, M, D] and data x [B, D]. O(S M B D).

    Scaled RBFs have no gradient in x: these are data.
    """
    if not is_stack_of_rbfs(kernel):
        matrices: Tensor = kernel(z, x).to_dense()
        return matrices
    precision, scale = rbf_stack(kernel, x.dtype)
    answer: Tensor = CrossRBF.apply(x, z, precision.expand(len(z), 1, x.shape[1]), scale.expand(len(z), 1, 1))
    return answer


def variance_stack(kernel: Kernel, x: Tensor) -> Tensor:
    """k(x_n, x_n) [S or 1, B] of the data x [B, D] under each kernel of a stack."""
    if not is_stack_of_rbfs(kernel):
        diagonal: Tensor = kernel(x, diag=True)
        return diagonal.view(-1, len(x))
    return kernel.outputscale.view(-1, 1).expand(-1, len(x))


class PriorRBF(torch.autograd.Function):
    """K = s exp(-sum_d w_d (z_d - z'_d)^2 / 2) of S sets z [S, M, D], each with itself, [S, M, M] in float64.

    With G the gradient in K and the symmetric H = G K + (G K)^T (entry by entry), that in z is w (H z - z sum_m H_m),
    and that in w is sum_m z (H z - z sum_m H_m) / 2: one product, where the two sides of a product would take two. It
    runs in the precision of z. Large tensors are changed in place, since fresh memory costs as much as a pass over it.
    """

    @staticmethod
    def forward(ctx: Any, z: Tensor, precision: Tensor, scale: Tensor) -> Tensor:
        """O(S M^2 D)."""
        scaled = (z * precision.sqrt()).double()
        matrix = scaled @ scaled.mT
        half = 0.5 * matrix.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)  # [S, M, 1]
        matrix = matrix.sub_(half).sub_(half.mT).clamp_max_(0).exp_().mul_(scale)
        ctx.save_for_backward(z, precision, scale, matrix)
        return matrix

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """O(S M^2 D)."""
        z, precision, scale, matrix = ctx.saved_tensors
        weights = grad * matrix
        by_scale = (weights.sum((-2, -1), keepdim=True) / scale).to(scale)
        weights = (weights + weights.mT).to(z)
        centred = (weights @ z).addcmul_(weights.sum(-1, keepdim=True), z, value=-1)
        by_precision = 0.5 * torch.linalg.vecdot(z, centred, dim=-2).unsqueeze(-2)
        return centred.mul_(precision), by_precision, by_scale


class CrossRBF(torch.autograd.Function):
    """K = s exp(-sum_d w_d (z_d - x_d)^2 / 2) for S sets z [S, M, D] and one set of data x [B, D], [S, M, B].

    The sum is z w x less half of z w z and of x w x. Length scales are part of w z, so that one product serves all S
    sets, and no scaled copy of the data is made. With G the gradient in K and H = G K (entry by entry), everything in
    the gradients follows from one product as well, H x: in z it is w (H x - z sum_n H_n), and in w it is

        -1/2 (sum_m H_m x^2 - 2 sum_m z H x + sum_m z^2 sum_n H_n)
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, z: Tensor, precision: Tensor, scale: Tensor) -> Tensor:
        """O(S M B D)."""
        scaled = z * precision
        half_z = -0.5 * torch.linalg.vecdot(scaled, z).unsqueeze(-1)  # [S, M, 1]
        half_x = (0.5 * precision.squeeze(1) @ x.square().mT).unsqueeze(1)  # [S, 1, B]
        matrix = torch.addmm(half_z.flatten(0, 1), scaled.flatten(0, 1), x.mT).unflatten(0, z.shape[:2])
        matrix.sub_(half_x).clamp_max_(0).exp_().mul_(scale)
        ctx.save_for_backward(x, z, precision, scale, matrix)
        return matrix

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[None, Tensor, Tensor, Tensor]:
        """O(S M B D)."""
        x, z, precision, scale, matrix = ctx.saved_tensors
        weights = grad * matrix
        total = weights.sum(-1, keepdim=True)  # [S, M, 1]
        by_scale, at_z = total.sum(-2, keepdim=True) / scale, total * z
        centred = (weights.flatten(0, 1) @ x).unflatten(0, z.shape[:2]).sub_(at_z)  # H x - z sum_n H_n
        spread = weights.sum(-2) @ x.square() - torch.linalg.vecdot(z, at_z.add_(centred, alpha=2), dim=-2)  # [S, D]
        return None, centred.mul_(precision), -0.5 * spread.unsqueeze(1), by_scale


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
