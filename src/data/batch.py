"""Batches, and the splits of a dataset that they come from."""

import math
import os
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset

from src.runs.errors import UserError


@dataclass
class Batch:
    """What a model sees of B points."""

    x: Tensor  # [B, *shape], uint8 or float
    index: Tensor  # [B], rows of the split
    y: Tensor | None = None  # class ids [B] or reals [B, P]
    aux: Tensor | None = None  # [B, columns]
    mask: Tensor | None = None  # [B, *shape], True if a value was observed; None: all values were

    def __len__(self) -> int:
        return len(self.x)

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device."""
        if self.x.device == device:
            return self
        moved = (None if t is None else t.to(device) for t in (self.x, self.index, self.y, self.aux, self.mask))
        return Batch(*moved)  # type: ignore[arg-type]

    @classmethod
    def of(cls, x: Tensor, aux: Tensor | None = None, mask: Tensor | None = None) -> "Batch":
        """A batch of observations that belong to no split."""
        return cls(x, torch.arange(len(x), device=x.device), aux=aux, mask=mask)

    @property
    def observed(self) -> int:
        """The number of observed values."""
        return self.x.numel() if self.mask is None else int(self.mask.sum())

    def part(self, rows: Tensor) -> "Batch":
        """Some of the points."""
        chosen = (None if t is None else t[rows] for t in (self.x, self.index, self.y, self.aux, self.mask))
        return Batch(*chosen)  # type: ignore[arg-type]


class Storage:
    """Observations [N, *shape], in memory or in a file of any size. `take` is the only way to reach them.

    Rows of a file are read, not mapped: each access to a mapped array leaves the surrounding pages in the memory of the
    process until the whole file is there, and releasing the pages costs as many page faults again.
    """

    def __init__(self, values: Tensor, rows: Tensor | None = None, file: "RowFile | None" = None) -> None:
        self.values, self.rows, self.file = values, rows, file
        self.shape, self.dtype = tuple(values.shape[1:]), values.dtype

    def __len__(self) -> int:
        return len(self.values if self.rows is None else self.rows)

    def take(self, index: Tensor) -> Tensor:
        """The observations of these rows, by one gather or one read; `index_select` is faster than indexing."""
        rows = index if self.rows is None else self.rows[index]
        if self.file is None:
            return self.values.index_select(0, rows)
        x = self.values.new_empty(len(rows), *self.shape)
        self.file.read(rows, x)
        return x

    def part(self, rows: Tensor) -> "Storage":
        """Some of the rows, without copying them."""
        return Storage(self.values, rows if self.rows is None else self.rows[rows], self.file)


class RowFile:
    """The file behind a mapped array, for reading single rows."""

    def __init__(self, path: Path, start: int) -> None:
        self.path, self.file, self.start = path, path.open("rb", buffering=0), start
        weakref.finalize(self, self.file.close)

    def read(self, rows: Tensor, x: Tensor) -> None:
        """Fill x [B, *shape] with these rows [B]: one system call per row, without a copy."""
        places = x.numpy()
        file, size = self.file.fileno(), places[0].nbytes
        read = sum(
            os.preadv(file, [place], self.start + size * row) for place, row in zip(places, rows.tolist(), strict=True)
        )
        if read != places.nbytes:
            raise UserError(f"{self.path} was shortened while it was in use")


@dataclass(frozen=True)
class Split(Dataset[Batch]):
    """The training or the test part of a dataset. Bytes stay bytes until a model converts a batch to floats."""

    storage: Storage
    y: Tensor | None = None  # class ids [N] or reals [N, P]
    aux: Tensor | None = None  # [N, columns]
    mask: Tensor | None = None  # [N, *shape], True if a value was observed
    hidden: Tensor | None = None  # [N, *shape], True if a known value is hidden on purpose; then its mask is False
    groups: Tensor | None = None  # [N], points with the same number stay in one chunk
    latents: Tensor | None = None  # [N, k], the true latents of simulated data

    def __len__(self) -> int:
        return len(self.storage)

    def __getitem__(self, index: Tensor) -> Batch:
        """A whole batch with one gather instead of one Python call per point. Values that are missing are blank."""
        y, aux, mask = (None if t is None else t[index] for t in (self.y, self.aux, self.mask))
        x = self.storage.take(index)
        return Batch(x if self.hidden is None else blanked(x, self.hidden[index]), index, y, aux, mask)

    def truth(self, index: Tensor) -> Tensor:
        """The observations of these rows with the values that are hidden on purpose, for scoring only."""
        return self.storage.take(index)

    def all(self) -> Batch:
        """The whole split as one batch."""
        return self[torch.arange(len(self))]

    def chunks(self, size: int) -> Iterator[Batch]:
        """The whole split in batches of at most `size` points; groups stay whole even if they are larger."""
        for index in chunk_rows(len(self), size, self.groups):
            yield self[index]

    def draw(self, size: int, seed: int) -> Batch:
        """A random subset of `size` points, without replacement; incomplete ones only if there are too few others."""
        order = torch.randperm(len(self), generator=torch.Generator().manual_seed(seed))
        return self[(order if self.mask is None else order[complete_first(self.mask[order])])[:size]]

    def in_memory(self) -> "Split":
        """The same points, their observations copied into memory."""
        return replace(self, storage=Storage(self.storage.take(torch.arange(len(self)))))

    def part(self, rows: Tensor) -> "Split":
        """Some of the points; observations are not copied."""
        others = {name: getattr(self, name) for name in ("y", "aux", "mask", "hidden", "groups", "latents")}
        chosen = {name: None if values is None else values[rows] for name, values in others.items()}
        return replace(self, storage=self.storage.part(rows), **chosen)


def complete_first(mask: Tensor) -> Tensor:
    """An order of points with a mask [N, *shape] in which complete points come first; otherwise they keep theirs."""
    return mask.flatten(1).all(1).argsort(descending=True, stable=True)


def blanked(x: Tensor, hidden: Tensor) -> Tensor:
    """x without the hidden values: NaN in floats, so that no one can use them unnoticed, and 0 in bytes."""
    return x.masked_fill(hidden, math.nan if x.is_floating_point() else 0)


def split_of(x: Tensor | np.ndarray, y: Tensor | None = None, **others: Tensor | None) -> Split:
    """A split of a tensor, or of an array in memory or mapped from a file."""
    if isinstance(x, Tensor):
        return Split(Storage(x), y, **others)
    return Split(Storage(torch.from_numpy(x), file=file_of(x)), y, **others)


def file_of(x: np.ndarray) -> RowFile | None:
    """The file that an array maps as a whole, or None. A slice is read from memory: it reports its parent's offset."""
    if not isinstance(x, np.memmap) or x.filename is None or not x.flags.c_contiguous:
        return None
    path = Path(x.filename)
    return RowFile(path, x.offset) if x.offset + x.nbytes == path.stat().st_size else None


def chunk_rows(num_points: int, size: int, groups: Tensor | None) -> Iterator[Tensor]:
    """The rows of each chunk. A chunk takes whole groups [N] until the next one would not fit."""
    if groups is None:
        yield from torch.arange(num_points).split(size)
        return
    order = groups.argsort(stable=True)
    counts = groups[order].unique_consecutive(return_counts=True)[1]
    chunk: list[Tensor] = []
    for rows in order.split(counts.tolist()):
        if chunk and sum(map(len, chunk)) + len(rows) > size:
            yield torch.cat(chunk)
            chunk = []
        chunk.append(rows)
    yield torch.cat(chunk)
