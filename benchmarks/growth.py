"""How a step's time grows with the active set and with the number of data, and how much memory it takes."""

import math
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from statistics import median

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.examples import BATCH, example, training_step
from benchmarks.rows import Row, seconds
from benchmarks.steps import ACTIVE
from src.data.batch import split_of


def growth() -> Iterator[Row]:
    """The exponents of SAS, by least squares of log seconds on log size."""
    steps = []
    for size in ACTIVE:
        model, batch = example("model=sas", f"active_set.size={size}")
        steps.append(training_step(model, lambda batch=batch: batch))  # type: ignore[misc]
    yield exponent("sas step with A", ACTIVE, seconds(*steps, repeats=7), 2.2)
    numbers, steps = (10_000, 60_000, 360_000), []
    for num_data in numbers:
        model, _ = example("model=sas", "active_set.size=200")
        split = split_of(torch.randint(256, (num_data, *model.shape), dtype=torch.uint8))
        steps.append(training_step(model, lambda split=split: split[torch.randint(len(split), (BATCH,))]))  # type: ignore[misc]
    yield exponent("sas step with N, batches gathered", numbers, seconds(*steps, repeats=15), 0.05)


def exponent(name: str, sizes: tuple[int, ...], times: list[list[float]], limit: float) -> Row:
    """The exponent of the growth of the medians."""
    medians = [median(record) for record in times]
    slope = float(np.polyfit(np.log(sizes), np.log(medians), 1)[0])
    against = f"size {sizes[0]:,} against {sizes[-1]:,}: exponent"
    return Row(name, against, 1e3 * medians[0], 1e3 * medians[-1], slope, limit)


def memory() -> Iterator[Row]:
    """The most that a SAS step has allocated at a time, beside the tensors that it cannot do without."""
    for num_outputs in (784, 3072):
        for size in ACTIVE:
            model, batch = example("model=sas", f"active_set.size={size}", num_outputs=num_outputs)
            step = training_step(model, lambda batch=batch: batch)  # type: ignore[misc]
            step()
            model.zero_grad()
            peak, needed = peak_bytes(step), needed_bytes(size, num_outputs)
            name = f"memory of a sas step, A={size}, D={num_outputs}"
            yield Row(name, "the tensors it must hold", peak / 2**20, needed / 2**20, peak / needed, 2.0, unit="MB")


def peak_bytes(step: Callable[[], None]) -> float:
    """What torch's allocator gave out at most, beyond what there was before."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        step()
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    return max(accumulate(event.nbytes() for event in sorted(events, key=lambda event: event.start_ns())))


def needed_bytes(size: int, num_outputs: int) -> float:
    """x and the encoder's activations, with the more of: what the GP holds at once, or the gradients of the weights.

    The GP holds L^-1 x_A, the residuals, and three matrices a covariance: itself, whitened, and its gradient.
    """
    rest = BATCH - size
    widths = (num_outputs, 512, 256, 2)
    weights = sum(math.prod(pair) for pair in pairwise(widths))
    gp = size * num_outputs + rest * num_outputs + 3 * size * (size + rest)
    return 4 * (BATCH * sum(widths) + max(weights, gp))
