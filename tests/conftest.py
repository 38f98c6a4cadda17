"""What all tests share: where real data lies, and that nothing is fetched from a network unless asked for."""

import hashlib
import os
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from src.data.sources import CIFAR10, FileSet

torch.set_num_threads(1)  # the tests' matrices are small: threads only get in each other's way


ON_REQUEST = {  # markers of what runs only when it is asked for, and the command that does
    "network": "pytest -m network",
    "browser": "make test-browser",
    "slurm": "make test-slurm",
    "optuna": "make test-optuna",
    "mlflow": "make test-mlflow",
    "planted": "make test-planted",
    "slow": "make test-slow",
    "tutorials": "make test-tutorials",
    "wheel": "make test-wheel",
}


def pytest_configure(config: pytest.Config) -> None:
    for marker, command in ON_REQUEST.items():
        config.addinivalue_line("markers", f"{marker}: run by `{command}`")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker, command in ON_REQUEST.items():
        if marker not in config.getoption("markexpr"):
            for item in items:
                if item.get_closest_marker(marker):
                    item.add_marker(pytest.mark.skip(reason=f"{marker}: run by `{command}`"))


@pytest.fixture
def cholesky_sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the matrices that are factorised while a test runs; stacks of Q x Q matrices are not counted."""
    sizes: list[int] = []
    cholesky = torch.linalg.cholesky

    def counted(k: torch.Tensor) -> torch.Tensor:
        if k.ndim == 2:
            sizes.append(len(k))
        return cholesky(k)

    monkeypatch.setattr(torch.linalg, "cholesky", counted)
    return sizes


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data: the environment's GP_DECODERS_DATA, or shared/data beside the repository."""
    beside = Path(__file__).parents[2] / "shared" / "data"
    root = Path(os.environ.get("GP_DECODERS_DATA") or beside)
    if not root.is_dir():
        pytest.skip(f"there is no data folder {root} (set GP_DECODERS_DATA)")
    return root


@pytest.fixture(scope="session")
def data_file(data_root: Path) -> Callable[[str], Path]:
    """A file of real data by its path below the data root; the test is skipped, by name, where it is missing."""

    def find(name: str) -> Path:
        if not (data_root / name).exists():
            pytest.skip(f"there is no {name} in {data_root}")
        return data_root / name

    return find


@pytest.fixture
def write_cifar() -> Callable[[Path, dict[str, np.ndarray]], FileSet]:
    """Writes arrays as CIFAR-10's pickled batches below a root, and returns the file set with their checksums."""

    def write(root: Path, arrays: dict[str, np.ndarray]) -> FileSet:
        folder = root / CIFAR10.folder
        folder.mkdir(parents=True)
        x = [*np.split(arrays["x_train"], 5), arrays["x_test"]]
        y = [*np.split(arrays["y_train"], 5), arrays["y_test"]]
        for name, images, labels in zip(CIFAR10.md5, x, y, strict=True):
            batch = {"data": images.reshape(len(images), -1), "labels": labels.tolist()}
            (folder / name).write_bytes(pickle.dumps(batch, protocol=4))
        md5 = {name: hashlib.md5((folder / name).read_bytes()).hexdigest() for name in CIFAR10.md5}
        return replace(CIFAR10, md5=md5)

    return write
