"""Small trained runs, one per kind of model, for the tests of what Python can do with them."""

import atexit
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import numpy as np
from sklearn.datasets import load_digits

from src.loading import Run, load
from src.runs import identity
from src.training.experiment import run
from tests.configs import composed
from tests.training.test_experiment import QUICK, SMALL


@cache
def outputs() -> Path:
    """A folder of runs for this process."""
    folder = Path(mkdtemp(prefix="runs"))
    atexit.register(rmtree, folder)
    return folder


@cache
def run_of(model: str, *overrides: str, dataset: str = "digits") -> Run:
    """A few epochs of a model, trained once per process."""
    sizes = () if dataset == "moving_ball" else SMALL
    command = [f"model={model}", f"dataset={dataset}", *sizes, *QUICK, "trainer.enable_progress_bar=false", *overrides]
    config = composed(*command, f"paths.outputs={outputs()}")
    run(config, model, dataset)
    return load(outputs() / identity.folder_name(config, model, dataset))


def digits(count: int = 4) -> np.ndarray:
    """Grey images [n, 8, 8] from 0 to 1."""
    return (load_digits().images[:count] / 16).astype(np.float32)
