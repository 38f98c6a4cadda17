"""Small models on small data, as the command line would compose them."""

from typing import Any

import torch

from src.data.module import Batch, DataModule, Split
from src.runs.specs import make
from tests.configs import composed


class Given(DataModule):
    """Data that a test made up; the test split is the training split."""

    def __init__(self, x: torch.Tensor, batch_size: int | None = None) -> None:
        super().__init__(batch_size or "full")
        self.x = x

    def load(self) -> tuple[Split, Split]:
        return Split(self.x), Split(self.x)


def started(
    data: DataModule, *overrides: str, seed: int = 0, dtype: torch.dtype = torch.float32, **arguments: Any
) -> Any:
    """The model of a composed config, started on the data; `arguments` replace those of its config."""
    data.setup()
    torch.manual_seed(seed)
    spec = composed(*overrides)["model"] | arguments
    model = make(spec, shape=data.shape, num_data=len(data.train), _recursive_=False)
    model.to(dtype).check(data)
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


def noisy_curve(num_data: int = 60, outputs: int = 5) -> torch.Tensor:
    """Points near a curve in D dimensions."""
    generator = torch.Generator().manual_seed(0)
    t = torch.linspace(-2, 2, num_data)[:, None]
    x = torch.cat([torch.sin((d + 1) * t / 2) for d in range(outputs)], 1)
    return x + 0.1 * torch.randn(x.shape, generator=generator)
