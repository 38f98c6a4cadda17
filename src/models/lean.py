"""Everything that makes Lightning cheap between two steps. Remove any of it and only time is lost.

The times are medians on one core, with and without each trick, after a product of 1024 x 1024 matrices: between the
matrices of a step the caches are cold, and Python takes ten times as long as in a loop of its own.
`python -m benchmarks --only epochs` compares whole epochs with a bare loop.
"""

import os
from collections.abc import Mapping
from contextlib import nullcontext
from types import MappingProxyType
from typing import Any

import torch
from pytorch_lightning import LightningModule
from pytorch_lightning.profilers import PassThroughProfiler
from torch.optim import Optimizer

from src.runs.randomness import stream

SEEDS_AT_ONCE = 100


class LeanModule(LightningModule):
    """A LightningModule whose hooks do only what a step needs; `step_seed` is all that others call."""

    seeds: Mapping[tuple[int, int, int], int] = MappingProxyType({})  # by run, step and rank, of the next steps

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Clear gradients without torch's record for a profiler: 0.04 instead of 0.29 ms per step."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def step_seed(self, seed: int, step: int, rank: int) -> int:
        """The seed of a step. Many are drawn at once: 0.03 instead of 0.20 ms per step."""
        if (seed, step, rank) not in self.seeds:
            later = range(step, step + SEEDS_AT_ONCE)
            self.seeds = {(seed, number, rank): stream(seed, number, rank) for number in later}
        return self.seeds[seed, step, rank]


class Unprofiled(PassThroughProfiler):
    """No profile. Lightning's own makes a generator for each of 30 hooks: 0.06 instead of 0.13 ms per step."""

    def profile(self, action_name: str) -> Any:
        """Nothing to begin and nothing to end."""
        return nullcontext()


def skip_nvidia_look_up() -> None:
    """Without a GPU, keep Adam from looking for NVIDIA's library on disk, as Lightning asks: 0.1 ms per look-up."""
    if not torch.cuda.is_available():
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "0"
