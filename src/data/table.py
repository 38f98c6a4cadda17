"""The user's own tables: CSV, Parquet and AnnData files, read by pandas and anndata (the extra `tables`)."""

import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from src.data.arrays import hold_out, is_binary, observed
from src.data.batch import Split, Storage, split_of
from src.data.module import DataModule, Options
from src.data.one_hot import checked, columns_of
from src.data.standardisation import shortened
from src.runs.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = (".csv", ".tsv", ".parquet", ".h5ad")
INDEX = "index"  # the name of a first column without a name, which R and pandas write: the names of the rows

log = logging.getLogger(__name__)


class Sheet(NamedTuple):
    """A table as it was read. AnnData files keep their numbers apart from the columns that describe the rows."""

    where: str  # the option and the file, as the user knows them
    names: list[str]  # of the columns that can be observations
    take: "Callable[[list[str]], pd.DataFrame]"  # gives some of these columns
    beside: "pd.DataFrame"  # columns for targets and labels, with the names of the rows as its index


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


def read_sheet(path: str | Path, where: str, layer: str | None = None) -> Sheet:
    """Read a file by the ending of its name."""
    file = Path(path).expanduser()
    ending = ending_of(file)
    if ending is None:
        raise UserError(f"{where} must end in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    if layer is not None and ending != ".h5ad":
        raise UserError(f"dataset.layer={layer} needs an .h5ad file, but {where} has no layers")
    if not file.is_file():
        raise UserError(f"{where} does not exist (looked for {file.absolute()})")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # older AnnData files make their reader warn
            sheet = read_h5ad(file, where, layer) if ending == ".h5ad" else read_frame(file, where, ending)
    except UserError:
        raise
    except Exception as error:  # a damaged file makes the libraries raise almost anything
        raise UserError(f"{where} cannot be read as {ending}: {' '.join(str(error).split())[:300]}") from error
    if not len(sheet.beside):
        raise UserError(f"{where} is empty: it has no rows")
    if repeated := [name for name, count in Counter(sheet.names).items() if count > 1]:
        raise UserError(f"{where} has several columns of the same name: {shortened(repeated)}")
    return sheet


def ending_of(file: Path) -> str | None:
    """The ending that tells the format, also of compressed text such as `x.csv.gz`; None if it is unknown."""
    return next((suffix for suffix in reversed(file.suffixes[-2:]) if suffix.lower() in ENDINGS), None)


def library(name: str) -> Any:
    """A package of the extra `tables`."""
    try:
        return import_module(name)
    except ImportError as error:
        raise UserError(f'tables need {name}, which is not installed: pip install -e ".[tables]"') from error


def read_frame(file: Path, where: str, ending: str) -> Sheet:
    """A CSV or Parquet file; a first column of a CSV file without a name holds the names of the rows."""
    pandas = library("pandas")
    if ending == ".parquet":
        library("pyarrow")
        frame = pandas.read_parquet(file, engine="pyarrow")
    else:
        options = {"sep": "\t" if ending == ".tsv" else ",", "encoding": "utf-8-sig"}
        try:
            head = pandas.read_csv(file, nrows=0, **options).columns
        except pandas.errors.EmptyDataError:
            raise UserError(f"{where} is empty: it has no header") from None
        named = not str(head[0]).startswith("Unnamed: ")
        frame = pandas.read_csv(file, index_col=None if named else 0, low_memory=False, **options)
    frame.columns = frame.columns.map(str)
    return Sheet(where, list(frame.columns), frame.__getitem__, frame)


def read_h5ad(file: Path, where: str, layer: str | None) -> Sheet:
    """An AnnData file: the matrix X or a layer, and the columns `obs` that describe the rows."""
    library("pandas")
    data = library("anndata").read_h5ad(file)
    if layer is not None and layer not in data.layers:
        raise UserError(f"{where} has no layer {layer}{nearest(layer, list(data.layers), 'layers')}")
    if layer is None and data.X is None:
        raise UserError(f"{where} has no matrix X{nearest('', list(data.layers), 'layers')}: set dataset.layer")

    def take(names: list[str]) -> "pd.DataFrame":
        return data[:, names].to_df(layer)  # only these columns of a sparse matrix become dense

    return Sheet(where, [str(name) for name in data.var_names], take, data.obs)


def nearest(name: str, names: Sequence[str], kind: str = "columns") -> str:
    """The end of a sentence about a name that does not exist: similar names, or else the first ones."""
    if not names:
        return f"; it has no {kind}"
    close = get_close_matches(name, names, n=3)
    return f"; did you mean {' or '.join(close)}?" if close else f"; its {kind} are {shortened(names)}"


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


def holds_numbers(column: "pd.Series") -> bool:
    """Whether most cells are numbers. A few words among them are an error to report, not a reason to drop a column."""
    pandas = library("pandas")
    if pandas.api.types.is_numeric_dtype(column):
        return True
    present = column.dropna().astype(object)
    numbers = pandas.to_numeric(present, errors="coerce").notna().sum()
    return bool(numbers and 2 * numbers >= len(present))


def observations(sheet: Sheet, names: Sequence[str]) -> Split:
    """Some columns [N, D] in float64, with the mask of the cells that are not empty."""
    known = set(sheet.names)
    if missing := [name for name in names if name not in known]:
        others = f" (and {len(missing) - 1} more are missing)" if len(missing) > 1 else ""
        raise UserError(f"{sheet.where} has no column {missing[0]}{others}{nearest(missing[0], sheet.names)}")
    split = split_of(torch.from_numpy(numbers(sheet.take(list(names)), sheet.where)))
    return replace(split, mask=observed(split, sheet.where))


def numbers(frame: "pd.DataFrame", where: str) -> np.ndarray:
    """A table as float64 [N, D] with NaN for empty cells."""
    numeric = library("pandas").api.types.is_numeric_dtype
    others = [name for name, dtype in frame.dtypes.items() if not numeric(dtype)]
    if others:
        frame = frame.assign(**{name: converted(frame[name], where) for name in others})
    return np.ascontiguousarray(frame.to_numpy(np.float64, na_value=np.nan))  # rows are gathered


def converted(column: "pd.Series", where: str) -> "pd.Series":
    """A column of text as numbers; a word among them is an error that names its cell."""
    found = library("pandas").to_numeric(column.astype(object), errors="coerce")
    text = (found.isna() & column.notna()).to_numpy()
    if text.any():
        row = int(text.argmax())
        raise UserError(
            f"{where} has text where a number belongs: column {column.name}, row {row + 1} (counted from 1, without "
            f"the header) holds {str(column.iloc[row])!r}; correct it, or choose other dataset.columns"
        )
    return found


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
