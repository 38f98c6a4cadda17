"""The toy curve: the points of the published code."""

import numpy as np
import torch

from src.data.toy_curve import ToyCurve


def test_the_points_are_those_of_the_published_code() -> None:
    data = ToyCurve("full")
    data.setup()
    np.random.seed(22)  # as published
    x = np.random.rand(100, 1)
    y = np.sin(2 * x) + 0.2 * np.cos(22 * x) + 0.1 * np.random.randn(100, 1)
    assert torch.equal(data.train.all().x, torch.from_numpy(x))
    assert data.train.y is not None and torch.allclose(data.train.y, torch.from_numpy(y), rtol=1e-12)


def test_test_targets_are_values_of_the_function_at_even_places() -> None:
    data = ToyCurve("full", seed=3)
    data.setup()
    x, y = data.test.all().x, data.test.y
    assert y is not None and data.noise_free_test and data.facts.target.kind == "real"
    assert torch.allclose(x[:, 0], torch.linspace(0, 1, 100, dtype=torch.float64))
    assert torch.allclose(y, torch.sin(2 * x) + 0.2 * torch.cos(22 * x))
