"""Missing values at points that a GP is conditioned on: each output then has a covariance of its own.

Output d of an active set sees the rows of K_AA where it was observed. Outputs observed at the same points, a pattern,
share one Cholesky factor, so G patterns cost G times as much as complete data. G is 1 if whole points are missing, and
up to D if holes are scattered. No value is ever filled in.

A pattern's factor is that of K_AA with the rows and columns of unseen points replaced by those of the identity. Points
that were not seen then add nothing to determinants, whitened values and projections, and all patterns have one size.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.utils.rnn import pad_sequence

from src.gp.evidence import LOG_2PI
from src.gp.geometry import JacobianMoments
from src.gp.kernels import covariance, variances
from src.gp.linalg import add_diagonal, cholesky, solve_lower, solve_upper, strict_cholesky

NUMBERS_AT_ONCE = 2**22  # of one array; as large as fits into the cache saves nothing more


class Patterns(NamedTuple):
    """Some of the patterns of an active set, with the outputs that have each."""

    seen: Tensor  # [G, A], 1 where the outputs of a pattern were observed, else 0
    outputs: Tensor  # [G, O], their numbers; padded with 0
    real: Tensor  # [G, O], False where `outputs` is padded

    def of(self, rows: Tensor) -> Tensor:
        """The columns of rows [X, D], by pattern, [G, X, O]."""
        return rows[:, self.outputs].movedim(0, 1)

    def covariances(self, k: Tensor) -> Tensor:
        """K_AA [A, A] by pattern, [G, A, A], the rows and columns of unseen points replaced by the identity's."""
        return k * self.seen.unsqueeze(1) * self.seen.unsqueeze(2) + (1 - self.seen).diag_embed()


def patterns_of(mask: Tensor, dtype: torch.dtype, other_points: int = 0) -> Iterator[Patterns]:
    """The patterns of a mask [A, D], as many at a time as the memory for `other_points` besides allows."""
    seen, pattern, counts = mask.unique(dim=1, return_inverse=True, return_counts=True)
    by_size = counts.argsort(stable=True)  # patterns of about the same size together
    outputs = pattern.argsort(stable=True).split(counts.tolist())
    num_points = len(mask)
    at_once = max(1, NUMBERS_AT_ONCE // (num_points * max(num_points, other_points, 1)))
    for group in by_size.split(at_once):
        mine = pad_sequence([outputs[g] for g in group.tolist()], batch_first=True, padding_value=-1)
        yield Patterns(seen[:, group].mT.to(dtype), mine.clamp_min(0), mine >= 0)


def patterns_by_rows(mask: Tensor, unseen: bool = False) -> Iterator[tuple[Tensor, Tensor]]:
    """For each pattern of a mask [N, D] the points it was seen at, and its outputs; those never seen if `unseen`."""
    seen, pattern = mask.unique(dim=1, return_inverse=True)
    for number, column in enumerate(seen.mT):
        if unseen or column.any():
            yield column.nonzero().squeeze(1), (pattern == number).nonzero().squeeze(1)


def log_densities_by_pattern(
    x: Tensor, mask: Tensor, z: Tensor, kernel: Kernel, noise: Tensor, active_size: int
) -> tuple[Tensor, Tensor, float]:
    """`log_densities` of x [B, D] where the mask [B, D] calls it observed, and the jitter.

    O(G A^2 (A + R) + A R D) for G patterns in the active set, value and gradient together; unseen values of x must be
    finite and have no part in it.
    """
    z_active, z_rest = z.tensor_split([active_size])
    k_aa, k_ar = covariance(kernel, z_active, z_active), covariance(kernel, z_active, z_rest)
    with torch.no_grad():
        _, jitter = cholesky(add_diagonal(k_aa, noise))
    k_rr = variances(kernel, z_rest)
    extra = jitter * (k_aa.diagonal().mean() + noise)
    active, rest = LogDensitiesByPattern.apply(x, mask, k_aa, k_ar, k_rr, noise, extra.detach())
    return active, rest, jitter


class LogDensitiesByPattern(torch.autograd.Function):
    """`LogDensities`, summed over patterns; its formulas for each, with the number of values seen in place of D.

    The gradient of a pattern is made with its value, so that nothing but the sums is kept.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, mask: Tensor, k_aa: Tensor, k_ar: Tensor, k_rr: Tensor, noise: Tensor, extra: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Eq. 2 and Eq. 5 of the SAS paper, over the values seen."""
        size = len(k_aa)
        noisy, values = add_diagonal(k_aa, noise + extra), torch.where(mask, x, 0.0)
        total = Sums.zeros(k_aa, k_ar)
        for patterns in patterns_of(mask[:size], x.dtype, len(k_rr)):
            observed = (patterns.of(mask[size:]) & patterns.real.unsqueeze(1)).to(x.dtype)
            parts = patterns.of(values[:size]) * patterns.real.unsqueeze(1), patterns.of(values[size:])
            total = total.plus(pattern_sums(patterns, noisy, k_ar, k_rr + noise, *parts, observed))
        ctx.save_for_backward(*total[2:])
        ctx.noise_shape = noise.shape
        return total.active, total.rest

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_active: Tensor, grad_rest: Tensor) -> tuple[Tensor | None, ...]:
        """O(A (A + R))."""
        active_by_k_aa, rest_by_k_aa, by_k_ar, by_variance = ctx.saved_tensors
        by_k_aa = grad_active * active_by_k_aa + grad_rest * rest_by_k_aa
        by_k_rr = grad_rest * by_variance
        by_noise = (by_k_aa.trace() + by_k_rr.sum()).expand(ctx.noise_shape)
        return None, None, by_k_aa, grad_rest * by_k_ar, by_k_rr, by_noise, None


class Sums(NamedTuple):
    """The two log densities and their gradients, summed over patterns."""

    active: Tensor
    rest: Tensor
    active_by_k_aa: Tensor  # [A, A]
    rest_by_k_aa: Tensor  # [A, A]
    rest_by_k_ar: Tensor  # [A, R]
    rest_by_variance: Tensor  # [R]

    @classmethod
    def zeros(cls, k_aa: Tensor, k_ar: Tensor) -> "Sums":
        """Nothing yet."""
        zero = k_aa.new_zeros(())
        square = torch.zeros_like(k_aa)
        return cls(zero, zero, square, square, torch.zeros_like(k_ar), k_ar.new_zeros(k_ar.shape[1]))

    def plus(self, other: "Sums") -> "Sums":
        """Both together."""
        return Sums._make(a + b for a, b in zip(self, other, strict=True))


def pattern_sums(
    patterns: Patterns, k: Tensor, k_ar: Tensor, k_rr: Tensor, x_active: Tensor, x_rest: Tensor, observed: Tensor
) -> Sums:
    """The densities of some patterns, with their gradients: the formulas of `LogDensities`, in its letters.

    k [A, A] and k_rr [R] include the noise; x_active [G, A, O] is 0 where it was not seen, `observed` [G, R, O] is 1
    where x_rest was.
    """
    seen, num_outputs = patterns.seen, patterns.real.sum(1).to(k)
    chol = strict_cholesky(patterns.covariances(k))  # [G, A, A]
    whitened, projection = solve_lower(chol, x_active), solve_lower(chol, seen.unsqueeze(2) * k_ar)
    error = observed * (x_rest - projection.mT @ whitened)  # [G, R, O]
    squared_error, count = error.square().sum(2), observed.sum(2)  # [G, R]
    variance = k_rr - projection.square().sum(1)
    log_det = 2 * chol.diagonal(dim1=1, dim2=2).log().sum(1)
    num_active = (seen.sum(1) * num_outputs).sum()
    active = -0.5 * ((num_outputs * log_det).sum() + whitened.square().sum() + num_active * LOG_2PI)
    rest = -0.5 * (count * (variance.log() + LOG_2PI) + squared_error / variance).sum()

    by_error = -0.5 / variance
    by_variance = -by_error * (squared_error / variance - count)
    through_mean = whitened @ error.mT * by_error.unsqueeze(1)
    through_variance = projection * by_variance.unsqueeze(1)
    identity = torch.eye(len(k), dtype=k.dtype, device=k.device)
    inner_active = (whitened @ whitened.mT - num_outputs.view(-1, 1, 1) * identity) / 2
    inner_rest = projection @ (2 * through_mean + through_variance).mT
    unwhitened = solve_upper(chol.mT, -2 * (through_mean + through_variance))
    by_k_ar = (seen.unsqueeze(2) * unwhitened).sum(0)
    active_by_k_aa, rest_by_k_aa = (unwhitened_twice(chol, inner, seen).sum(0) for inner in (inner_active, inner_rest))
    return Sums(active, rest, active_by_k_aa, rest_by_k_aa, by_k_ar, by_variance.sum(0))


def unwhitened_twice(chol: Tensor, inner: Tensor, seen: Tensor) -> Tensor:
    """L^-T inner L^-1 [G, A, A] at the points that each pattern has seen."""
    outer = solve_upper(chol.mT, torch.linalg.solve_triangular(chol, inner, upper=False, left=False))
    return outer * seen.unsqueeze(1) * seen.unsqueeze(2)


def log_density_by_pattern(x: Tensor, mask: Tensor, k: Tensor) -> tuple[Tensor, float]:
    """sum_d log N(x_d | 0, K) of the values that the mask [N, D] calls observed, and the jitter. O(G N^3)."""
    with torch.no_grad():
        _, jitter = cholesky(k)
    zero = k.new_zeros(())
    extra = (jitter * k.diagonal().mean()).detach()
    active, _ = LogDensitiesByPattern.apply(x, mask, k, k[:, :0], k[0, :0], zero, extra)
    return active, jitter


@dataclass(frozen=True)
class PatternedActiveSet:
    """A GP conditioned on A incomplete points: what prediction needs, factorised once. Memory is O(G A^2)."""

    z: Tensor  # [A, Q]
    weights: Tensor  # [A, D], K_d^-1 x_d at the points that output d was seen at, else 0
    inverses: Tensor  # [G, A A], K_g^-1 of each pattern, 0 at unseen points
    pattern: Tensor  # [D], the pattern of each output
    kernel: Kernel
    noise: Tensor
    jitter: float

    def predict(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [R, D] of p(x_n | x_A, z), Eq. 5; the noise is part of the variance. O(R (G A^2 + A D)).

        No variance is below the noise, whatever rounding says.
        """
        k_ra = covariance(self.kernel, z, self.z)
        rows_at_once = max(1, NUMBERS_AT_ONCE // len(self.z) ** 2)
        explained = torch.cat([self.explained(rows) for rows in k_ra.split(rows_at_once)])
        unexplained = (variances(self.kernel, z).unsqueeze(1) - explained).clamp_min(0)
        return k_ra @ self.weights, (unexplained + self.noise)[:, self.pattern]

    @cached_property
    def jacobian_moments(self) -> list[JacobianMoments]:
        """What the expected metric needs, made once: the inverses of all patterns, as often as they have outputs."""
        weights, outputs = self.weights.detach().double(), len(self.pattern)
        counts = self.pattern.bincount(minlength=len(self.inverses)).double()
        inverses = (counts @ self.inverses.detach().double()).view(len(self.z), -1)
        return [JacobianMoments(self.z.detach(), self.kernel, weights @ weights.mT - inverses, outputs)]

    def explained(self, k_ra: Tensor) -> Tensor:
        """k_ra K_g^-1 k_ar of each point and pattern [R, G], as one product over all pairs of active points."""
        return (k_ra.unsqueeze(2) * k_ra.unsqueeze(1)).flatten(1) @ self.inverses.mT


def condition_by_pattern(x: Tensor, mask: Tensor, z: Tensor, kernel: Kernel, noise: Tensor) -> PatternedActiveSet:
    """The GP given those values of x [A, D] at z [A, Q] that the mask calls observed. O(G A^3 + A^2 D)."""
    k = covariance(kernel, z, z)
    _, jitter = cholesky(add_diagonal(k, noise))
    noisy = add_diagonal(k, noise + jitter * (k.diagonal().mean() + noise))
    values, weights = torch.where(mask, x, 0.0), torch.zeros_like(x)
    inverses: list[Tensor] = []
    pattern = torch.empty(x.shape[1], dtype=torch.long, device=x.device)
    for patterns in patterns_of(mask, x.dtype):
        inverse = torch.cholesky_inverse(strict_cholesky(patterns.covariances(noisy)))
        inverse = inverse * patterns.seen.unsqueeze(1) * patterns.seen.unsqueeze(2)
        numbers = len(inverses) + torch.arange(len(inverse), device=x.device).unsqueeze(1)
        pattern[patterns.outputs[patterns.real]] = numbers.expand_as(patterns.real)[patterns.real]
        own = inverse @ patterns.of(values)  # [G, A, O]
        weights[:, patterns.outputs[patterns.real]] = own.mT[patterns.real].mT
        inverses.extend(inverse.flatten(1))
    return PatternedActiveSet(z, weights, torch.stack(inverses), pattern, kernel, noise, jitter)
