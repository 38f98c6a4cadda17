"""The user's own tables: which columns are observations, which are targets, and the splits that they make."""

import logging
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from src.data.arrays import hold_out, is_binary, observed
from src.data.batch import Split, Storage, split_of
from src.data.module import DataModule, Options
from src.data.one_hot import checked, columns_of
from src.data.sheets import Sheet, holds_numbers, nearest, numbers, read_sheet
from src.data.standardisation import shortened
from src.runs.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

INDEX = "index"  # the name of a first column without a name, which R and pandas write: the names of the rows

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Roles:
    """The columns that a user names: the observations (None: all numeric ones), and real targets or a class label."""

    columns: tuple[str, ...] | None = None
    targets: tuple[str, ...] = ()
    label: str | None = None

    def __post_init__(self) -> None:
        if self.targets and self.label:
            raise UserError(
                f"dataset.target={','.join(self.targets)} and dataset.label={self.label} cannot both be the target of "
                "a run: set one of them to null"
            )
        if both := [name for name in self.columns or () if name in self.beside]:
            raise UserError(f"dataset.columns has {both[0]}, which is the target or label: name it once")
        if self.columns is not None and len(set(self.columns)) < len(self.columns):
            raise UserError(f"dataset.columns={','.join(self.columns)} names a column twice")

    @property
    def beside(self) -> tuple[str, ...]:
        """The names of the targets or the label."""
        return (*self.targets, *([] if self.label is None else [self.label]))


class Table(DataModule):
    """Rows of a CSV, Parquet or AnnData file. Empty cells are missing; columns are found by their names.

    Without `columns`, all numeric columns other than `target` and `label` are observations. Without `test`, one tenth
    of the rows becomes the test split: the same tenth in every run.
    """

    def __init__(
        self,
        train: str | None,
        test: str | None = None,
        columns: Sequence[str] | None = None,
        target: str | Sequence[str] | None = None,
        label: str | None = None,
        layer: str | None = None,
        standardise: bool = True,
        one_hot: Sequence[str] | None = None,
        name: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.name = name
        self.files, self.layer, self.standardise = (train, test), layer, standardise
        self.categories = as_names(one_hot)
        if self.categories and (standardise or columns is not None):
            raise UserError(
                "dataset.one_hot needs dataset.standardise=false, and chooses the columns itself (no dataset.columns)"
            )
        self.roles = Roles(
            None if columns is None else as_names(columns), as_names(target), None if label is None else str(label)
        )

    def load(self) -> tuple[Split, Split]:
        """Read the files, choose the columns, and pair observations with targets."""
        train_file, test_file = self.files
        if train_file is None:
            raise UserError("dataset.train is missing; name your file, as in dataset.train=path/to/table.csv")
        sheets = [read_sheet(train_file, f"dataset.train={train_file}", self.layer)]
        if test_file is not None:
            sheets.append(read_sheet(test_file, f"dataset.test={test_file}", self.layer))
        groups = columns_of(self.categories, sheets[0].names, sheets[0].where)
        chosen = [name for group in groups for name in group]
        self.columns = tuple(chosen or observation_names(sheets[0], self.roles))
        self.one_hot = tuple(map(len, groups))
        splits = [
            replace(observations(sheet, self.columns), y=y)
            for sheet, y in zip(sheets, self.targets(sheets), strict=True)
        ]
        if groups:
            splits = [checked(split, groups, sheet.where) for split, sheet in zip(splits, sheets, strict=True)]
        if not self.standardise:
            splits = [replace(split, storage=Storage(split.storage.values.float())) for split in splits]
            self.binary = all(map(is_binary, splits))
        return hold_out(splits[0]) if len(splits) == 1 else (splits[0], splits[1])

    def targets(self, sheets: list[Sheet]) -> list[Tensor | None]:
        """Real targets or class ids of each file, or none; ids mean the same class in all files."""
        if self.roles.targets:
            return [real_targets(sheet, self.roles.targets) for sheet in sheets]
        if self.roles.label is None:
            return [None] * len(sheets)
        labels = [label_names(sheet, self.roles.label) for sheet in sheets]
        self.classes = in_order({name for names in labels for name in names})
        return [class_ids(names, self.classes) for names in labels]


def as_names(value: str | Sequence[str] | None) -> tuple[str, ...]:
    """One name or several, as text: a config reads the name 2 as a number."""
    if value is None:
        return ()
    return tuple(map(str, value)) if isinstance(value, list | tuple) else (str(value),)


def observation_names(sheet: Sheet, roles: Roles) -> list[str]:
    """The columns of the observations: those that the user names, or all numeric ones."""
    if roles.columns is not None:
        return list(roles.columns)
    frame = sheet.take([name for name in sheet.names if name not in roles.beside])
    numeric = [name for name in frame.columns if holds_numbers(frame[name])]
    if not numeric:
        raise UserError(f"{sheet.where} has no numeric column to observe; its columns are {shortened(sheet.names)}")
    if text := [name for name in frame.columns if name not in set(numeric)]:
        log.info("columns that hold no numbers are not used: %s", shortened(text))
    return numeric


def observations(sheet: Sheet, names: Sequence[str]) -> Split:
    """Some columns [N, D] in float64, with the mask of the cells that are not empty."""
    known = set(sheet.names)
    if missing := [name for name in names if name not in known]:
        others = f" (and {len(missing) - 1} more are missing)" if len(missing) > 1 else ""
        raise UserError(f"{sheet.where} has no column {missing[0]}{others}{nearest(missing[0], sheet.names)}")
    split = split_of(torch.from_numpy(numbers(sheet.take(list(names)), sheet.where)))
    return replace(split, mask=observed(split, sheet.where))


def beside(sheet: Sheet, name: str) -> "pd.Series":
    """A column for the targets or the label, without empty cells; `index` means the names of the rows."""
    if name in sheet.beside.columns:
        column = sheet.beside[name]
    elif name in sheet.names:
        column = sheet.take([name])[name]
    elif name in (INDEX, sheet.beside.index.name):
        column = sheet.beside.index.to_series()
    else:
        names = list(dict.fromkeys([*map(str, sheet.beside.columns), *sheet.names]))
        hint = f" ({INDEX} means the names of the rows)"
        raise UserError(f"{sheet.where} has no column {name}{nearest(name, names)}{hint}")
    empty = column.isna().to_numpy()
    if empty.any():
        raise UserError(
            f"{sheet.where} has {empty.sum()} empty cells in the column {name} of the target or label, first in row "
            f"{empty.argmax() + 1} (counted from 1, without the header): remove these rows"
        )
    return column


def real_targets(sheet: Sheet, names: Sequence[str]) -> Tensor:
    """Real targets [N, P] in float32."""
    y = torch.from_numpy(np.concatenate([numbers(beside(sheet, n).to_frame(n), sheet.where) for n in names], 1)).float()
    if not y.isfinite().all():
        raise UserError(f"{sheet.where} has infinite values (as float32) in the target {', '.join(names)}")
    return y


def label_names(sheet: Sheet, name: str) -> list[str]:
    """The class of each row as text; whole numbers have no decimals, even if they were read as floats."""
    column = beside(sheet, name)
    if column.dtype.kind == "f" and (column == column.round()).all():
        column = column.astype(np.int64)
    return column.astype(str).to_list()


def in_order(names: set[str]) -> tuple[str, ...]:
    """Names of classes as people list them: numbers by value, `2 cells` before `16 cells`."""
    try:
        return tuple(sorted(names, key=float))
    except ValueError:
        return tuple(sorted(names, key=natural_order))


def natural_order(name: str) -> list[str | int]:
    """Sort key that orders the numbers in a text by value."""
    return [int(part) if i % 2 else part for i, part in enumerate(re.split(r"(\d+)", name))]


def class_ids(names: Sequence[str], classes: Sequence[str]) -> Tensor:
    """The place of each name among the classes."""
    place = {name: i for i, name in enumerate(classes)}
    return torch.tensor([place[name] for name in names])
