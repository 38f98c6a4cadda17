"""Values hidden on purpose, at random or as a block; what was hidden is kept for scoring only."""

import math
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from src.data.batch import Split
from src.runs.errors import UserError
from src.runs.randomness import stream

PARTS = {"train": ("train",), "test": ("test",), "both": ("train", "test")}
KINDS = ("random", "block")
STREAMS = {"train": 1, "test": 2}  # of random numbers


@dataclass(frozen=True)
class Missing:
    """Hide this fraction of the values of each point: pixels of an image, with all their channels, or columns."""

    fraction: float | None = None  # None: hide nothing
    kind: Literal["random", "block"] | None = None  # None: random
    split: Literal["train", "test", "both"] | None = None  # None: test

    def __post_init__(self) -> None:
        if self.fraction is None and (self.kind or self.split):
            raise UserError(
                "dataset.missing needs a fraction of the values to hide, as in dataset.missing.fraction=0.5"
            )
        if self.fraction is not None and not (is_number(self.fraction) and 0 < self.fraction <= 1):
            raise UserError(f"dataset.missing.fraction={self.fraction} must lie above 0 and not above 1")
        if self.kind not in (None, *KINDS):
            raise UserError(f"dataset.missing.kind={self.kind} must be {' or '.join(KINDS)}")
        if self.split not in (None, *PARTS):
            raise UserError(f"dataset.missing.split={self.split} must be {', '.join(PARTS)}")

    def hides(self, part: str) -> bool:
        """Whether values of the training or the test part are hidden."""
        return self.fraction is not None and part in PARTS[self.split or "test"]

    def applied(self, split: Split, part: Literal["train", "test"], seed: int, one_hot: tuple[int, ...] = ()) -> Split:
        """The split with its hidden values, a function of the seed; the columns of a category are hidden together."""
        if self.fraction is None or not self.hides(part):
            return split
        generator = torch.Generator().manual_seed(stream(seed, STREAMS[part]))
        draw = blocks if self.kind == "block" else scattered
        shape = (len(one_hot),) if one_hot else split.storage.shape
        hidden = draw(len(split), shape, self.fraction, generator)
        if one_hot:
            hidden = hidden.repeat_interleave(torch.tensor(one_hot), 1)
        seen = ~hidden if split.mask is None else split.mask & ~hidden
        return replace(split, hidden=hidden if split.mask is None else hidden & split.mask, mask=seen)


def count_patterns(mask: Tensor) -> int:
    """The number of distinct columns of a mask [N, *shape]: values observed at the same points have one pattern."""
    return len({column.tobytes() for column in mask.flatten(1).mT.contiguous().numpy()})


def is_number(value: object) -> bool:
    """Whether a value from a config is a number; booleans are not meant."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def scattered(num_points: int, shape: tuple[int, ...], fraction: float, generator: torch.Generator) -> Tensor:
    """True at the same number of random places of each point, [N, *shape]; the channels of a pixel share a place."""
    places = shape[1:] if len(shape) == 3 else shape
    size = math.prod(places)
    count = round(fraction * size)
    hidden = torch.zeros(num_points, size, dtype=torch.bool)
    for rows in torch.arange(num_points).split(4096):  # a float per place at a time, not of all points
        order = torch.rand(len(rows), size, generator=generator).argsort(1)
        hidden[rows] = torch.zeros(len(rows), size, dtype=torch.bool).scatter_(1, order[:, :count], True)
    return over_channels(hidden.unflatten(1, places), shape)


def blocks(num_points: int, shape: tuple[int, ...], fraction: float, generator: torch.Generator) -> Tensor:
    """True in a block at a random place of each point, [N, *shape]: as high and wide as the shape, only smaller."""
    places = shape[1:] if len(shape) == 3 else shape
    hidden = torch.ones(num_points, *places, dtype=torch.bool)
    for axis, size in enumerate(places):
        length = round(size * fraction ** (1 / len(places)))
        start = torch.randint(size - length + 1, (num_points, 1), generator=generator)
        inside = (torch.arange(size) >= start) & (torch.arange(size) < start + length)  # [N, size]
        hidden &= inside.view(num_points, *(size if a == axis else 1 for a in range(len(places))))
    return over_channels(hidden, shape)


def over_channels(hidden: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Places [N, *places] as values [N, *shape]."""
    return (hidden.unsqueeze(1) if len(shape) == 3 else hidden).expand(-1, *shape).contiguous()
