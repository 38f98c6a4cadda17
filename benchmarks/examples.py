"""Models and batches to time, as the command line would compose them."""

from collections.abc import Callable
from typing import Any

import hydra
import torch

from src.data.batch import Batch
from src.data.facts import Facts
from src.models.base import LatentModel, Model, build
from src.runs.identity import plain

NUM_DATA, BATCH = 60_000, 1024
SHAPES = {784: (1, 28, 28), 3072: (3, 32, 32)}


def composed(*overrides: str) -> dict[str, Any]:
    """The config of a command line."""
    with hydra.initialize_config_module("conf", version_base="1.3"):
        return plain(hydra.compose("config", list(overrides)))


def example(*overrides: str, num_outputs: int = 784) -> tuple[LatentModel, Batch]:
    """A model and a batch of random images."""
    shape = SHAPES[num_outputs]
    torch.manual_seed(0)
    model: LatentModel = build(composed(*overrides)["model"], Facts(shape, NUM_DATA, BATCH))
    return model, Batch(torch.randint(256, (BATCH, *shape), dtype=torch.uint8), torch.arange(BATCH))


def training_step(model: Model, next_batch: Callable[[], Batch]) -> Callable[[], None]:
    """Objective, backward and optimiser."""
    optimizer = model.make_optimizer()

    def step() -> None:
        optimizer.zero_grad()
        model.objective(next_batch()).loss.backward()
        optimizer.step()

    return step
