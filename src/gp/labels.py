"""Bits and classes as functions of logits f: what the quadratic bound and its predictions need of each kind.

Labels t [A, D] are bits, or one-hot rows of classes. Probabilities of new labels are expectations under normal logits,
whose variance is v [R] if all outputs of a point share it, or else v [R, D]. `seen` [R, D] is False where a label is
missing; the columns of one class are missing together.
"""

import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from src.gp.linalg import solve_lower

NODES = 12  # of the Gauss-Hermite quadrature of a bit's probability, and of that of two classes
SAMPLES = 64  # of the logits of three or more classes, half of them the mirror image of the others
NUMBERS_AT_ONCE = 2**14  # logits whose nodes fit into the cache together
TAIL = 20.0  # sigmoid(-TAIL) is exp(-TAIL) in float32


class Labels(Protocol):
    """A kind of labels, whose log probability has a curvature of at most 1 / width."""

    width: float  # w

    def num_functions(self, num_outputs: int) -> int:
        """Of the independent GPs behind the outputs."""

    def mean(self, f: Tensor) -> Tensor:
        """E[t | f]."""

    def log_prob(self, t: Tensor, f: Tensor) -> Tensor:
        """log p(t | f), summed over points and outputs."""

    def predictive(self, mean: Tensor, variance: Tensor) -> Tensor:
        """log p(t_nd = 1) [R, D] if f_nd ~ N(mean_nd, variance_n)."""

    def log_predictive(self, t: Tensor, mean: Tensor, variance: Tensor, seen: Tensor | None = None) -> Tensor:
        """sum_n log p(t_n), over points and outputs that were seen."""

    def log_odds(self, frequency: Tensor, num_points: int) -> Tensor:
        """Logits [D] at which each output is 1 as often as in `num_points` points, and half a point of either kind."""

    def part(self, outputs: Tensor) -> "Labels":
        """The same for some of the outputs."""


class Bits:
    """Each output is 1 with probability sigmoid(f)."""

    width = 4.0

    def num_functions(self, num_outputs: int) -> int:
        """One each."""
        return num_outputs

    def mean(self, f: Tensor) -> Tensor:
        """E[t | f]."""
        return f.sigmoid()

    def log_prob(self, t: Tensor, f: Tensor) -> Tensor:
        """log p(t | f), summed over points and outputs."""
        return (t * f - functional.softplus(f)).sum()

    def predictive(self, mean: Tensor, variance: Tensor) -> Tensor:
        """log p(t_nd = 1) [R, D], by Gauss-Hermite quadrature."""
        sd = variance.sqrt()
        answer: Tensor = LogExpectedSigmoid.apply(mean, sd.unsqueeze(1) if sd.ndim == 1 else sd)
        return answer

    def log_predictive(self, t: Tensor, mean: Tensor, variance: Tensor, seen: Tensor | None = None) -> Tensor:
        """sum_n log p(t_n), over points and outputs: sigmoid(-f) is the probability of 0."""
        log_p = self.predictive((2 * t - 1) * mean, variance)
        return log_p.sum() if seen is None else torch.where(seen, log_p, 0.0).sum()

    def log_odds(self, frequency: Tensor, num_points: int) -> Tensor:
        """The logit of a frequency between 0 and 1."""
        return smoothed(frequency, num_points).logit()

    def part(self, outputs: Tensor) -> "Bits":
        """Each output is a bit by itself."""
        return self


class Classes:
    """One of the P outputs is 1, with probabilities softmax(f)."""

    width = 2.0

    def num_functions(self, num_outputs: int) -> int:
        """P - 1, since softmax does not see what all logits share."""
        return num_outputs - 1

    def mean(self, f: Tensor) -> Tensor:
        """E[t | f]."""
        return f.softmax(-1)

    def log_prob(self, t: Tensor, f: Tensor) -> Tensor:
        """log p(t | f), summed over points."""
        return (t * f.log_softmax(-1)).sum()

    def predictive(self, mean: Tensor, variance: Tensor) -> Tensor:
        """log p(t_np = 1) [R, P] if f_n ~ N(mean_n, variance_n I), from a fixed set of points of a standard normal."""
        logits, log_weights = sampled(mean, variance)
        return (logits.log_softmax(-1) + log_weights.unsqueeze(-1)).logsumexp(-2)

    def log_predictive(self, t: Tensor, mean: Tensor, variance: Tensor, seen: Tensor | None = None) -> Tensor:
        """sum_n log p(t_n), over points; half the work if only one class counts."""
        if seen is not None:
            rows = seen[:, 0]
            return self.log_predictive(t[rows], mean[rows], variance[rows])
        logits, log_weights = sampled(mean, variance)
        chosen = torch.einsum("rsp,rp->rs", logits, t)
        return (chosen - logits.logsumexp(-1) + log_weights).logsumexp(-1).sum()

    def log_odds(self, frequency: Tensor, num_points: int) -> Tensor:
        """The logarithm of each frequency."""
        return smoothed(frequency, num_points).log()

    def part(self, outputs: Tensor) -> "Classes":
        """The outputs of a class belong together."""
        return self


class OneHot:
    """Several classes: of each group of consecutive outputs, one is 1."""

    width = Classes.width

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = tuple(sizes)  # of the groups

    def groups(self, *tensors: Tensor) -> Iterator[tuple[Tensor, ...]]:
        """The columns of each group."""
        return zip(*(tensor.split(self.sizes, -1) for tensor in tensors), strict=True)

    def num_functions(self, num_outputs: int) -> int:
        """One less than its outputs for each group."""
        return num_outputs - len(self.sizes)

    def mean(self, f: Tensor) -> Tensor:
        """E[t | f]."""
        return torch.cat([part.softmax(-1) for (part,) in self.groups(f)], -1)

    def log_prob(self, t: Tensor, f: Tensor) -> Tensor:
        """log p(t | f), summed over points and groups."""
        return torch.stack([Classes().log_prob(*group) for group in self.groups(t, f)]).sum()

    def predictive(self, mean: Tensor, variance: Tensor) -> Tensor:
        """log p(t_nd = 1) [R, D]."""
        v = by_output(variance, mean)
        return torch.cat([Classes().predictive(part, own[:, 0]) for part, own in self.groups(mean, v)], -1)

    def log_predictive(self, t: Tensor, mean: Tensor, variance: Tensor, seen: Tensor | None = None) -> Tensor:
        """sum_n log p(t_n), over points and groups."""
        seen = torch.ones_like(t, dtype=torch.bool) if seen is None else seen
        groups = self.groups(t, mean, by_output(variance, mean), seen)
        parts = [Classes().log_predictive(own, f, v[:, 0], known) for own, f, v, known in groups]
        return torch.stack(parts).sum()

    def log_odds(self, frequency: Tensor, num_points: int) -> Tensor:
        """The logarithm of each frequency."""
        return Classes().log_odds(frequency, num_points)

    def part(self, outputs: Tensor) -> "OneHot":
        """Whole groups."""
        group = torch.arange(len(self.sizes)).repeat_interleave(torch.tensor(self.sizes))
        return OneHot(group[outputs.cpu()].unique_consecutive(return_counts=True)[1].tolist())


def smoothed(frequency: Tensor, num_points: int) -> Tensor:
    """Frequencies that are neither 0 nor 1: half a point more of either kind."""
    return (num_points * frequency + 0.5) / (num_points + 1)


def by_output(variance: Tensor, mean: Tensor) -> Tensor:
    """Variances [R] or [R, D] as [R, D]."""
    return variance.unsqueeze(1).expand_as(mean) if variance.ndim == 1 else variance


class LogExpectedSigmoid(torch.autograd.Function):
    """log E[sigmoid(m + s e)], e ~ N(0, 1), of means m [R, D] and sds s [R, 1] or [R, D], with both slopes in one pass.

    With p = sigmoid(f) at the nodes and P = E[p] the slopes are E[p (1 - p)] / P in m and E[e p (1 - p)] / P in s.
    Far below 0, where all nodes have sigmoid(f) = exp(f), the value is linear in m with slope 1: m is kept out of
    there, so that no precision runs out of numbers, and what is cut off is added at the end.
    """

    @staticmethod
    def forward(ctx: Any, mean: Tensor, sd: Tensor) -> Tensor:
        """O(nodes R D), a part of the rows at a time."""
        nodes, log_weights = quadrature(mean)
        weights = torch.stack([log_weights.exp(), nodes * log_weights.exp()])
        least = -TAIL - nodes[-1] * sd
        value, by_mean, by_sd = (torch.empty_like(mean) for _ in range(3))
        rows_at_once = max(1, NUMBERS_AT_ONCE // mean.shape[1])
        parts = zip(*(tensor.split(rows_at_once) for tensor in (mean, sd, least, value, by_mean, by_sd)), strict=True)
        for m, s, low, *results in parts:
            kept = torch.maximum(m, low)
            p = (kept + s * nodes[:, None, None]).sigmoid_().flatten(1)  # [nodes, r D]
            first, second = weights @ p, weights @ p.square_()  # E[p], E[e p], and the same of p^2
            total, slopes = first[0], first - second
            results[0].copy_((total.log().view_as(m) + m).sub_(kept))
            for result, slope in zip(results[1:], slopes, strict=True):
                result.copy_((slope / total).view_as(m))
        ctx.save_for_backward(by_mean, by_sd)
        ctx.sd_shape = sd.shape
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        """O(R D)."""
        by_mean, by_sd = ctx.saved_tensors
        return grad * by_mean, (grad * by_sd).sum_to_size(ctx.sd_shape)


def quadrature(like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and log weights [NODES] for expectations under a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return like.new_tensor(nodes), like.new_tensor(np.log(weights / weights.sum()))


def sampled(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [R, S, P] of classes and their log weights [S], for expectations under N(mean_n, variance_n I)."""
    points, log_weights = normal_points(mean)
    return mean.unsqueeze(-2) + variance.sqrt()[:, None, None] * points, log_weights


def normal_points(like: Tensor) -> tuple[Tensor, Tensor]:
    """Points [S, P] orthogonal to 1 and log weights [S] for expectations under a standard normal, for `like` [..., P].

    Two classes have one direction, whose quadrature is as good as exact. More classes have a fixed set of low
    discrepancy with the moments of a normal up to the third: the same points in every call, so that nothing is random.
    """
    num_classes = like.shape[-1]
    if num_classes == 2:
        nodes, log_weights = quadrature(like)
        return nodes.unsqueeze(-1) * like.new_tensor([1, -1]) / math.sqrt(2), log_weights
    points = fixed_points(num_classes).to(like)
    return points, points.new_full((len(points),), -math.log(len(points)))


@cache
def fixed_points(num_classes: int) -> Tensor:
    """Sobol points in the P - 1 directions orthogonal to 1, mirrored and scaled to covariance 1 in each, [S, P]."""
    size = max(SAMPLES, 4 * num_classes)  # half of them determine the covariance
    uniform = torch.quasirandom.SobolEngine(num_classes - 1, scramble=True, seed=0).draw(size // 2, dtype=torch.float64)
    half = torch.special.ndtri(uniform)
    points = torch.cat([half, -half])
    points = solve_lower(torch.linalg.cholesky(points.mT @ points / size), points.mT).mT
    directions = torch.linalg.svd(torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes).U[:, :-1]
    return points @ directions.mT
