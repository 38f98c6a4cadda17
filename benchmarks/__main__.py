"""What a training step costs beside its encoder: `python -m benchmarks`.

Each row times, interleaved in one run, a whole training step (objective, backward, optimiser) and the forward and
backward pass of the step's own encoder net or nets on the same batch; medians and their ratio are printed.
"""

import platform
from collections.abc import Callable
from statistics import median
from time import perf_counter

import hydra
import torch

from src.data.module import Batch
from src.models.base import Decoder
from src.runs import plain
from src.specs import make

NUM_DATA, BATCH, REPEATS = 60_000, 1024, 15


def main() -> None:
    """Print the table."""
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, {platform.processor() or platform.machine()}")
    print(f"B = {BATCH}, 28 x 28 images, float32, medians of {REPEATS}\n")
    print(f"{'model':<16}{'A':>6}{'step, ms':>12}{'encoder, ms':>14}{'ratio':>8}")
    for name in ("sas", "bayesian_sas"):
        for size in (100, 200, 400, 800):
            step, encoder = medians(*step_and_encoder(name, size))
            print(f"{name:<16}{size:>6}{1e3 * step:>12.1f}{1e3 * encoder:>14.1f}{step / encoder:>8.2f}", flush=True)


def step_and_encoder(name: str, size: int) -> tuple[Callable[[], None], Callable[[], None]]:
    """A training step of a model on a batch of random images, and its encoder's own forward and backward pass."""
    with hydra.initialize_config_module("conf", version_base="1.3"):
        spec = plain(hydra.compose("config", [f"model={name}", f"active_set.size={size}"]))["model"]
    torch.manual_seed(0)
    model: Decoder = make(spec, shape=(1, 28, 28), num_data=NUM_DATA, _recursive_=False)
    batch = Batch(torch.randint(256, (BATCH, 1, 28, 28), dtype=torch.uint8), None, torch.arange(BATCH), None)
    images = model.as_float(batch.x)
    optimizer = model.configure_optimizers()

    def step() -> None:
        optimizer.zero_grad()
        model.objective(batch).loss.backward()
        optimizer.step()

    def encoder() -> None:
        model.zero_grad()
        nets = [net for net in (model.latents.mean, model.latents.spread) if net is not None]
        torch.stack([net(images).sum() for net in nets]).sum().backward()

    return step, encoder


def medians(*functions: Callable[[], None]) -> list[float]:
    """The median seconds of each function, called in turn so that a noisy moment meets all of them."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(REPEATS + 2):
        for function, record in zip(functions, times, strict=True):
            start = perf_counter()
            function()
            record.append(perf_counter() - start)
    return [median(record[2:]) for record in times]


if __name__ == "__main__":
    main()
