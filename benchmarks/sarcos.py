"""The errors of stochastic active sets on SARCOS beside exact Gaussian processes by scikit-learn."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.preprocessing import StandardScaler

from benchmarks.examples import composed
from benchmarks.rows import Row
from src.data.batch import Split
from src.training.experiment import make_data, train_in_memory

LEARNING_ROWS = 1000  # from which scikit-learn has its hyperparameters: all rows take it hours
LIMIT = 1.1


def sarcos() -> Iterator[Row]:
    """The SMSE of each torque, given all training points, in times that of an exact GP of its own."""
    config = composed(
        "model=sas_regression",
        "dataset=sarcos",
        "kernel=rbf_ard",
        "active_set=a800",
        "trainer.enable_progress_bar=false",
    )
    data = make_data(config)
    model: Any = train_in_memory(config, data)[0]
    (x, y), (x_test, y_test) = arrays(data.train), arrays(data.test)
    with torch.no_grad():
        predicted = model.predict(torch.from_numpy(x_test), model.given(data.train.all())).mean.numpy()
    scale = StandardScaler().fit(x)
    for torque in range(y.shape[1]):
        exact = exact_predictions(scale.transform(x), y[:, torque], scale.transform(x_test))
        ours, other = (smse(found, y_test[:, torque]) for found in (predicted[:, torque], exact))
        yield Row(
            f"SMSE of torque {torque + 1}, SARCOS", "scikit-learn's exact GP", ours, other, ours / other, LIMIT, unit=""
        )


def arrays(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Inputs [N, 21] and torques [N, 7]."""
    batch = split.all()
    assert batch.y is not None
    return batch.x.numpy(), batch.y.numpy()


def exact_predictions(x: np.ndarray, y: np.ndarray, x_test: np.ndarray) -> np.ndarray:
    """The means of a GP given all rows, with one length scale per input."""
    kernel = ConstantKernel(10.0, (1e-2, 1e4)) * RBF(np.full(x.shape[1], 10.0), (1e-1, 1e4)) + WhiteKernel(1e-2)
    chosen = np.random.default_rng(0).choice(len(x), LEARNING_ROWS, replace=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # an input without influence reaches its longest scale
        learned = GaussianProcessRegressor(kernel, normalize_y=True).fit(x[chosen], y[chosen])
    exact = GaussianProcessRegressor(learned.kernel_, optimizer=None, normalize_y=True).fit(x, y)
    found: np.ndarray = exact.predict(x_test)
    return found


def smse(predicted: np.ndarray, y: np.ndarray) -> float:
    """The mean squared error over the variance of the targets."""
    return float(((predicted - y) ** 2).mean() / y.var())
