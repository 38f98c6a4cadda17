"""q(z): a point or a Gaussian with diagonal or full covariance; amortised by a net, or free, one row per data point."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence
from torch.nn.functional import softplus

from src.runs.bars import bar

Kind = Literal["point", "diagonal", "full"]


@dataclass(frozen=True)
class Point:
    """All mass on one latent point, with what the models use of torch's distributions."""

    mean: Tensor  # [B, Q]

    @property
    def variance(self) -> Tensor:
        """None at all."""
        return torch.zeros_like(self.mean)

    def rsample(self) -> Tensor:
        """The point itself."""
        return self.mean


Posterior = Point | Independent | MultivariateNormal


def spread_size(kind: Kind, latent_dim: int) -> int:
    """How many numbers describe the spread of q around its mean."""
    return {"point": 0, "diagonal": latent_dim, "full": latent_dim * (latent_dim + 1) // 2}[kind]


def build(kind: Kind, mean: Tensor, spread: Tensor) -> Posterior:
    """q(z) from its mean [B, Q] and the unconstrained numbers of its spread [B, `spread_size`]."""
    if kind == "point":
        return Point(mean)
    if kind == "diagonal":
        variance = positive(spread)
        return Independent(Normal(mean, variance.sqrt(), validate_args=False), 1, validate_args=False)
    return MultivariateNormal(mean, scale_tril=lower_triangle(spread, mean.shape[-1]), validate_args=False)


def positive(spread: Tensor) -> Tensor:
    """softplus(.), kept above 1e-35: float32 has no logarithm of zero, which would stop the training."""
    return softplus(spread.clamp_min(-80.0))


def lower_triangle(spread: Tensor, size: int) -> Tensor:
    """The Cholesky factor [B, Q, Q] with positive diagonal sqrt(softplus(.)): the first Q numbers are the diagonal."""
    diagonal, below = positive(spread[..., :size]).sqrt(), spread[..., size:]
    rows, columns = torch.tril_indices(size, size, offset=-1, device=spread.device)
    batch = torch.arange(len(spread), device=spread.device)[:, None]
    return diagonal.diag_embed().index_put((batch, rows, columns), below)


def numbers(q: Posterior) -> tuple[Kind, Tensor, Tensor]:
    """What `build` makes q(z) of: its kind, mean [B, Q] and unconstrained spread [B, `spread_size`]."""
    if isinstance(q, Point):
        return "point", q.mean, q.mean[:, :0]
    if isinstance(q, Independent):
        return "diagonal", q.mean, inverse_positive(q.variance)
    scale, size = q.scale_tril, q.mean.shape[-1]
    rows, columns = torch.tril_indices(size, size, offset=-1, device=scale.device)
    diagonal = inverse_positive(scale.diagonal(dim1=-2, dim2=-1).square())
    return "full", q.mean, torch.cat([diagonal, scale[..., rows, columns]], -1)


def inverse_positive(variance: Tensor) -> Tensor:
    """softplus^-1, without overflow."""
    return variance + (-(-variance).expm1()).log()


def rows_of(q: Posterior, rows: Tensor) -> Posterior:
    """q(z) of some of the points."""
    if isinstance(q, Point):
        return Point(q.mean[rows])
    if isinstance(q, Independent):
        return gaussian(q.mean[rows], q.variance[rows])
    return MultivariateNormal(q.mean[rows], scale_tril=q.scale_tril[rows], validate_args=False)


def with_rows(q: Posterior, rows: Tensor, other: Posterior) -> Posterior:
    """q(z) with that of some points replaced by another."""
    kind, *mine = numbers(q)
    _, *theirs = numbers(other)
    return build(kind, *(own.index_put((rows,), new) for own, new in zip(mine, theirs, strict=True)))


def kl_to_prior(q: Posterior) -> Tensor:
    """KL[q(z_n) || N(0, I)] of each point [B]."""
    if isinstance(q, Point):
        raise TypeError("a point has no density, hence no KL divergence")
    zero, one = torch.zeros_like(q.mean), torch.ones_like(q.mean)
    if isinstance(q, Independent):
        return kl_divergence(q, Independent(Normal(zero, one, validate_args=False), 1, validate_args=False))
    return kl_divergence(q, MultivariateNormal(zero, scale_tril=one.diag_embed(), validate_args=False))


def divergence(q: Posterior) -> Tensor | float:
    """KL[q(z_n) || N(0, I)] of each point [B]; a point, which has no density, is not held to the prior."""
    return 0.0 if isinstance(q, Point) else kl_to_prior(q)


class Amortised(nn.Module):
    """q(z_n) = q(z | x_n): one net for the means and one of the same form for the spread."""

    free = False

    def __init__(self, kind: Kind, latent_dim: int, net: Callable[[int], nn.Module]) -> None:
        super().__init__()
        self.kind: Kind = kind
        self.mean = net(latent_dim)
        size = spread_size(kind, latent_dim)
        self.spread = net(size) if size else None

    def forward(self, x: Tensor, index: Tensor | None = None) -> Posterior:
        """q of each image; its row in the dataset plays no part."""
        mean = self.mean(x)
        return build(self.kind, mean, self.spread(x) if self.spread else mean)


class GaussianNet(Amortised):
    """q(z | x) with the mean and the log variance from one net, the variance kept within limits."""

    def __init__(self, net: nn.Module, variance_range: Sequence[float] = (1e-10, 1e10)) -> None:
        nn.Module.__init__(self)
        self.kind = "diagonal"
        self.net, self.limits = net, [math.log(limit) for limit in variance_range]

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Independent:
        """q of each observation, for a conditional VAE given the condition."""
        mean, log_variance = (self.net(x) if condition is None else self.net(x, condition)).chunk(2, 1)
        return gaussian(mean, log_variance.clamp(*self.limits).exp())  # exp first would overflow, with a NaN gradient


def gaussian(mean: Tensor, variance: Tensor) -> Independent:
    """Independent normals over the last dimension."""
    return Independent(Normal(mean, variance.sqrt(), validate_args=False), 1, validate_args=False)


class Free(nn.Module):
    """q(z_n) with parameters of its own; gradients are sparse, so a step touches the batch's rows only."""

    free = True

    def __init__(self, kind: Kind, latent_dim: int, num_data: int) -> None:
        super().__init__()
        self.kind: Kind = kind
        self.mean = nn.Embedding(num_data, latent_dim, sparse=True)
        size = spread_size(kind, latent_dim)
        self.spread = nn.Embedding(num_data, size, sparse=True) if size else None

    @torch.no_grad()
    def start_at(self, mean: Tensor, variance: float = 0.1) -> None:
        """Begin at given means [N, Q] (PCA scores) with small uncorrelated variances."""
        self.mean.weight.copy_(mean)
        if self.spread is not None:
            latent_dim = mean.shape[-1]
            self.spread.weight[:, :latent_dim] = torch.tensor(variance).expm1().log()  # softplus^-1
            self.spread.weight[:, latent_dim:] = 0

    def forward(self, x: Tensor, index: Tensor) -> Posterior:
        """q of the rows `index`; the images play no part."""
        mean = self.mean(index)
        return build(self.kind, mean, self.spread(index) if self.spread else mean)


def around(kind: Kind, mean: Tensor) -> Posterior:
    """A q(z) to start from: given means [B, Q], small variances and no correlation."""
    spread = mean.new_zeros(len(mean), spread_size(kind, mean.shape[-1]))
    spread[:, : mean.shape[-1]] = -3.0
    return build(kind, mean, spread)


Gain = Callable[[Posterior], Tensor]  # log p(x | z) - KL of each point [B], at a draw of z from q(z)
DRAWS = 16  # that an expected gain is estimated from


def fit(start: Posterior, gain: Gain, steps: int, lr: float) -> Posterior:
    """The q(z) of points whose decoder is fixed that has the highest gain, E_q[log p(x | z)] - KL, from `start`.

    A point that ends with less than it started with, by the same draws, keeps its start.
    """
    kind, *first = numbers(start)
    mean, spread = (tensor.detach().clone().requires_grad_() for tensor in first)
    optimizer = torch.optim.Adam([mean, spread], lr=lr)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=steps)
    for _ in bar(range(steps), "embedding"):
        loss = -gain(build(kind, mean, spread)).sum()
        gradients = torch.autograd.grad(loss, (mean, spread), materialize_grads=True)
        mean.grad, spread.grad = gradients
        optimizer.step()
        schedule.step()
    with torch.no_grad():
        better = (expected(gain, build(kind, mean, spread)) >= expected(gain, start))[:, None]
        return build(kind, mean.where(better, first[0]), spread.where(better, first[1]))


def expected(gain: Gain, q: Posterior, draws: int = DRAWS) -> Tensor:
    """E_q[log p(x | z)] - KL of each point [B], estimated from draws that are the same in every call."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return torch.stack([gain(q) for _ in range(1 if isinstance(q, Point) else draws)]).mean(0)
