"""Rotated MNIST in small, from noise in place of MNIST."""

from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from src.data import rotated_mnist
from src.data.fetching import idx_bytes
from src.data.rotated_mnist import RotatedMNIST

OBJECTS = 20


def small_rotated_mnist(monkeypatch: pytest.MonkeyPatch, batch_size: int | Literal["full"] = 60) -> RotatedMNIST:
    """180 training and 12 test views of ten objects of each of two digits, eight of which are not for monitoring."""
    rng = np.random.default_rng(0)
    images, digits = rng.integers(0, 256, (600, 28, 28), np.uint8), rng.integers(0, 10, 600, np.uint8)
    files = {"train-images-idx3-ubyte": idx_bytes(images), "train-labels-idx1-ubyte": idx_bytes(digits)}
    monkeypatch.setattr(RotatedMNIST, "contents", lambda self: files)
    monkeypatch.setattr(rotated_mnist, "OBJECTS", 10)
    monkeypatch.setattr(rotated_mnist, "POOL", 8)
    data = RotatedMNIST(Path("nowhere"), batch_size=batch_size, digits=[6, 3])
    data.setup()
    return data
