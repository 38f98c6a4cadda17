"""The points of each training step: a function of seed and epoch, which can start at any step."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from src.data.batch import Batch
from src.runs.randomness import stream


class EpochSampler(Sampler[Any], ABC):
    """What to load in each step of an epoch.

    If several processes train together, each takes one of every `processes` steps: the one at its `rank`.
    """

    def __init__(self, num_steps: int, rank: int = 0, processes: int = 1) -> None:
        self.num_steps, self.rank, self.processes = num_steps // processes, rank, processes
        self.epoch = self.step = self.start = 0

    @abstractmethod
    def steps(self) -> Sequence[Any]:
        """What to load in each step of this epoch, for all processes."""

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch; Lightning calls this before each epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Iterator[Any]:
        # A generator draws the order at its first step, not earlier: a resumed Trainer calls iter() before set_epoch().
        own = self.steps()[self.rank :: self.processes][: self.num_steps]
        start, self.start = self.start % self.num_steps, 0
        for step in range(start, self.num_steps):
            self.step = step + 1
            yield own[step]


class ShuffledBatches(EpochSampler):
    """The rows of whole batches in random order; an incomplete last batch is dropped."""

    def __init__(self, num_data: int, batch_size: int, seed: int, rank: int = 0, processes: int = 1) -> None:
        super().__init__(num_data // batch_size, rank, processes)
        self.num_data, self.batch_size, self.seed = num_data, batch_size, seed

    def steps(self) -> Sequence[Tensor]:
        """A random permutation of the data, cut into batches."""
        generator = torch.Generator().manual_seed(stream(self.seed, self.epoch))
        return torch.randperm(self.num_data, generator=generator).split(self.batch_size)


class Batches:
    """The batches that a sampler chooses; a checkpoint stores the position within the epoch.

    This is not a DataLoader: a batch is one gather, so there is nothing to collate and no need for workers.
    """

    def __init__(self, dataset: Dataset[Batch], sampler: EpochSampler) -> None:
        self.dataset, self.sampler = dataset, sampler

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        return map(self.dataset.__getitem__, self.sampler)

    def state_dict(self) -> dict[str, int]:
        """The number of finished steps of the epoch."""
        return {"step": self.sampler.step}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue after the finished steps."""
        self.sampler.start = state_dict["step"]
