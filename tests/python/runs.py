"""Small trained runs, one per kind of model, for the tests of what Python can do with them."""

import atexit
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp

import numpy as np
from sklearn.datasets import load_digits

from src.loading import Run, load
from tests.training.test_experiment import small_run


@cache
def outputs() -> Path:
    """A folder of runs for this process."""
    folder = Path(mkdtemp(prefix="runs"))
    atexit.register(rmtree, folder)
    return folder


@cache
def run_of(model: str, *overrides: str, dataset: str = "digits") -> Run:
    """A few epochs of a model, trained once per process."""
    return load(small_run(outputs(), "trainer.enable_progress_bar=false", *overrides, model=model, dataset=dataset))


def digits(count: int = 4) -> np.ndarray:
    """Grey images [n, 8, 8] from 0 to 1."""
    return (load_digits().images[:count] / 16).astype(np.float32)
