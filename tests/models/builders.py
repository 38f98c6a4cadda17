"""Small models on small data, as the command line would compose them."""

from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from src.data.batch import Batch, Split, split_of
from src.data.facts import Facts
from src.data.module import DataModule
from src.models.base import build
from src.runs.record import Config
from tests.configs import composed

SMALL_NETS = {  # of the models with auxiliary inputs
    "encoder": {"_target_": "src.nets.mlp.tanh_encoder", "hidden": 5},
    "decoder": {"_target_": "src.nets.mlp.TanhDecoder", "hidden": 5},
}
OBJECT_ANGLE = {  # what a GP of views is a function of, and its kernel
    "aux": {"_target_": "src.models.auxiliary.ObjectAngle", "object_dim": 2, "num_angles": 4},
    "kernel": {
        "_target_": "gpytorch.kernels.ScaleKernel",
        "base_kernel": {"_target_": "src.gp.kernels.ObjectAngleKernel"},
    },
}


class Given(DataModule):
    """Data that a test made up; the test split is the training split if there is no other. `told` replaces facts."""

    def __init__(
        self,
        x: Tensor,
        batch_size: int | None = None,
        y: Tensor | None = None,
        aux: Tensor | None = None,
        objects: Tensor | None = None,
        test: Split | None = None,
        told: dict[str, Any] | None = None,
        missing: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(batch_size or "full", missing=missing)
        self.given, self.objects, self.told = split_of(x, y, aux=aux), objects, told or {}
        self.other = test or self.given

    def load(self) -> tuple[Split, Split]:
        return self.given, self.other

    @property
    def facts(self) -> Facts:
        return replace(super().facts, **self.told)


@cache
def composed_once(*overrides: str) -> Config:
    return composed(*overrides)


def spec_of(*overrides: str, **arguments: Any) -> dict[str, Any]:
    """The model's part of a composed config; `arguments` replace or add values."""
    spec: dict[str, Any] = deepcopy(composed_once(*overrides)["model"])
    return spec | arguments


def started(
    data: DataModule, *overrides: str, seed: int = 0, dtype: torch.dtype = torch.float32, **arguments: Any
) -> Any:
    """The model of a composed config, started on the data; `arguments` replace those of its config."""
    data.setup()
    torch.manual_seed(seed)
    model = build(spec_of(*overrides, **arguments), data.facts)
    model.to(dtype).check(data.facts)
    model.initialise(data)
    return model


def built(data: DataModule, name: str, *overrides: str, **arguments: Any) -> Any:
    """A model by its name, in float64."""
    return started(data, f"model={name}", *overrides, dtype=torch.float64, **arguments)


def first_batch(data: DataModule) -> Batch:
    """The first batch of the first epoch."""
    batch: Batch = next(iter(data.train_dataloader()))
    return batch


def rows(data: DataModule, *index: int) -> Batch:
    """A batch of these rows, or of all."""
    return data.train[torch.tensor(index or range(len(data.train)))]


def noisy_curve(num_data: int = 60, outputs: int = 5) -> Tensor:
    """Points near a curve in D dimensions."""
    generator = torch.Generator().manual_seed(0)
    t = torch.linspace(-2, 2, num_data)[:, None]
    x = torch.cat([torch.sin((d + 1) * t / 2) for d in range(outputs)], 1)
    return x + 0.1 * torch.randn(x.shape, generator=generator)


def far_curve(num_data: int = 12, outputs: int = 3) -> Tensor:
    """A curve whose mean is far from 0 and differs by output, in random order."""
    order = torch.randperm(num_data, generator=torch.Generator().manual_seed(1))
    return noisy_curve(num_data, outputs)[order] + 5 + 2 * torch.arange(outputs)


def little_videos() -> Given:
    """Two videos, of five and of three frames of six bits, their frames shuffled."""
    generator = torch.Generator().manual_seed(0)
    frames = [(7, 1), (3, 0), (7, 4), (3, 2), (7, 0), (7, 3), (3, 1), (7, 2)]
    x = torch.bernoulli(torch.full((8, 6), 0.4), generator=generator)
    told = {"aux": ("video", "time"), "group": "video", "group_size": 5, "binary": True}
    return Given(x, aux=torch.tensor(frames, dtype=torch.float32), told=told)


def little_views(batch_size: int | None = None, **told: Any) -> Given:
    """Twelve views of four objects, six pixels each, and four views at another angle for the test."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.rand(16, 6, generator=generator)
    turns = torch.tensor([[number % 4, 0.5 * (number // 4)] for number in range(16)])
    order = torch.randperm(12, generator=generator)
    objects = torch.randint(0, 256, (4, 6), generator=generator).byte()
    test = split_of(pixels[12:], aux=turns[12:])
    facts = {"aux": ("object", "angle"), **told}
    return Given(pixels[order], batch_size, aux=turns[order], objects=objects, test=test, told=facts)
