"""New data in the latent space of a trained model: read as the checkpoint's facts say, encoded, and written.

Datasets are imported when they are needed: the report loads this room, and should not have to load Lightning.
"""

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from src.data.batch import Split
from src.data.facts import Facts
from src.data.standardisation import Scale
from src.evaluation.task import CHUNK
from src.models.capabilities import HasLatents
from src.runs.errors import UserError
from src.runs.files import whole

ENDINGS = {".npy": ".npz", ".npz": ".npz", ".h5ad": ".h5ad"}  # of what is written by default; tables become .csv


class Observations(NamedTuple):
    """New data as a model knows them, and the names of the rows."""

    split: Split
    rows: Sequence[Any]


class Embedding(NamedTuple):
    """q(z) of each row."""

    mean: np.ndarray  # [n, Q]
    variance: np.ndarray  # [n, Q]
    rows: Sequence[Any]


def read(path: Path, facts: Facts, layer: str | None = None) -> Observations:
    """New observations: columns are found by name and standardised with the checkpoint's constants."""
    from src.data import arrays, sheets, table

    where = f"--embed {path}"
    if path.suffix in (".npy", ".npz"):
        stored = arrays.read_file(str(path), where, "x")
        found = arrays.pick(stored, "x", "x_test", "x_train")
        if found is None:
            raise UserError(f"{where} holds {', '.join(stored)}, but no x")
        split = arrays.observations(found)
        rows: Sequence[Any] = range(len(split))
    elif facts.columns:
        sheet = sheets.read_sheet(path, where, layer)
        split, rows = table.observations(sheet, facts.columns), sheet.beside.index
    else:
        raise UserError(f"{where} is a table, but the model was trained on data without column names: use .npy or .npz")
    if split.storage.shape != facts.shape:
        raise UserError(f"{where} has rows of shape {split.storage.shape}, but the model was trained on {facts.shape}")
    scale = Scale.stored(facts)
    return Observations(split if scale is None else scale.applied(split), rows)


@torch.no_grad()
def embed(model: HasLatents, new: Observations) -> Embedding:
    """Mean and variance of q(z) of each row."""
    if model.facts.aux:
        raise UserError(f"the model also needs the columns {', '.join(model.facts.aux)}, which --embed cannot give")
    parts = [model.encode(chunk.to(model.device), seen=False) for chunk in new.split.chunks(CHUNK)]
    mean, variance = (torch.cat([getattr(q, name).cpu() for q in parts]) for name in ("mean", "variance"))
    bad = ~mean.isfinite().all(1)
    if bad.any():
        reason = "values are missing" if new.split.mask is not None else "values are far from the training data"
        raise UserError(f"row {int(bad.nonzero()[0]) + 1} of the new data cannot be encoded: {reason}")
    return Embedding(mean.numpy(), variance.numpy(), new.rows)


def target(source: Path, out: Path | None, folder: Path) -> Path:
    """Where to write the latents: by default to a folder of the run; never over the data, unless it only adds to them.

    An .h5ad file may be its own target: it keeps everything and gets two more arrays.
    """
    stem = source.stem.removesuffix(".csv").removesuffix(".tsv")  # of a compressed file
    path = out or folder / "embeddings" / f"{stem}{ENDINGS.get(source.suffix, '.csv')}"
    if path.suffix not in WRITERS or (path.suffix == ".h5ad" and source.suffix != ".h5ad"):
        raise UserError(f"--out {path} must end in .csv, .parquet or .npz, or in .h5ad if --embed does")
    if path.resolve() == source.resolve() and path.suffix != ".h5ad":
        raise UserError(f"--out {path} would replace the data by their latents: choose another name")
    return path


def write(found: Embedding, source: Path, path: Path) -> None:
    """Write latents in the format of the path's ending."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole(path) as unfinished:
            WRITERS[path.suffix](found, source, unfinished)
    except OSError as error:
        raise UserError(f"{path} cannot be written: {error}") from error


def frame(found: Embedding) -> Any:
    """A table with the columns z1 to zQ and var1 to varQ."""
    from src.data.sheets import library
    from src.data.table import INDEX

    latent_dim = found.mean.shape[1]
    names = [f"{name}{q + 1}" for name in ("z", "var") for q in range(latent_dim)]
    values = np.concatenate([found.mean, found.variance], 1)
    result = library("pandas").DataFrame(values, index=found.rows, columns=names)
    result.index.name = result.index.name or INDEX
    return result


def write_h5ad(found: Embedding, source: Path, path: Path) -> None:
    """The source with two more arrays of its rows."""
    from src.data.sheets import library

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # older AnnData files make their reader warn
        data = library("anndata").read_h5ad(source)
        data.obsm["X_gp"], data.obsm["X_gp_variance"] = found.mean, found.variance
        data.write_h5ad(path)


Writer = Callable[[Embedding, Path, Path], None]
WRITERS: dict[str, Writer] = {
    ".csv": lambda found, _, path: frame(found).to_csv(path),
    ".parquet": lambda found, _, path: frame(found).to_parquet(path),
    ".npz": lambda found, _, path: np.savez(path, mean=found.mean, variance=found.variance),
    ".h5ad": write_h5ad,
}
