"""The interface of a task, and its subject: a trained model with its data. Tasks share latents encoded once."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from src.data.batch import Split
from src.evaluation.shown import Limits, limits_of, spread, varied
from src.models.capabilities import HasLatents
from src.models.posterior import Point, Posterior
from src.runs.bars import bar

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from src.data.module import DataModule

LOOKED_AT = 1000  # test points whose values decide what is black and white
CHUNK = 2000  # points encoded or predicted at a time; bounds the memory

Settings = Mapping[str, Any]  # the `evaluation` part of a config
Scores = dict[str, float]
Arrays = dict[str, np.ndarray]


class Metric(NamedTuple):
    """How tables and pages show a metric."""

    label: str
    better: Literal["lower", "higher", "neither"] = "lower"
    digits: int = 4


@dataclass
class Subject:
    """A trained model, its data and the settings of the evaluation."""

    model: Any
    data: "DataModule"
    settings: Settings
    seed: int = 0
    history: Sequence[Mapping[str, float]] = field(default=())  # one row per epoch, if the model was just trained

    @cached_property
    def test_posterior(self) -> "Latents":
        """q(z) of the test split."""
        return latents_of(self.model, self.data.test, seen=False)

    @property
    def test_latents(self) -> Tensor:
        """The latent means [n, Q] of the test split, on the CPU."""
        return self.test_posterior.mean

    @cached_property
    def train_latents(self) -> Tensor:
        """The latent means [N, Q] of the training split, on the CPU."""
        return latent_means(self.model, self.data.train, seen=True)

    @cached_property
    def given(self) -> Any:
        """What predictions from the checkpoint condition on."""
        return self.model.given()

    @cached_property
    def limits(self) -> Limits:
        """The values of test images that are black and white in pictures."""
        test = self.data.test
        return limits_of(self.model.as_float(test[spread(len(test), LOOKED_AT)].x).cpu())

    def varied(self, n: int) -> Tensor:
        """The rows of n test points of different classes, if there are classes."""
        classes = self.data.test.y if self.data.facts.target.kind == "class" else None
        return varied(len(self.data.test), classes, n)

    def decode(self, z: Tensor) -> "Decoded":
        """Decode any latent points [n, Q]; models that need auxiliary columns get those of the first test point."""
        aux = self.data.test.aux
        at = None if aux is None else aux[:1].expand(len(z), -1)
        return decoded(self.model, z, self.given, at)

    def metric(self, z: Tensor) -> Tensor:
        """G [n, Q, Q] at any latent points of a model that has a metric, on the CPU; `aux` as in `decode`."""
        aux, device = self.data.test.aux, self.model.device
        at = None if aux is None else aux[:1].expand(len(z), -1).to(device)
        found: Tensor = self.model.metric(z.to(device), self.given, at)
        return found.cpu()


class Latents(NamedTuple):
    """q(z) of n points, on the CPU."""

    mean: Tensor  # [n, Q]
    spread: Tensor | None  # the sd [n, Q], or the Cholesky factor of the covariance [n, Q, Q]; None for points

    def draws(self, count: int, seed: int) -> Tensor:
        """Samples [count, n, Q] in pairs around the mean, so that a linear function of z has its exact mean."""
        if self.spread is None:
            return self.mean.unsqueeze(0)
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(count // 2, *self.mean.shape, generator=generator, dtype=self.mean.dtype)
        step = self.spread * noise if self.spread.ndim == 2 else (self.spread @ noise.unsqueeze(-1)).squeeze(-1)
        return torch.cat([self.mean + step, self.mean - step])


class Decoded(NamedTuple):
    """Mean and standard deviation of decoded observations [n, *shape], on the CPU."""

    mean: Tensor
    sd: Tensor


class Task:
    """One part of the evaluation, in one file: its scores, figures, artifacts and metrics.

    Tasks that do not fit a model and its data are skipped.
    """

    name: ClassVar[str]
    order: ClassVar[int] = 50  # the position among all tasks, in summaries and tables
    validated: ClassVar[bool] = False  # True: it also scores the validation split, if there is one
    metrics: ClassVar[dict[str, Metric]] = {}
    watched: ClassVar[tuple[str, ...]] = ()  # those that evaluation.watch_every follows through the training

    def fits(self, model: Any, data: "DataModule") -> bool:
        """Whether the task applies to this model and these data."""
        raise NotImplementedError

    def check(self, model: Any, data: "DataModule", settings: Settings) -> None:
        """Raise a UserError at start-up if the task cannot do what the settings ask for."""

    def scores(self, subject: Subject) -> Scores:
        """The metrics of a model."""
        return {}

    def artifacts(self, subject: Subject) -> Arrays:
        """Arrays for the figures of the report."""
        return {}

    def figures(self, subject: Subject) -> "Iterator[tuple[str, Figure]]":
        """Figures for the run's folder, with their names."""
        return iter(())

    def summary(self, metrics: Scores, published: Mapping[str, str]) -> list[str]:
        """Lines for the terminal: one per metric, with the published value beside it."""
        beside = {key: f"   published {value}" for key, value in published.items()}
        return [f"{key:<20}{metrics[key]:>18.4g}{beside.get(key, '')}" for key in self.metrics if key in metrics]


@torch.no_grad()
def latent_means(model: HasLatents, split: Split, seen: bool) -> Tensor:
    """The latent means [n, Q] of a split, on the CPU; `seen` is True for the training split."""
    z = empty_latents(model, len(split))
    for rows, q in encoded(model, split, seen):
        z[rows] = q.mean.cpu()
    return z


@torch.no_grad()
def latents_of(model: HasLatents, split: Split, seen: bool) -> Latents:
    """q(z) of a split, with the spread that many training points would need much memory for."""
    z, spread = empty_latents(model, len(split)), None
    for rows, q in encoded(model, split, seen):
        z[rows], part = q.mean.cpu(), spread_of(q)
        if part is not None:
            spread = z.new_empty(len(split), *part.shape[1:]) if spread is None else spread
            spread[rows] = part.cpu()
    return Latents(z, spread)


def encoded(model: HasLatents, split: Split, seen: bool) -> "Iterator[tuple[Tensor, Posterior]]":
    """The rows and q(z) of each chunk of a split."""
    for chunk in bar(split.chunks(CHUNK), "encoding", math.ceil(len(split) / CHUNK)):
        yield chunk.index, model.encode(chunk.to(model.device), seen)


def empty_latents(model: HasLatents, size: int) -> Tensor:
    """Room for latents [n, Q], in one tensor, as chunks would fragment the heap."""
    dtype = model.dtype if isinstance(model.dtype, torch.dtype) else torch.float32
    return torch.empty(size, model.latent_dim, dtype=dtype)


def spread_of(q: Posterior) -> Tensor | None:
    """The sd of independent coordinates, or the Cholesky factor of a full covariance; None for a point."""
    if isinstance(q, Point):
        return None
    return q.scale_tril if isinstance(q, MultivariateNormal) else q.stddev


@torch.no_grad()
def decoded(model: HasLatents, z: Tensor, given: Any, aux: Tensor | None, chunk: int = 512) -> Decoded:
    """Observations decoded at latent points [n, Q], in chunks so that large images fit into memory."""
    auxes = [None] * len(z) if aux is None else aux.to(model.device).split(chunk)
    parts = [
        model.decode(points.to(model.device, model.dtype), given, at)
        for points, at in zip(z.split(chunk), auxes, strict=False)
    ]
    means, sds = [p.mean.cpu() for p in parts], [p.stddev.expand_as(p.mean).cpu() for p in parts]
    return Decoded(torch.cat(means), torch.cat(sds))
