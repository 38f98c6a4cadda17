"""What a training step costs beside the forward and backward pass of its own encoder."""

from collections.abc import Callable

import hydra
import torch

from src.data.module import Batch
from src.models.base import Decoder
from src.runs import plain
from src.specs import make

NUM_DATA, BATCH, SHAPE = 60_000, 1024, (1, 28, 28)


def table(medians: Callable[..., list[float]]) -> None:
    """SAS and Bayesian SAS at several active-set sizes."""
    print(f"\na training step (objective, backward, optimiser) and its encoder: B = {BATCH}, 28 x 28 images, float32")
    print(f"{'model':<16}{'A':>6}{'step, ms':>12}{'encoder, ms':>14}{'ratio':>8}")
    for name in ("sas", "bayesian_sas"):
        for size in (100, 200, 400, 800):
            model, batch = example(f"model={name}", f"active_set.size={size}")
            step, encoder = medians(training_step(model, batch), encoder_pass(model, batch))
            print(f"{name:<16}{size:>6}{1e3 * step:>12.1f}{1e3 * encoder:>14.1f}{step / encoder:>8.2f}", flush=True)


def example(*overrides: str) -> tuple[Decoder, Batch]:
    """A model and a batch of random images."""
    with hydra.initialize_config_module("conf", version_base="1.3"):
        spec = plain(hydra.compose("config", list(overrides)))["model"]
    torch.manual_seed(0)
    model: Decoder = make(spec, shape=SHAPE, num_data=NUM_DATA, _recursive_=False)
    return model, Batch(torch.randint(256, (BATCH, *SHAPE), dtype=torch.uint8), None, torch.arange(BATCH), None)


def training_step(model: Decoder, batch: Batch) -> Callable[[], None]:
    """Objective, backward and optimiser."""
    optimizer = model.make_optimizer()

    def step() -> None:
        optimizer.zero_grad()
        model.objective(batch).loss.backward()
        optimizer.step()

    return step


def encoder_pass(model: Decoder, batch: Batch) -> Callable[[], None]:
    """Forward and backward of the encoder's net or nets."""
    images = model.as_float(batch.x)
    nets = [net for net in (model.latents.mean, model.latents.spread) if net is not None]

    def encoder() -> None:
        model.zero_grad()
        torch.stack([net(images).sum() for net in nets]).sum().backward()

    return encoder
