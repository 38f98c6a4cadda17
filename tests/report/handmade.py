"""Folders of runs as `src.train` leaves them, made by hand."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from src.runs import identity
from src.runs.identity import Config

VERSIONS = {"torch": "2.6.0"}


def config_of(
    model: str,
    dataset: str,
    seed: int,
    active_set: int | None,
    epochs: int,
    missing: Any = None,
    **settings: Any,
) -> Config:
    """A resolved config with what matters to a report."""
    hidden = {"missing": missing} if missing else {}
    return {
        "seed": seed,
        "rerun": False,
        "paths": {"data": "data", "outputs": "outputs"},
        "dataset": {"_target_": f"src.data.{dataset}", "max_train": None, "max_test": None, "seed": seed, **hidden},
        "trainer": {"max_epochs": epochs, "enable_progress_bar": True},
        "model": {
            "_target_": f"src.models.{model}",
            "latent_dim": 2,
            "optimizer": {"lr": 0.002},
            "seed": seed,
            **({} if active_set is None else {"active_set": active_set}),
            **settings,
        },
    }


def write_run(
    outputs: Path,
    model: str = "bayesian_sas",
    dataset: str = "mnist",
    seed: int = 0,
    active_set: int | None = 400,
    epochs: int = 20,
    status: str = "done",
    started: str = "2026-01-01T00:00:00+00:00",
    metrics: dict[str, float] | None = None,
    loss: Sequence[float] = (),
    folder: str | None = None,
    command: str | None = None,
    **settings: Any,
) -> Path:
    """One run, and its folder."""
    config = config_of(model, dataset, seed, active_set, epochs, **settings)
    path = outputs / (folder or identity.folder_name(config, model, dataset))
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(config))
    command = command or f"python -m src.train model={model} dataset={dataset} seed={seed}"
    record = {"status": status, "command": command, "started": started, "git": "0123456789abcdef", "versions": VERSIONS}
    (path / "record.json").write_text(json.dumps(record))
    if status == "done":
        (path / "metrics.json").write_text(json.dumps({"rmse": 0.2, **(metrics or {})}))
    if loss:
        write_history(path / "history.csv", loss)
    return path


def write_history(path: Path, loss: Sequence[float]) -> None:
    """A curve with two seconds an epoch."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "step", "seconds", "loss", "rest"])
        writer.writerows([i, 58 * (i + 1), 2.0, value, -value] for i, value in enumerate(loss))


def write_explorer(folder: Path, shape: tuple[int, ...] = (1, 4, 4), latent_dim: int = 2, **arrays: np.ndarray) -> None:
    """What a run leaves for maps, of random numbers."""
    rng, n, side = np.random.default_rng(0), 120, 5

    def pixels(*size: int) -> np.ndarray:
        return rng.integers(0, 256, (*size, *shape), np.uint8)

    found = {
        "z": rng.normal(size=(n, latent_dim)).astype(np.float32),
        "error": rng.uniform(size=n).astype(np.float32),
        "labels": np.arange(n) % 10,
        "range": np.array([0.0, 1.0]),
        "images": pixels(n),
        "reconstructions": pixels(n),
    }
    if latent_dim == 2:
        found |= {
            "grid_across": np.linspace(-3, 3, side, dtype=np.float32),
            "grid_up": np.linspace(-2, 2, side, dtype=np.float32),
            "grid_mean": pixels(side, side),
            "grid_sd": rng.uniform(0.1, 0.2, (side, side)).astype(np.float32),
        }
    np.savez_compressed(folder / "explorer.npz", **{**found, **arrays})  # type: ignore[arg-type]
