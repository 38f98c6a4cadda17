"""Likelihoods p(x | f): how values, observed or predicted, scatter around a function f.

Each gives p(x | f), the predictive distribution of x if f ~ N(mean, variance), log p(x | f) with a mask, and its
expectation under N(mean, variance). Everything works value by value on tensors [..., *shape]; a Categorical has its P
logits in the last dimension. A mask is True where a value was observed; other values add exactly nothing.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor, nn
from torch import distributions as D
from torch.quasirandom import SobolEngine

from src.data.facts import Facts
from src.gp import labels
from src.gp.labels import Labels
from src.models.needs import bits_problem, require
from src.models.one_hot import OneHot
from src.runs.errors import UserError

NODES = 32  # of the Gauss-Hermite quadrature: exact to 1e-8 for logits with an sd up to 3
SAMPLES = 256  # of f, for likelihoods of several logits, which have no closed form
EVEN_DRAWS = 512  # of f, for predicted probabilities of classes: exact to about 1e-3


class Likelihood(nn.Module, ABC):
    """p(x | f). Its `name` is that in configs; `score` names the metric of its log density.

    Reals and bits never share a score. `noise` is what a likelihood with noise starts from; others leave it alone.
    """

    name: ClassVar[str]
    score: ClassVar[str]
    samples: int = SAMPLES  # of f, for expectations without a closed form
    labels: Labels | None = None  # what the quadratic bound needs to know of bits and classes

    def __init__(self, noise: float | None = None) -> None:
        super().__init__()

    def num_functions(self, size: int) -> int:
        """The number of functions f behind a target of P real numbers or classes."""
        return size

    @abstractmethod
    def given(self, f: Tensor) -> D.Distribution:
        """p(x | f)."""

    @abstractmethod
    def predictive(self, mean: Tensor, variance: Tensor) -> D.Distribution:
        """p(x) = E[p(x | f)] under f ~ N(mean, variance)."""

    @abstractmethod
    def expected_log_prob(self, x: Tensor, mean: Tensor, variance: Tensor, mask: Tensor | None = None) -> Tensor:
        """E[log p(x | f)] of each value under f ~ N(mean, variance)."""

    def log_prob(self, x: Tensor, f: Tensor, mask: Tensor | None = None) -> Tensor:
        """log p(x | f) of each value."""
        return masked_log_prob(self.given(f), x, mask)

    def check(self, facts: Facts) -> None:
        """Raise a UserError if values of this kind cannot be modelled."""


class Gaussian(Likelihood):
    """x = f + noise, with one variance for all values, learned or fixed, or a learned one for each of P outputs."""

    name = "gaussian"
    score = "nlpd"

    def __init__(self, noise: float = 0.1, learned: bool = True, outputs: int | None = None) -> None:
        super().__init__()
        self.fixed = None if learned else noise
        each = torch.Size([] if outputs is None else [outputs])
        self.learned = GaussianLikelihood(batch_shape=each) if learned else None
        if self.learned is not None:
            self.learned.noise = noise

    @property
    def noise(self) -> Any:
        """The variance: a tensor [1] or [P] if it is learned, a number if it is fixed."""
        return self.fixed if self.learned is None else self.learned.noise.flatten()

    def given(self, f: Tensor) -> D.Normal:
        """N(f, noise)."""
        return D.Normal(f, self.noise**0.5 if self.learned is None else self.noise.sqrt(), validate_args=False)

    def predictive(self, mean: Tensor, variance: Tensor) -> D.Normal:
        """N(mean, variance + noise)."""
        return D.Normal(mean, (variance + self.noise).sqrt(), validate_args=False)

    def expected_log_prob(self, x: Tensor, mean: Tensor, variance: Tensor, mask: Tensor | None = None) -> Tensor:
        """log N(x | mean, noise) - variance / (2 noise)."""
        return masked(self.given(mean).log_prob(x_at(x, mask)) - variance / (2 * self.noise), mask)


class Bernoulli(Likelihood):
    """Bits: x is 1 with probability sigmoid(f)."""

    name = "bernoulli"
    score = "nlp"
    labels: Labels = labels.Bits()

    def given(self, f: Tensor) -> D.Bernoulli:
        """Bernoulli(sigmoid(f))."""
        return D.Bernoulli(logits=f, validate_args=False)

    def predictive(self, mean: Tensor, variance: Tensor) -> D.Bernoulli:
        """Bernoulli(E[sigmoid(f)]), by quadrature."""
        return D.Bernoulli(probs=quadrature(torch.sigmoid, mean, variance), validate_args=False)

    def expected_log_prob(self, x: Tensor, mean: Tensor, variance: Tensor, mask: Tensor | None = None) -> Tensor:
        """E[x f - log(1 + exp(f))], by quadrature."""
        log_normaliser = quadrature(nn.functional.softplus, mean, variance)
        return masked(x_at(x, mask) * mean - log_normaliser, mask)

    def check(self, facts: Facts) -> None:
        """Grey values are no bits: their cross-entropy is not a log probability."""
        require(bits_problem(self.name, facts.binary))

    def num_functions(self, size: int) -> int:
        """The logit of the second of two classes."""
        return 1


class Categorical(Likelihood):
    """One of P classes with probabilities softmax(f), f [..., P]; x are class ids [...]."""

    name = "categorical"
    score = "nlp"

    def given(self, f: Tensor) -> D.Categorical:
        """Categorical(softmax(f))."""
        return D.Categorical(logits=f, validate_args=False)

    def predictive(self, mean: Tensor, variance: Tensor) -> D.Categorical:
        """Categorical(E[softmax(f)]), from the same draws for every point: a function of mean and variance alone."""
        f = mean + variance.sqrt() * even_draws(mean).view(-1, *[1] * (mean.ndim - 1), mean.shape[-1])
        return D.Categorical(probs=f.softmax(-1).mean(0), validate_args=False)

    def expected_log_prob(self, x: Tensor, mean: Tensor, variance: Tensor, mask: Tensor | None = None) -> Tensor:
        """E[f_x] - E[log sum_p exp(f_p)], the second from samples of f."""
        chosen = mean.gather(-1, x_at(x, mask).long().unsqueeze(-1)).squeeze(-1)
        return masked(chosen - samples_of(mean, variance, self.samples).logsumexp(-1).mean(0), mask)

    def check(self, facts: Facts) -> None:
        """Observations as categories take a GP decoder."""
        raise UserError("model.likelihood=categorical needs model=sas, bayesian_sas or gplvm")


class OneHotColumns(Categorical):
    """Several categories, each of which has a group of one-hot columns: x and f [..., D]."""

    labels: labels.OneHot

    def __init__(self, sizes: Sequence[int]) -> None:
        super().__init__()
        self.labels = labels.OneHot(sizes)

    def given(self, f: Tensor) -> OneHot:  # type: ignore[override]
        """The probabilities softmax(f) of each group."""
        return OneHot(self.labels.mean(f).log())

    def check(self, facts: Facts) -> None:
        """Every column belongs to a category."""
        if not facts.one_hot:
            raise UserError(
                "model.likelihood=categorical needs a table whose columns are all one-hot: name their categories in "
                "dataset.one_hot (grey levels are ordered, and no categories)"
            )


class RegressionNetwork(Likelihood):
    """P real numbers y_p = w_p g + noise_p (a GP regression network with one node, Wilson et al., 2012).

    f [..., P + 1] are the weights w and then the node g. The expected density is exact, and so is the predictive one
    of each number up to quadrature over g: given g, it is normal.
    """

    name = "gprn"
    score = "nlpd"

    def __init__(self, noise: float = 0.1, outputs: int | None = None) -> None:
        super().__init__()
        self.observed = Gaussian(noise, outputs=outputs)

    def num_functions(self, size: int) -> int:
        """A weight for each number, and the node."""
        return size + 1

    def given(self, f: Tensor) -> D.Normal:
        """N(w g, noise)."""
        return self.observed.given(f[..., :-1] * f[..., -1:])

    def predictive(self, mean: Tensor, variance: Tensor) -> D.MixtureSameFamily:
        """The mixture over g of N(E[w] g, var[w] g^2 + noise)."""
        nodes, weights = (torch.as_tensor(part).to(mean) for part in np.polynomial.hermite_e.hermegauss(NODES))
        g = mean[..., -1:, None] + variance[..., -1:, None].sqrt() * nodes  # [..., 1, nodes]
        noise = self.observed.noise[:, None]
        sd = (variance[..., :-1, None] * g.square() + noise).sqrt()
        given_g = D.Normal(mean[..., :-1, None] * g, sd, validate_args=False)
        chances = (weights / weights.sum()).expand_as(sd)
        return D.MixtureSameFamily(D.Categorical(chances, validate_args=False), given_g, validate_args=False)

    def expected_log_prob(self, x: Tensor, mean: Tensor, variance: Tensor, mask: Tensor | None = None) -> Tensor:
        """That of a Gaussian with the moments of w g, which are independent."""
        w, g = mean[..., :-1], mean[..., -1:]
        spread = variance[..., :-1] * (g.square() + variance[..., -1:]) + w.square() * variance[..., -1:]
        return self.observed.expected_log_prob(x, w * g, spread, mask)

    def check(self, facts: Facts) -> None:
        """It is made for the few targets of a predictor."""
        raise UserError("model.likelihood=gprn is for the targets of model=autogp; use model.likelihood=gaussian")


def likelihood_of(name: str, noise: float) -> Likelihood:
    """A likelihood by its name in a config."""
    known = {kind.name: kind for kind in Likelihood.__subclasses__()}
    if name not in known:
        raise UserError(f"model.likelihood={name} is none of {', '.join(known)}")
    return known[name](noise)


def decoder_likelihood(name: str | None, noise: float, facts: Facts) -> Likelihood:
    """The likelihood of the observations of a GP decoder; None is Gaussian."""
    if name == "categorical":
        return OneHotColumns(facts.one_hot)
    if name not in (None, "gaussian", "bernoulli"):
        raise UserError(f"model.likelihood={name} does not fit a GP decoder: gaussian, bernoulli or categorical")
    return likelihood_of(name or "gaussian", noise)


def predicted(kind: Labels, mean: Tensor, variance: Tensor, shape: Sequence[int]) -> D.Bernoulli | OneHot:
    """Bits or categories [B, *shape] with normal logits [B, D]; the odds of bits keep their precision if certain."""
    log_p = kind.predictive(mean, variance)
    if isinstance(kind, labels.Bits):
        log_odds = log_p - kind.predictive(-mean, variance)
        return D.Bernoulli(logits=log_odds.unflatten(1, tuple(shape)), validate_args=False)
    return OneHot(log_p.unflatten(1, tuple(shape)))


def masked_log_prob(p: D.Distribution, x: Tensor, mask: Tensor | None) -> Tensor:
    """log p(x) of each value; values that are not observed add nothing and have no gradient."""
    answer: Tensor = p.log_prob(x_at(x, mask))
    return masked(answer, mask)


def masked(values: Tensor, mask: Tensor | None) -> Tensor:
    """Zero where nothing was observed."""
    return values if mask is None else torch.where(mask, values, 0.0)


def mean_observed(values: Tensor, mask: Tensor | None) -> Tensor:
    """The mean of the values that were observed."""
    return values.mean() if mask is None else masked(values, mask).sum() / mask.sum()


def x_at(x: Tensor, mask: Tensor | None) -> Tensor:
    """x without its NaNs, whose gradients would be NaN even behind a mask."""
    return x if mask is None else torch.where(mask, x, torch.zeros_like(x))


def quadrature(function: Any, mean: Tensor, variance: Tensor) -> Tensor:
    """E[function(f)] under f ~ N(mean, variance), value by value."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    total = torch.zeros_like(mean)
    for node, weight in zip(nodes, weights, strict=True):
        total = total + weight / math.sqrt(2 * math.pi) * function(mean + node * variance.sqrt())
    return total


def samples_of(mean: Tensor, variance: Tensor, number: int) -> Tensor:
    """Samples [S, ..., P] of f ~ N(mean, variance), with a gradient in both."""
    return mean + variance.sqrt() * torch.randn(number, *mean.shape, dtype=mean.dtype, device=mean.device)


def even_draws(like: Tensor) -> Tensor:
    """The same draws [S, P] of N(0, I) in every call, more even than random ones (a scrambled Sobol sequence)."""
    uniform = SobolEngine(like.shape[-1], scramble=True, seed=0).draw(EVEN_DRAWS, dtype=torch.float64)
    return torch.special.ndtri(uniform).to(like)
