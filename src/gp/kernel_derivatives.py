"""First derivatives of a kernel, and the covariance of the derivatives of its functions.

A stationary kernel is s phi(u) with u = sum_q (z_q - z'_q)^2 / l_q^2. With its slope phi' everything is in closed form:

    d k(a, z) / d z_q = 2 s phi'(u) (z_q - a_q) / l_q^2          d^2 k(z, z') / d z_q d z'_r = -2 s phi'(0) / l_q^2

the latter where z' = z and q = r, and 0 for q != r. Sums of kernels have sums of derivatives. Other kernels are
differentiated automatically.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from gpytorch.kernels import AdditiveKernel, Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor
from torch.func import grad

from src.runs.errors import UserError

# Between the two points that stand for one: where points coincide, distances have no derivative. Smooth kernels are
# wrong by its square, kernels whose functions have one derivative only by about its size.
APART = 1e-5
TINY = 1e-30  # added to no distance, but the smallest one, whose root still has a derivative

Slope = Callable[[Tensor], Tensor]


class Derivatives(NamedTuple):
    """What the Jacobian of a GP at points z [n, Q] depends on, given known points [A, Q]."""

    cross: Tensor  # [n, A, Q], of k(a, z) in z
    prior: Tensor  # [n, Q, Q], the covariance of the derivatives of a function at z, before any data


def derivatives(kernel: Kernel, known: Tensor, z: Tensor) -> Derivatives:
    """In closed form if there is one, and automatic otherwise. O(n A Q)."""
    if type(kernel) is AdditiveKernel:
        parts = [derivatives(part, known, z) for part in kernel.kernels]
        cross, prior = (torch.stack(each).sum(0) for each in zip(*parts, strict=True))
        return Derivatives(cross, prior)
    base = kernel.base_kernel if type(kernel) is ScaleKernel else kernel
    slope = slope_of(base)
    if slope is None or kernel.active_dims is not None:
        return automatic(kernel, known, z)
    return stationary(slope, base.lengthscale.detach().to(z), outputscale(kernel).detach().to(z), known, z)


def outputscale(kernel: Kernel) -> Tensor:
    """s."""
    return kernel.outputscale if type(kernel) is ScaleKernel else kernel.lengthscale.new_ones(())


def slope_of(kernel: Kernel) -> Slope | None:
    """phi' of a stationary kernel, or None if it has to be differentiated automatically."""
    if kernel.batch_shape or kernel.active_dims is not None:
        return None
    if type(kernel) is RBFKernel:
        return rbf_slope
    if type(kernel) is not MaternKernel:
        return None
    if kernel.nu == 0.5:
        raise UserError("the functions of this kernel have no derivative, so that there is no metric: use kernel=rbf")
    return matern32_slope if kernel.nu == 1.5 else matern52_slope


def rbf_slope(u: Tensor) -> Tensor:
    """Of phi = exp(-u / 2)."""
    return -0.5 * (-0.5 * u).exp()


def matern32_slope(u: Tensor) -> Tensor:
    """Of phi = (1 + r) exp(-r), r^2 = 3 u."""
    return -1.5 * (-(3 * u).clamp_min(TINY).sqrt()).exp()


def matern52_slope(u: Tensor) -> Tensor:
    """Of phi = (1 + r + r^2 / 3) exp(-r), r^2 = 5 u."""
    r = (5 * u).clamp_min(TINY).sqrt()
    return -5 / 6 * (1 + r) * (-r).exp()


def stationary(slope: Slope, lengthscale: Tensor, scale: Tensor, known: Tensor, z: Tensor) -> Derivatives:
    """The closed form, with one length scale or one per dimension."""
    precision = lengthscale.flatten().square().reciprocal().expand(z.shape[1])  # [Q]
    difference = z.unsqueeze(1) - known  # [n, A, Q]
    u = difference.square() @ precision
    cross = 2 * scale * slope(u).unsqueeze(2) * difference * precision
    prior = -2 * scale * slope(z.new_zeros(())) * precision.diag()
    return Derivatives(cross, prior.expand(len(z), -1, -1))


def automatic(kernel: Kernel, known: Tensor, z: Tensor) -> Derivatives:
    """By torch.func, from the kernel's value at pairs of points, all at once."""

    def sum_of_values(z1: Tensor, z2: Tensor) -> Tensor:
        total: Tensor = kernel(z1, z2, diag=True).sum()
        return total

    size = len(z), len(known), z.shape[1]
    pairs = known.expand(size).flatten(0, 1), z.unsqueeze(1).expand(size).flatten(0, 1)
    cross = grad(sum_of_values, argnums=1)(*pairs).view(size)
    near, far = (mixed(sum_of_values, z - shift, z + shift) for shift in (APART / 2, 2 * APART))
    if near.abs().max() > 2 * far.abs().max():  # it grows without limit
        raise UserError("the functions of this kernel have no derivative, so that there is no metric: use kernel=rbf")
    return Derivatives(cross, near)


def mixed(sum_of_values: Callable[[Tensor, Tensor], Tensor], z1: Tensor, z2: Tensor) -> Tensor:
    """The symmetric part [n, Q, Q] of d^2 k(z1_n, z2_n) / dz1 dz2, of which odd powers of the distance cancel."""

    def by_second(first: Tensor, coordinate: int) -> Tensor:
        return grad(sum_of_values, argnums=1)(first, z2)[:, coordinate].sum()

    columns = [grad(by_second)(z1, coordinate) for coordinate in range(z1.shape[1])]
    matrix = torch.stack(columns, 2)
    return 0.5 * (matrix + matrix.mT)
