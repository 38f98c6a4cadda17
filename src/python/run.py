"""A run in Python: its trained model, and what it recorded."""

import csv
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, OmegaConf

from src.models.base import Model
from src.python.trained import Trained
from src.runs import files, identity
from src.runs.errors import UserError
from src.runs.identity import Config


class Run(Trained):
    """The trained model of a run, and what the run recorded. A checkpoint outside a run's folder has no record."""

    def __init__(self, checkpoint: Path, device: str = "cpu") -> None:
        super().__init__(Model.load_from_checkpoint(checkpoint, map_location=device))
        self.checkpoint, self.folder = checkpoint, checkpoint.parent

    @cached_property
    def metrics(self) -> dict[str, float]:
        """The metrics of the evaluation."""
        return files.read_json(self.recorded("metrics.json"))

    @property
    def notes(self) -> list[str]:
        """What the last epoch showed to have gone wrong, such as a latent dimension that is unused."""
        notes: list[str] = files.read_json(self.recorded("record.json")).get("notes", [])
        return notes

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
        return f"<{self.summary()}: {self.checkpoint}>"


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
