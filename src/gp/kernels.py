"""Kernels that GPyTorch does not have."""

import math
from typing import Any

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from src.errors import UserError

AT_ZERO_ANGLE = (1, 1, 3)  # J_n(0) / pi


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
