"""The data of a run: two splits held in memory, and batches that are an index into them."""

import os
import weakref
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from pytorch_lightning import LightningDataModule
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from src.runs.errors import UserError
from src.runs.randomness import stream

if TYPE_CHECKING:
    from src.models.base import Decoder


@dataclass
class Batch:
    """What a model sees: B observations, their rows, and labels and auxiliary inputs where there are any."""

    x: Tensor  # [B, *shape], uint8 or float
    y: Tensor | None  # [B]
    index: Tensor  # [B], rows of the split
    aux: Tensor | None  # [B, P]

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device."""
        if self.x.device == device:
            return self
        y, aux = (None if t is None else t.to(device) for t in (self.y, self.aux))
        return Batch(self.x.to(device), y, self.index.to(device), aux)


class RowFile:
    """The file that an array is mapped from, for reading rows of it.

    What is read is the batch alone. Touching the mapped array would leave the pages around every row in the memory of
    the process, soon all of them, or cost as many page faults again where they are given back.
    """

    def __init__(self, path: Path, start: int) -> None:
        self.path, self.file, self.start = path, path.open("rb", buffering=0), start
        weakref.finalize(self, self.file.close)

    def read(self, rows: Tensor, x: Tensor) -> None:
        """Fill x [B, *shape] with these rows [B]: a call of the system for each, and no small object that stays."""
        places = x.numpy()
        file, size = self.file.fileno(), places[0].nbytes
        read = sum(
            os.preadv(file, [place], self.start + size * row) for place, row in zip(places, rows.tolist(), strict=True)
        )
        if read != places.nbytes:
            raise UserError(f"{self.path} has become shorter while it was in use")


@dataclass(frozen=True)
class Split(Dataset[Batch]):
    """The training or the test part of a dataset: uint8 images stay uint8 until a model turns a batch to float.

    x may be mapped from a file of any size: nothing copies the whole of it, a split of some of its rows shares it, and
    batches are read from the file.
    """

    x: Tensor  # [N, *shape], or more rows, of which `rows` are the split's
    y: Tensor | None = None  # [N]
    aux: Tensor | None = None  # [N, P]
    rows: Tensor | None = None  # [N], None for all of x
    file: RowFile | None = None  # that x is mapped from

    def __len__(self) -> int:
        return len(self.x if self.rows is None else self.rows)

    def __getitem__(self, index: Tensor) -> Batch:
        """A whole batch with one gather, not one Python call a sample; `index_select` copies whole rows, x[] values."""
        y, aux = (None if t is None else t[index] for t in (self.y, self.aux))
        rows = index if self.rows is None else self.rows[index]
        if self.file is None:
            return Batch(self.x.index_select(0, rows), y, index, aux)
        x = self.x.new_empty(len(rows), *self.x.shape[1:])
        self.file.read(rows, x)
        return Batch(x, y, index, aux)

    def chunks(self, size: int) -> Iterator[Batch]:
        """All of the split, in order."""
        for index in torch.arange(len(self)).split(size):
            yield self[index]

    def draw(self, size: int, seed: int) -> Batch:
        """A random subset of `size` samples, without replacement."""
        return self[torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))[:size]]


def split_of(array: np.ndarray, y: Tensor | None = None) -> Split:
    """A split of an array that is in memory, or mapped as a file has it."""
    file = None
    if isinstance(array, np.memmap) and array.filename is not None and array.flags.c_contiguous:
        file = RowFile(Path(array.filename), array.offset)
    return Split(torch.from_numpy(array), y, file=file)


class EpochSampler(Sampler[Any], ABC):
    """What to load in an epoch, a function of seed and epoch, from any step of it on.

    Of several processes each takes its own share: of every `processes` steps the one of its `rank`.
    """

    def __init__(self, num_steps: int, rank: int = 0, processes: int = 1) -> None:
        self.num_steps, self.rank, self.processes = num_steps // processes, rank, processes
        self.epoch = self.step = self.start = 0

    @abstractmethod
    def steps(self) -> Sequence[Any]:
        """What to load in each step of this epoch, for all processes."""

    def set_epoch(self, epoch: int) -> None:
        """Called by Lightning before every epoch."""
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_steps

    def __iter__(self) -> Iterator[Any]:
        # A generator draws the order with the first step: a resumed Trainer calls iter() before set_epoch().
        own = self.steps()[self.rank :: self.processes][: self.num_steps]
        start, self.start = self.start % self.num_steps, 0
        for step in range(start, self.num_steps):
            self.step = step + 1
            yield own[step]


class ShuffledBatches(EpochSampler):
    """Indices of whole batches in random order; an incomplete last one is dropped."""

    def __init__(self, num_data: int, batch_size: int, seed: int, rank: int = 0, processes: int = 1) -> None:
        super().__init__(num_data // batch_size, rank, processes)
        self.num_data, self.batch_size, self.seed = num_data, batch_size, seed

    def steps(self) -> Sequence[Tensor]:
        """A random permutation of the data, cut into batches."""
        generator = torch.Generator().manual_seed(stream(self.seed, self.epoch))
        return torch.randperm(self.num_data, generator=generator).split(self.batch_size)


class Batches:
    """The whole batches that an epoch's sampler names; a checkpoint holds where in the epoch it is.

    Not a DataLoader: its samples, workers and collation are not needed where a batch is one gather.
    """

    def __init__(self, dataset: Dataset[Batch], sampler: EpochSampler) -> None:
        self.dataset, self.sampler = dataset, sampler

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[Batch]:
        return map(self.dataset.__getitem__, self.sampler)

    def state_dict(self) -> dict[str, int]:
        """How many steps of the epoch are done."""
        return {"step": self.sampler.step}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Go on after them."""
        self.sampler.start = state_dict["step"]


class DataModule(LightningDataModule):
    """A dataset is a subclass with one method, `load`; `max_train` and `max_test` take a seeded subset of it."""

    fresh: bool = False  # True: training batches are made anew, and are not rows of `train`

    def __init__(
        self,
        batch_size: int | Literal["full"],
        max_train: int | None = None,
        max_test: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.requested_batch_size, self.max_train, self.max_test, self.seed = batch_size, max_train, max_test, seed
        self.loaded = False

    def load(self) -> tuple[Split, Split]:
        """The whole training and test split."""
        raise NotImplementedError

    def setup(self, stage: str | None = None) -> None:
        """Load once, cut to size, and refuse a batch that cannot be filled."""
        if self.loaded:
            return
        train, test = self.load()
        self.train = subset(train, self.max_train, self.seed, "dataset.max_train")
        self.test = subset(test, self.max_test, self.seed, "dataset.max_test")
        self.batch_size = len(self.train) if self.requested_batch_size == "full" else self.requested_batch_size
        if not 1 <= self.batch_size <= len(self.train):
            raise UserError(
                f"dataset.batch_size={self.batch_size} must lie between 1 and the {len(self.train)} training samples "
                "(dataset.batch_size=full takes them all)"
            )
        self.loaded = True

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of one observation: (C, H, W) for images, (D,) for vectors."""
        return tuple(self.train.x.shape[1:])

    def train_dataloader(self) -> Batches:
        """Shuffled whole batches."""
        return Batches(self.train, ShuffledBatches(len(self.train), self.batch_size, self.seed, *self.share()))

    def share(self) -> tuple[int, int]:
        """This process among all that train together: its rank, and how many there are."""
        trainer = self.trainer
        return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """As Lightning does it, which first looks for what there may be to move."""
        return batch.to(device)

    def scores(self, model: "Decoder") -> dict[str, float]:
        """Test scores that only this dataset has, beside the metrics that all share; here none."""
        return {}

    def exhibits(self, model: "Decoder") -> dict[str, Tensor]:
        """What only this dataset's figures show, for the report; here nothing."""
        return {}


def subset(split: Split, size: int | None, seed: int, name: str) -> Split:
    """`size` random samples of a split, the same for the same seed; all of it for None."""
    if size is None:
        return split
    if not 1 <= size <= len(split):
        raise UserError(f"{name}={size} must lie between 1 and the {len(split)} samples there are")
    drawn = split.draw(size, seed)
    return Split(drawn.x, drawn.y, drawn.aux)
