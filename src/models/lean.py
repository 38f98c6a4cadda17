"""Everything that makes Lightning cheap between two steps. Take it away and nothing but time is lost.

Measured as the time of an epoch through Lightning over that of a bare loop (`python -m benchmarks --only epochs`).
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
    """A LightningModule whose hooks do no more than a step needs; `LightningModule` can take its place."""

    seeds: Mapping[tuple[int, int, int], int] = MappingProxyType({})  # by run, step and rank, of the next steps

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """Clear gradients as torch does, without its record for a profiler: 0.1 ms per step."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def step_seed(self, seed: int, step: int, rank: int) -> int:
        """The seed of a step. Many are drawn at once: a single one takes ten times as long between large matrices."""
        if (seed, step, rank) not in self.seeds:
            later = range(step, step + SEEDS_AT_ONCE)
            self.seeds = {(seed, number, rank): stream(seed, number, rank) for number in later}
        return self.seeds[seed, step, rank]


class Unprofiled(PassThroughProfiler):
    """No profile. Lightning's own makes a generator for every hook: a hundredth of the time of a SAS step."""

    def profile(self, action_name: str) -> Any:
        """Nothing to begin and nothing to end."""
        return nullcontext()


def skip_nvidia_look_up() -> None:
    """Without a GPU, do not let Adam look for NVIDIA's library on disk in every step, as Lightning asks it to."""
    if not torch.cuda.is_available():
        os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "0"
