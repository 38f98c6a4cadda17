"""A curve in one dimension, the toy example of Meng et al. (Regularized Sparse Gaussian Processes)."""

import numpy as np
import torch

from src.data.batch import Split, split_of
from src.data.module import DataModule

POINTS, NOISE = 100, 0.1  # of each split; the sd of the noise
SEED = 22  # of the published code


class ToyCurve(DataModule):
    """y = sin 2x + 0.2 cos 22x at 100 random x in [0, 1] with noise, and at 100 evenly spaced x without.

    Test targets are values of the function itself. The points are those of the published code, in every run.
    """

    noise_free_test = True

    def load(self) -> tuple[Split, Split]:
        """Draw in the order of the published code: all inputs, then all noise."""
        random = np.random.RandomState(SEED)
        x = random.rand(POINTS, 1)
        y = curve(x) + NOISE * random.randn(POINTS, 1)
        grid = np.linspace(0, 1, POINTS)[:, None]
        return of_arrays(x, y), of_arrays(grid, curve(grid))


def curve(x: np.ndarray) -> np.ndarray:
    """f(x)."""
    return np.sin(2 * x) + 0.2 * np.cos(22 * x)


def of_arrays(x: np.ndarray, y: np.ndarray) -> Split:
    """Points with real targets, in the precision of a default run."""
    return split_of(torch.from_numpy(x), torch.from_numpy(y))
