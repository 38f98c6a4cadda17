"""What a training is followed by: hyperparameters, the share of the noise, and the latent dimensions in use.

After every epoch a model is looked at on a few training points, which are always the same. Nothing is drawn at random
and nothing changes, so the numbers of the training stay what they are.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from src.data.batch import Batch, Split
from src.models.learning import gpytorch_parameters
from src.models.posterior import Point, Posterior

if TYPE_CHECKING:
    from src.data.module import DataModule

POINTS = 256  # that a model is looked at; one pass of the encoder over them costs less than a step
FEW = 50  # values of a hyperparameter that have a column each; of more, the smallest and the largest
LEAST_VARIANCE = 0.01  # of the latent means of a dimension in use: Burda et al., 2016, "active units"
LEAST_SHARE = 0.01  # of the most used dimension's variance, in squared length scales
MOST_NOISE = 0.95  # of the variance of the data: beyond, the noise has swallowed them

COLUMNS = {"outputscale": "kernel_variance"}  # GPyTorch's names that history.csv does not use
Values = Mapping[str, float]  # of one epoch, by name


class Diagnosed:
    """What models share that tell how they are. A model says what its noise and its prior belong to."""

    if TYPE_CHECKING:

        @property
        def device(self) -> torch.device:
            """Where the parameters are."""

    def noisy_values(self, batch: Batch) -> Tensor | None:
        """The centred values that the noise is a part of, in the model's units; None if there are none."""
        return None

    def held_to_prior(self, batch: Batch) -> Posterior | None:
        """q(z) of training points if its prior is N(0, I), or if z are points; None if neither is true."""
        return None

    @torch.no_grad()
    def trace(self, data: "DataModule") -> dict[str, float]:
        """Hyperparameters, the share of the noise, and each latent dimension's spread and KL divergence."""
        assert isinstance(self, nn.Module)
        batch = spread_over(data.train).to(self.device)
        gp, values, q = hyperparameters(self), self.noisy_values(batch), self.held_to_prior(batch)
        found = {name: number for key, each in gp.items() for name, number in columns(key, each, q).items()}
        if "noise" in gp and values is not None:
            found["noise_share"] = (gp["noise"].mean() / values.square().mean()).item()
        if q is not None:
            found |= dimensions(q)
            found["active_dims"] = q.mean.shape[1] - len(unused_dimensions(found))
        return found


def spread_over(train: Split) -> Batch:
    """At most `POINTS` training points at equal distances, so that sorted data have points of all kinds."""
    count = min(POINTS, len(train))
    return train[torch.arange(count) * len(train) // count]


def hyperparameters(module: nn.Module) -> dict[str, Tensor]:
    """The values of GPyTorch's parameters: those of kernel and likelihood by a short name if it is unique."""
    found = [(name, constraint.transform(raw).flatten()) for name, raw, constraint in gpytorch_parameters(module)]
    short = [short_name(name) for name, _ in found]
    return {
        brief if brief and short.count(brief) == 1 else name.replace("raw_", ""): values
        for brief, (name, values) in zip(short, found, strict=True)
    }


def short_name(path: str) -> str | None:
    """`lengthscale` for `kernel.base_kernel.raw_lengthscale`; None for other parameters of other parts."""
    owner, name = path.partition(".")[0], path.rpartition(".raw_")[2]
    known = owner in ("kernel", "likelihood") and name in ("outputscale", "lengthscale", "noise")
    return COLUMNS.get(name, name) if known else None


def columns(name: str, values: Tensor, q: Posterior | None) -> dict[str, float]:
    """One column per value, counted from 1; of very many their range, unless they belong to latent dimensions."""
    if len(values) == 1:
        return {name: values.item()}
    if len(values) <= FEW or (q is not None and len(values) == q.mean.shape[1]):
        return {f"{name}_{i}": value for i, value in enumerate(values.tolist(), 1)}
    return {f"{name}_min": values.min().item(), f"{name}_max": values.max().item()}


def dimensions(q: Posterior) -> dict[str, float]:
    """The sd of the means of each latent dimension and, of a Gaussian q, KL[q(z_q) || N(0, 1)] per point, in nats.

    If q has a full covariance, it is the KL divergence of the marginals.
    """
    spread = q.mean.std(0, correction=0)
    found = {f"spread_{i}": value for i, value in enumerate(spread.tolist(), 1)}
    if isinstance(q, Point):
        return found
    kl = 0.5 * (q.mean.square() + q.variance - 1 - q.variance.log()).mean(0)
    return found | {f"kl_{i}": value for i, value in enumerate(kl.tolist(), 1)}


def unused_dimensions(values: Values) -> list[int]:
    """The latent dimensions, counted from 1, that an epoch's values show to be unused.

    The latent means of a dimension in use differ: by more than a hundredth of the most used dimension's variance in
    squared length scales, which are what a kernel sees; held to a prior N(0, 1), also by a variance above .01.
    """
    count = sum(name.startswith("spread_") for name in values)
    numbers = range(1, count + 1)
    common = values.get("lengthscale", 1.0)
    seen = {i: (values[f"spread_{i}"] / values.get(f"lengthscale_{i}", common)) ** 2 for i in numbers}
    least = LEAST_SHARE * max(seen.values(), default=0.0)
    small = {i for i in numbers if f"kl_{i}" in values and values[f"spread_{i}"] ** 2 <= LEAST_VARIANCE}
    return [i for i in numbers if i in small or seen[i] < least or not seen[i]]


def findings(values: Values) -> list[str]:
    """One sentence for each thing that went wrong, from the values of the last epoch."""
    unused = unused_dimensions(values)
    count = sum(name.startswith("spread_") for name in values)
    which = ", ".join(f"z{i}" for i in unused)
    verb = "is" if len(unused) == 1 else "are"
    found = [f"{len(unused)} of {count} latent dimensions {verb} unused: {which}"] if unused else []
    if values.get("noise_share", 0.0) > MOST_NOISE:
        ratio = f"{values['noise_share']:.2f} times"
        found.append(f"the noise variance is {ratio} that of the data: the model predicts little more than a mean")
    return found
