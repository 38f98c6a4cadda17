"""A run in Python: `from src import load; run = load("outputs/<run>")`."""

import csv
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from src.models.base import Model
from src.python.trained import Trained
from src.runs import files, identity, record
from src.runs.errors import UserError
from src.runs.identity import Config

CHECKPOINT = "model.ckpt"


class Run(Trained):
    """The trained model of a run, and what the run recorded. A checkpoint outside a run's folder has no record."""

    def __init__(self, checkpoint: Path, device: str = "cpu") -> None:
        super().__init__(Model.load_from_checkpoint(checkpoint, map_location=device))
        self.checkpoint, self.folder = checkpoint, checkpoint.parent

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The metrics of the evaluation."""
        return files.read_json(self.recorded("metrics.json"))

    @cached_property
    def config(self) -> Config:
        """The whole config."""
        config = OmegaConf.load(self.recorded("config.yaml"))
        assert isinstance(config, DictConfig)
        return identity.plain(config)

    @cached_property
    def history(self) -> "Columns":
        """Loss, its parts and the seconds of every epoch."""
        with self.recorded("history.csv").open() as file:
            return Columns(csv.DictReader(file))

    def recorded(self, name: str) -> Path:
        """A file of the run's folder."""
        path = self.folder / name
        if not path.exists():
            raise UserError(f"{self.checkpoint} is a checkpoint without the record of its run: there is no {path}")
        return path

    def __repr__(self) -> str:
        facts, latent_dim = self.model.facts, getattr(self.model, "latent_dim", None)
        latents = "" if latent_dim is None else f", {latent_dim} latent dimensions"
        shape = " x ".join(map(str, facts.shape))
        return f"<{type(self.model).__name__} of {facts.num_train} points [{shape}]{latents}: {self.checkpoint}>"


class Columns(dict[str, np.ndarray]):
    """One array per column, with a row per epoch; `to_frame` makes a pandas DataFrame of it."""

    def __init__(self, rows: Iterable[Mapping[str, Any]]) -> None:
        table = list(rows)
        names = dict.fromkeys(name for row in table for name in row)
        super().__init__({name: np.array([float(row.get(name, "nan")) for row in table]) for name in names})

    def to_frame(self) -> Any:
        """The history as a DataFrame, for which pandas must be installed."""
        from src.data.sheets import library

        return library("pandas").DataFrame(dict(self))

    def __repr__(self) -> str:
        length = len(next(iter(self.values()), ()))
        return f"<{length} rows of {', '.join(self)}>"


def load(run: str | Path, outputs: str | Path = "outputs", device: str = "cpu") -> Run:
    """A finished run by its folder, the name of the folder, its fingerprint, or the path of a `model.ckpt`.

    `outputs` is the folder of runs in which names and fingerprints are looked up.
    """
    return Run(find(run, Path(outputs)), device)


def find(run: str | Path, outputs: Path) -> Path:
    """The checkpoint of a run."""
    path = Path(run).expanduser()
    if path.is_file():
        return path
    folder = path if path.is_dir() else in_outputs(str(run), outputs)
    if (folder / CHECKPOINT).exists():
        return folder / CHECKPOINT
    status = record.status(folder)
    state = f"its run is {status}" if status else "it is not the folder of a run"
    raise UserError(f"{folder} has no {CHECKPOINT}: {state}")


def in_outputs(name: str, outputs: Path) -> Path:
    """The folder of a run below `outputs` by its name or its fingerprint."""
    folders = sorted(path for path in outputs.glob("*") if path.is_dir())
    names = [folder.name for folder in folders]
    found = [folder for folder in folders if name in (folder.name, folder.name.rpartition("-")[2])]
    if len(found) > 1:
        raise UserError(f"{name} is the fingerprint of several runs: {', '.join(each.name for each in found)}")
    if not found:
        near = get_close_matches(name, names, n=2)
        question = f"; did you mean {' or '.join(near)}?" if near else ""
        raise UserError(f"there is no run {name} in {outputs.absolute()}{question}")
    return found[0]
