"""Psi statistics: expectations of a kernel under Gaussian q(z_n) (Titsias & Lawrence, 2010, Section 3.2).

They come back in float64, whatever the inputs are. The bounds divide psi2 by the eigenvalues of K_MM, down to 1e-7 of
the largest entry: rounded to float32, the errors of psi2 would grow into the size of the statistic itself.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.distributions import Independent, MultivariateNormal

from src.gp.gauss_sum import gauss_sum, make_grid
from src.gp.kernels import covariance, is_scaled_rbf

PAIR_BLOCK = 2**18  # entries of the B x M x M array that exist at a time: 2 MB, so that they stay in the cache


class Psi(NamedTuple):
    """What the bounds need to know of B uncertain inputs."""

    psi0: Tensor  # sum_n E[k(z_n, z_n)]
    psi1: Tensor  # [B, M], E[k(z_n, Z)]
    psi2: Tensor  # [M, M], sum_n E[k(Z, z_n) k(z_n, Z)]

    def energy(self, weight: Tensor) -> Tensor:
        """sum_n E[k(z_n, Z) W k(Z, z_n)], that is tr(W psi2)."""
        return (weight * self.psi2).sum()


@dataclass(frozen=True)
class ClosedForm:
    """The statistics of s exp(-|z - z'|^2 / 2), with z in length scales, each computed when it is asked for.

    psi1_nm = s E[exp(-|z_n - Z_m|^2 / 2)]
    psi2_ij = s^2 exp(-|Z_i - Z_j|^2 / 4) sum_n E[exp(-|z_n - (Z_i + Z_j) / 2|^2)]

    O(B M^2 F) with F = 2 Q + 1 features (diagonal) or (Q + 1) (Q + 2) / 2 (full), as matrix products and B M^2 / 2
    exponentials, which never exist all at once: memory is O(B M + M^2 F). The gradient of psi2 computes them again;
    `energy`, which knows what psi2 is for, needs them once. With diagonal covariances in the plane a large batch goes
    through a grid instead, which takes far fewer.
    """

    scale: Tensor  # s
    z: Tensor  # [M, Q], Z in length scales
    mean: Tensor  # [B, Q]
    spread: Tensor  # [B, Q] variances or [B, Q, Q] covariances

    @property
    def psi0(self) -> Tensor:
        """B s."""
        return len(self.mean) * self.scale

    @property
    def psi1(self) -> Tensor:
        """[B, M]."""
        point_features, inducing_features = log_overlap(self.mean, self.spread, self.z, 1)
        return self.scale * (point_features @ inducing_features).exp()

    @property
    def psi2(self) -> Tensor:
        """[M, M]; symmetric, so that it takes T = M (M + 1) / 2 pairs (i, j)."""
        rows, columns = self.pairs()
        middle, factor = self.pair_terms(rows, columns)
        sums = self.sums_by_grid(middle)
        if sums is None:
            sums = SumOfExponentials.apply(*log_overlap(self.mean, self.spread, middle, 2))
        lower = self.z.new_zeros(len(self.z), len(self.z)).index_put((rows, columns), factor * sums)
        return lower + lower.tril(-1).mT

    def energy(self, weight: Tensor) -> Tensor:
        """tr(W psi2), at half the cost of psi2 and its gradient if there is no grid."""
        rows, columns = self.pairs()
        middle, factor = self.pair_terms(rows, columns)
        weights = factor * torch.where(rows == columns, 0.5, 1) * (weight + weight.mT)[rows, columns]
        sums = self.sums_by_grid(middle)
        if sums is not None:
            return (weights * sums).sum()
        energy: Tensor = WeightedSumOfExponentials.apply(*log_overlap(self.mean, self.spread, middle, 2), weights)
        return energy

    def pairs(self) -> Tensor:
        """The rows and columns [2, T] of the lower triangle of psi2."""
        return torch.tril_indices(len(self.z), len(self.z), device=self.z.device)

    def pair_terms(self, rows: Tensor, columns: Tensor) -> tuple[Tensor, Tensor]:
        """The points (Z_i + Z_j) / 2 [T, Q], and the factor [T] before the sum at each."""
        left, right = self.z[rows], self.z[columns]
        return (left + right) / 2, self.scale.square() * (-(left - right).square().sum(-1) / 4).exp()

    def sums_by_grid(self, middle: Tensor) -> Tensor | None:
        """sum_n E[exp(-|z_n - t|^2)] at points t [T, 2]; None if a grid is no cheaper than all the exponentials."""
        if self.mean.shape[1] != 2 or self.spread.ndim != 2 or middle.is_meta:
            return None
        grid = make_grid(middle)
        if len(grid[0].nodes) * len(grid[1].nodes) > 8 * len(self.mean):
            return None
        return gauss_sum(self.mean, 1 / (0.5 + self.spread), middle, grid)


def has_closed_form(kernel: Kernel) -> bool:
    """Whether `closed_form` knows this kernel."""
    return is_scaled_rbf(kernel)


def lazy_closed_form(kernel: Kernel, q: Independent | MultivariateNormal, inducing: Tensor) -> ClosedForm:
    """The statistics of a scaled RBF kernel for q(z_n) of diagonal or full covariance."""
    if not has_closed_form(kernel):
        raise TypeError(f"there is no closed form of the psi statistics of {kernel}: use samples")
    scale, lengthscale = kernel.outputscale.double(), kernel.base_kernel.lengthscale.double()  # [], [1, 1 or Q]
    return ClosedForm(scale, inducing.double() / lengthscale, *moments(q, lengthscale))


def closed_form(kernel: Kernel, q: Independent | MultivariateNormal, inducing: Tensor) -> Psi:
    """The same, all three computed."""
    lazy = lazy_closed_form(kernel, q, inducing)
    return Psi(lazy.psi0, lazy.psi1, lazy.psi2)


def sampled(kernel: Kernel, z: Tensor, inducing: Tensor) -> Psi:
    """Unbiased estimates of the statistics of any kernel from samples z [S, B, Q] of q. O(S B M^2)."""
    flat = z.double().flatten(0, 1)  # [S B, Q]
    k = covariance(kernel, flat, inducing.double())  # [S B, M]
    psi1 = k.unflatten(0, z.shape[:2]).mean(0)
    return Psi(kernel(flat, diag=True).sum() / len(z), psi1, k.mT @ k / len(z))


def moments(q: Independent | MultivariateNormal, lengthscale: Tensor) -> tuple[Tensor, Tensor]:
    """The mean [B, Q] of q and its variance [B, Q] or covariance [B, Q, Q], with z in length scales."""
    mean = q.mean.double() / lengthscale
    if isinstance(q, Independent):
        return mean, q.variance.double() / lengthscale.square()
    scale_tril = q.scale_tril.double() / lengthscale.mT
    return mean, scale_tril @ scale_tril.mT


def log_overlap(mean: Tensor, spread: Tensor, target: Tensor, power: int) -> tuple[Tensor, Tensor]:
    """Features a [B, F] and b [F, T] with a b = log E[exp(-c |z_n - t|^2 / 2)], where c = `power` and t = `target`.

    The expectation is |I + c S|^(-1/2) exp(-(m - t)^T H (m - t) / 2) with precision H = (I / c + S)^-1 for q(z_n) of
    mean m and covariance S: a quadratic polynomial in t, which one matrix product evaluates for all n and t.
    """
    if spread.ndim == 2:
        precision = 1 / (1 / power + spread)  # [B, Q], the diagonal of H
        quadratic, shifted = precision, precision * mean
        log_det, squares = (1 + power * spread).log().sum(-1), target.square()
    else:
        precision, log_det = inverse_and_log_det(spread, power)
        rows, columns = torch.tril_indices(*precision.shape[1:], device=target.device)
        twice = torch.where(rows == columns, 1, 2)  # an entry below the diagonal also stands for the one above it
        quadratic, shifted = twice * precision[:, rows, columns], (precision @ mean[..., None]).squeeze(-1)
        squares = target[:, rows] * target[:, columns]
    constant = log_det + (shifted * mean).sum(-1)
    a = torch.cat([-quadratic / 2, shifted, -constant[:, None] / 2], 1)
    return a, torch.cat([squares, target, torch.ones_like(target[:, :1])], 1).mT


def inverse_and_log_det(covariance: Tensor, power: int) -> tuple[Tensor, Tensor]:
    """(I / c + S)^-1 [B, Q, Q] and log |I + c S| [B]. O(B Q^3)."""
    identity = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    chol = torch.linalg.cholesky(identity + power * covariance)
    log_det = 2 * chol.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    return power * torch.cholesky_inverse(chol), log_det


class SumOfExponentials(torch.autograd.Function):
    """sum_n exp(a b)_nt [T] of features a [B, F] and b [F, T]."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        """O(B T F)."""
        ctx.save_for_backward(a, b)
        return torch.cat([(a @ columns).exp_().sum(0) for columns in b.split(block_size(a), 1)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """Each exponential is computed again, which in the cache costs less than to fetch it from memory."""
        a, b = ctx.saved_tensors
        return weighted_products(a, b, grad)[:2]


class WeightedSumOfExponentials(torch.autograd.Function):
    """sum_nt exp(a b)_nt weights_t; it is linear in the weights, so that its gradient is there with its value."""

    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, weights: Tensor) -> Tensor:
        """O(B T F)."""
        *gradients, sums = weighted_products(a, b, weights)
        ctx.save_for_backward(*gradients, sums)
        return (sums * weights).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, ...]:
        """O(B F + T F)."""
        return tuple(grad * gradient for gradient in ctx.saved_tensors)


def weighted_products(a: Tensor, b: Tensor, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of sum_nt E_nt weights_t, E = exp(a b), in a, b and the weights, a block of columns at a time.

    E (b weights)^T [B, F], a^T E weights [F, T] and the sums of E [T]. These are not one more row of the product: `sum`
    adds in pairs, and its rounding errors, which the weights magnify, are ten times smaller.
    """
    grad_a, products, sums = torch.zeros_like(a), [], []
    for columns, weighted in zip(b.split(block_size(a), 1), (b * weights).split(block_size(a), 1), strict=True):
        exponentials = (a @ columns).exp_()
        grad_a.addmm_(exponentials, weighted.mT)
        products.append(a.mT @ exponentials)
        sums.append(exponentials.sum(0))
    return grad_a, torch.cat(products, 1) * weights, torch.cat(sums)


def block_size(a: Tensor) -> int:
    """How many columns make a block of `PAIR_BLOCK` entries."""
    return max(1, PAIR_BLOCK // len(a))
