"""Bits from grey images: by a threshold, or as Bernoulli draws of the intensities."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor

from src.data.batch import Batch, Split, Storage, blanked
from src.data.sampling import Batches, EpochSampler
from src.runs.errors import UserError
from src.runs.randomness import stream

Binary = Literal[True, "stochastic"]
STREAMS = {"train": 4, "test": 5, "validation": 6}  # of random numbers
EPOCHS = 7  # the stream of fresh draws
ROWS_AT_ONCE = 4096


class DrawnBits(Storage):
    """One draw of each value's bit, for everything but training, which takes a fresh draw in every epoch."""

    def __init__(self, bits: Tensor, intensities: Storage) -> None:
        super().__init__(bits)
        self.intensities = intensities


def check_binary(binary: object, shape: tuple[int, ...], is_binary: bool) -> None:
    """Raise a UserError unless there are grey images to make bits of."""
    if binary not in (True, "stochastic"):
        raise UserError(f"dataset.binary={binary} must be true (intensities above .5) or stochastic (random draws)")
    if is_binary:
        raise UserError(f"dataset.binary={text(binary)} has no effect: every value of this dataset is 0 or 1 already")
    if len(shape) != 3:
        raise UserError(f"dataset.binary={text(binary)} makes bits of images, but these data are vectors")


def binarised(split: Split, binary: Binary, part: Literal["train", "test", "validation"], seed: int) -> Split:
    """The split with bits in place of intensities: 0 and 255 in bytes, 0 and 1 in floats; missing values stay NaN.

    Draws of the training split are a function of the seed, those of the other splits are the same in every run.
    """
    generator = torch.Generator().manual_seed(stream(seed if part == "train" else 0, STREAMS[part]))
    rows = torch.arange(len(split)).split(ROWS_AT_ONCE)
    bits = torch.cat([bits_of(split.storage.take(index), binary, generator) for index in rows])
    return replace(split, storage=DrawnBits(bits, split.storage) if binary == "stochastic" else Storage(bits))


def bits_of(x: Tensor, binary: Binary, generator: torch.Generator) -> Tensor:
    """Bits of intensities x, 0 to 255 in bytes or 0 to 1 in floats."""
    one = 255 if x.dtype == torch.uint8 else 1
    if x.is_floating_point() and bool(((x < 0) | (x > 1)).any()):
        raise UserError(f"dataset.binary={text(binary)} needs intensities from 0 to 1, but some are outside")
    level = torch.rand(x.shape, generator=generator) if binary == "stochastic" else 0.5
    bits = (x > one * level).to(x.dtype) * one
    return torch.where(x.isnan(), x, bits) if x.is_floating_point() else bits


def text(binary: object) -> str:
    """The option as it is typed."""
    return "true" if binary is True else str(binary)


class FreshBits(Batches):
    """Training batches whose bits are drawn anew in every epoch, as a function of seed, epoch, step and process."""

    def __init__(self, split: Split, sampler: EpochSampler, seed: int) -> None:
        super().__init__(split, sampler)
        self.split, self.seed = split, seed

    def __iter__(self) -> Iterator[Batch]:
        for index in self.sampler:
            position = self.sampler.epoch, self.sampler.step, self.sampler.rank
            yield drawn(self.split, index, stream(self.seed, EPOCHS, *position))


def drawn(split: Split, index: Tensor, seed: int) -> Batch:
    """A batch with fresh draws of its bits; what is hidden stays hidden."""
    assert isinstance(split.storage, DrawnBits)
    x = bits_of(split.storage.intensities.take(index), "stochastic", torch.Generator().manual_seed(seed))
    return replace(split[index], x=x if split.hidden is None else blanked(x, split.hidden[index]))
