"""Image datasets from their real files: bytes stay bytes, and splits are the canonical ones."""

import hashlib
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from src.data import sources
from src.data.fetching import idx_bytes
from src.data.images import CIFAR10, MNIST, CIFAR10Subset, Digits, FashionMNIST, IdxImages, read_idx
from src.runs.errors import UserError


@pytest.mark.parametrize(("dataset", "first_labels"), [(MNIST, [5, 0, 4, 1]), (FashionMNIST, [9, 0, 0, 3])])
def test_mnist_and_fashion_mnist(
    dataset: type[IdxImages], first_labels: list[int], data_root: Path, data_file: Callable[[str], Path]
) -> None:
    data_file(dataset.files.folder)
    data = dataset(data_root, batch_size=1024)
    data.setup()
    assert data.train.all().x.shape == (60_000, 1, 28, 28) and data.test.all().x.shape == (10_000, 1, 28, 28)
    assert data.train.storage.dtype == torch.uint8 and data.facts.shape == (1, 28, 28)
    assert data.train.y is not None and data.test.y is not None
    assert data.train.y.dtype == torch.int64 and data.train.y[:4].tolist() == first_labels
    assert data.test.y.unique().tolist() == list(range(10))


def test_some_digits_of_mnist(data_root: Path, data_file: Callable[[str], Path]) -> None:
    """In the order of the file, with the classes that they have there."""
    data_file(MNIST.files.folder)
    some, every = (MNIST(data_root, digits, batch_size=1024) for digits in ([7, 0, 3], None))
    for data in (some, every):
        data.setup()
    for part, all_of in ((some.train, every.train), (some.test, every.test)):
        assert part.y is not None and all_of.y is not None
        rows = torch.tensor([row for row, y in enumerate(all_of.y.tolist()) if y in (0, 3, 7)])
        assert torch.equal(part.y, all_of.y[rows]) and torch.equal(part.all().x, all_of[rows].x)
    with pytest.raises(UserError, match=r"dataset\.digits=\[3, 3\] must be some of the digits 0 to 9, each once"):
        MNIST(data_root, [3, 3], batch_size=1024)


@pytest.mark.parametrize("name", sources.MNIST.md5)
def test_idx_files_are_read_and_written_bit_for_bit(name: str, data_file: Callable[[str], Path]) -> None:
    content = data_file(f"{sources.MNIST.folder}/{name}").read_bytes()
    rebuilt = idx_bytes(read_idx(content).numpy())
    assert hashlib.md5(rebuilt).hexdigest() == sources.MNIST.md5[name]


def test_idx_tensors_can_be_written_to_without_a_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tensor = read_idx(idx_bytes(np.arange(6, dtype=np.uint8).reshape(1, 2, 3)))
    tensor.add_(1)
    assert tensor.tolist() == [[[1, 2, 3], [4, 5, 6]]]


def test_cifar10_from_pickled_batches(
    tmp_path: Path,
    data_file: Callable[[str], Path],
    write_cifar: Callable[[Path, dict[str, np.ndarray]], sources.FileSet],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with np.load(data_file("cifar10_subset.npz")) as subset:
        arrays = dict(subset)
    monkeypatch.setattr(CIFAR10, "files", write_cifar(tmp_path, arrays))
    data = CIFAR10(str(tmp_path), batch_size="full")
    data.setup()
    for split, name in ((data.train, "train"), (data.test, "test")):
        assert split.y is not None and split.y.dtype == torch.int64
        assert split.storage.dtype == torch.uint8 and np.array_equal(split.all().x, arrays[f"x_{name}"])
        assert np.array_equal(split.y.numpy(), arrays[f"y_{name}"])
    assert data.facts.shape == (3, 32, 32)


def test_the_subset_of_cifar10_is_the_same_from_its_own_file_and_from_the_whole_ones(
    tmp_path: Path,
    data_root: Path,
    data_file: Callable[[str], Path],
    write_cifar: Callable[[Path, dict[str, np.ndarray]], sources.FileSet],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with np.load(data_file("cifar10_subset.npz")) as subset:
        arrays = dict(subset)

    def longer(name: str) -> np.ndarray:
        batches = np.split(arrays[name], 5 if name.endswith("train") else 1)
        return np.concatenate([np.concatenate([batch, batch[:3]]) for batch in batches])

    whole = write_cifar(tmp_path, {name: longer(name) for name in arrays})
    monkeypatch.setattr(CIFAR10Subset, "files", whole)
    for root in (data_root, tmp_path):
        train, test = CIFAR10Subset(root, batch_size=1024).load()
        assert train.y is not None and test.y is not None and train.y.dtype == torch.int64
        assert np.array_equal(train.all().x, arrays["x_train"]) and np.array_equal(test.all().x, arrays["x_test"])
        assert np.array_equal(train.y.numpy(), arrays["y_train"]) and np.array_equal(test.y.numpy(), arrays["y_test"])


def test_digits_are_in_the_unit_interval_and_stratified() -> None:
    data = Digits(batch_size=512)
    data.setup()
    x = data.train.all().x
    assert x.shape == (1437, 1, 8, 8) and data.test.all().x.shape == (360, 1, 8, 8)
    assert x.dtype == torch.float32 and x.min() == 0 and x.max() == 1
    assert data.train.y is not None and data.test.y is not None and data.test.y.dtype == torch.int64
    shares = data.train.y.bincount() / 1437 - data.test.y.bincount() / 360
    assert shares.abs().max() < 0.003


def test_the_split_of_digits_does_not_depend_on_the_seed() -> None:
    first, second = ([split.all().x for split in Digits(batch_size=512, seed=seed).load()] for seed in (0, 1))
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])
    assert not {row.numpy().tobytes() for row in first[0]} & {row.numpy().tobytes() for row in first[1]}


def test_a_root_in_the_home_folder_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert MNIST("~/data", batch_size=1).root == tmp_path / "data"
