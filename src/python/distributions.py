"""What can be said about a predicted distribution: moments, variance without noise, quantiles, and draws."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch import distributions as D

from src.data.facts import Facts
from src.models.likelihoods import Gaussian, Likelihood
from src.models.one_hot import OneHot
from src.models.warp import Warped
from src.runs.errors import UserError


def variance_of(p: D.Distribution) -> Tensor:
    """The variance of each value; some distributions have one per point."""
    return p.variance.expand_as(p.mean)


def variance_without_noise(p: D.Distribution, likelihood: Likelihood) -> Tensor | None:
    """The variance of what a Gaussian decoder knows, through its warp; None for bits and categories.

    Of a Gaussian, p has the variance of the function plus the noise.
    """
    if not isinstance(likelihood, Gaussian):
        return None
    normal = p.normal if isinstance(p, Warped) else p
    known = (normal.variance - likelihood.noise).clamp_min(0).expand_as(normal.mean)
    if not isinstance(p, Warped):
        return known
    return Warped(D.Normal(normal.mean, known.sqrt(), validate_args=False), p.warp).variance


def check_levels(levels: Sequence[float]) -> None:
    """Raise a UserError for levels that are no probabilities."""
    for level in levels:
        if not 0 < level < 1:
            raise UserError(f"quantiles={list(levels)}: {level} must lie between 0 and 1")


def quantile(p: D.Distribution, level: float) -> Tensor:
    """The value that an observation stays below with this probability."""
    if isinstance(p, Warped):
        return p.warp.inverse(quantile(p.normal, level))
    if isinstance(p, D.Normal):
        return p.icdf(p.mean.new_tensor(level)).expand_as(p.mean)
    if isinstance(p, D.Bernoulli):
        return (p.probs > 1 - level).to(p.probs)
    kind = "categories" if isinstance(p, OneHot) else type(p).__name__
    raise UserError(f"quantiles of {kind} are not defined: leave quantiles out")


def draw(p: D.Distribution, facts: Facts, generator: torch.Generator) -> Tensor:
    """One draw of each observation, with random numbers of the generator alone."""
    if isinstance(p, Warped):
        return p.warp.inverse(draw(p.normal, facts, generator))
    noise = torch.rand(p.mean.shape, generator=generator, dtype=torch.float64).to(p.mean.device)
    if isinstance(p, D.Bernoulli):
        return (noise < p.probs).to(p.mean)
    if isinstance(p, OneHot):
        gumbels = (p.log_probs - (-noise.log()).log()).split(facts.one_hot, -1)
        picked = [torch.nn.functional.one_hot(each.argmax(-1), each.shape[-1]) for each in gumbels]
        return torch.cat(picked, -1).to(p.mean)
    return p.mean + p.stddev * torch.special.ndtri(noise.clamp(1e-12, 1 - 1e-12)).to(p.mean)
