"""Splits of which everything can be told from the row."""

from typing import Any

import torch
from torch import Tensor

from src.data.batch import Batch, Split, split_of
from src.data.module import DataModule

SCALE = torch.tensor([1, 10])


def rows(num_data: int, groups: Tensor | None = None) -> Split:
    """Row n has x = (n, 10 n), y = n + 100, aux = n / 2, latents = -n and a mask that shows the parity of n."""
    row = torch.arange(num_data)
    even = (row % 2 == 0)[:, None]
    return split_of(
        row[:, None] * SCALE,
        row + 100,
        aux=row[:, None] / 2,
        mask=torch.cat([even, ~even], 1),
        groups=row + 1000 if groups is None else groups,
        latents=-row[:, None],
    )


def assert_is_gather(batch: Batch, index: Tensor) -> None:
    """A batch of `rows` has everything of these rows."""
    assert batch.y is not None and batch.aux is not None and batch.mask is not None
    assert torch.equal(batch.index, index)
    assert torch.equal(batch.x, index[:, None] * SCALE)
    assert torch.equal(batch.y, index + 100)
    assert torch.equal(batch.aux, index[:, None] / 2)
    assert torch.equal(batch.mask[:, 0], index % 2 == 0) and torch.equal(batch.mask[:, 1], index % 2 == 1)


class Rows(DataModule):
    """Ten training and four test points."""

    def load(self) -> tuple[Split, Split]:
        return rows(10), rows(4)


def loaded(**options: Any) -> Rows:
    data = Rows(**{"batch_size": 3, **options})
    data.setup()
    return data
