"""What figures show of the test split: points that differ, and the values that are black and white in pictures."""

from typing import NamedTuple

import torch
from torch import Tensor


class Limits(NamedTuple):
    """The values that are black and white in pictures."""

    black: float
    white: float


INTENSITIES = Limits(0.0, 1.0)


def limits_of(x: Tensor) -> Limits:
    """0 and 1 if all values lie between them, as intensities do, otherwise the smallest and the largest value.

    NaN is a missing value.
    """
    seen = x[x.isfinite()]
    if seen.numel() == 0 or (seen.min() >= 0 and seen.max() <= 1):
        return INTENSITIES
    return Limits(seen.min().item(), seen.max().item())


def levels(x: Tensor, limits: Limits) -> Tensor:
    """Values as levels from 0 to 1; those beyond the limits are clipped."""
    return ((x - limits.black) / ((limits.white - limits.black) or 1.0)).clamp(0, 1)


def varied(size: int, classes: Tensor | None, n: int) -> Tensor:
    """The rows of n of `size` points that differ: the first of each of the `classes` [size], then the second, ...

    They are in the order of their classes. Of more than n classes, and of points without classes, some are taken at
    equal distances, since neighbours such as the frames of a video are often alike.
    """
    if classes is None:
        return spread(size, n)
    order = classes.argsort(stable=True)
    counts = classes[order].unique_consecutive(return_counts=True)[1]
    place = torch.cat([torch.arange(count) for count in counts.tolist()])  # of a point within its class
    if len(counts) > n:
        return order[place == 0][spread(len(counts), n)]
    return order[place.argsort(stable=True)[:n].sort().values]


def spread(size: int, n: int) -> Tensor:
    """At most n of `size` rows at equal distances."""
    return torch.arange(min(size, n)) * size // min(size, n)
