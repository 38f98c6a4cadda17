"""Categories of a table: groups of 0/1 columns of which one is 1 in each row."""

from collections.abc import Sequence
from dataclasses import replace

import torch

from src.data.batch import Split
from src.runs.errors import UserError


def columns_of(categories: Sequence[str], names: Sequence[str], where: str) -> list[list[str]]:
    """The columns of each category: those whose names begin with it."""
    groups = [[name for name in names if name.startswith(category)] for category in categories]
    for category, group in zip(categories, groups, strict=True):
        if len(group) < 2:
            raise UserError(f"dataset.one_hot names {category}, but {where} has {len(group)} columns that begin so")
    chosen = [name for group in groups for name in group]
    if len(set(chosen)) < len(chosen):
        raise UserError(f"dataset.one_hot={','.join(categories)}: a column begins with several of these names")
    return groups


def checked(split: Split, groups: Sequence[Sequence[str]], where: str) -> Split:
    """The split with whole categories missing where any of their cells is empty; otherwise one cell is 1."""
    x, start = split.storage.values, 0
    seen = torch.ones_like(x, dtype=torch.bool) if split.mask is None else split.mask.clone()
    for group in groups:
        part = slice(start, start + len(group))
        known = seen[:, part].all(1)
        cells = x[known, part]
        wrong = ~(((cells == 0) | (cells == 1)).all(1) & (cells.sum(1) == 1))
        if wrong.any():
            row = int(known.nonzero().squeeze(1)[wrong][0])
            raise UserError(
                f"{where} is not one-hot in row {row + 1} (counted from 1, without the header): of the columns "
                f"{', '.join(group)} one must be 1 and the others 0"
            )
        seen[:, part] = known.unsqueeze(1)
        start += len(group)
    return replace(split, mask=None if seen.all() else seen)
