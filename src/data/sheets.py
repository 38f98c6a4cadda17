"""The files of tables: CSV, Parquet and AnnData, read by pandas and anndata (the extra `tables`)."""

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from src.data.standardisation import shortened
from src.runs.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

ENDINGS = (".csv", ".tsv", ".parquet", ".h5ad")


class Sheet(NamedTuple):
    """A table as it was read. AnnData files keep their numbers apart from the columns that describe the rows."""

    where: str  # the option and the file, as the user knows them
    names: list[str]  # of the columns that can be observations
    take: "Callable[[list[str]], pd.DataFrame]"  # gives some of these columns
    beside: "pd.DataFrame"  # columns for targets and labels, with the names of the rows as its index


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


def holds_numbers(column: "pd.Series") -> bool:
    """Whether most cells are numbers. A few words among them are an error to report, not a reason to drop a column."""
    pandas = library("pandas")
    if pandas.api.types.is_numeric_dtype(column):
        return True
    present = column.dropna().astype(object)
    numbers = pandas.to_numeric(present, errors="coerce").notna().sum()
    return bool(numbers and 2 * numbers >= len(present))


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
