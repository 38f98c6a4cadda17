"""Image datasets: MNIST, Fashion-MNIST and CIFAR-10 as bytes, and scikit-learn's digits, which need no files."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from src.data import fetching, sources
from src.data.batch import Split, split_of
from src.data.files import FromFiles, stratified
from src.data.module import DataModule, Options
from src.runs.errors import UserError


class IdxImages(FromFiles):
    """60,000 + 10,000 images of ten classes in MNIST's format, [N, 1, 28, 28]."""

    def load(self) -> tuple[Split, Split]:
        """The canonical training and test split."""
        contents = self.contents()
        return idx_split(contents, "train"), idx_split(contents, "t10k")


class MNIST(IdxImages):
    """60,000 + 10,000 handwritten digits, or those of them that are some of the `digits`."""

    files = sources.MNIST

    def __init__(self, root: str | Path, digits: Sequence[int] | None = None, **options: Unpack[Options]) -> None:
        super().__init__(root, **options)
        self.digits = None if digits is None else checked_digits(digits)

    def load(self) -> tuple[Split, Split]:
        """The canonical split of these digits; all of them lie in the file's order, with no rows to look up."""
        train, test = super().load()
        return (train, test) if self.digits is None else (of_classes(train, self.digits), of_classes(test, self.digits))


class FashionMNIST(IdxImages):
    """60,000 + 10,000 pieces of clothing."""

    files = sources.FASHION_MNIST


class CIFAR10(FromFiles):
    """50,000 + 10,000 colour photographs of ten classes, [N, 3, 32, 32]."""

    files = sources.CIFAR10
    of_each_file: int | None = None  # the number of images to take from each file; None: all

    def load(self) -> tuple[Split, Split]:
        """The canonical splits; the training split is its five files in order."""
        batches = {name: fetching.unpickle(content) for name, content in self.contents().items()}
        test = batches.pop("test_batch")
        return cifar_split(self.of_each_file, *batches.values()), cifar_split(self.of_each_file, test)


class CIFAR10Subset(CIFAR10):
    """The first 1,017 images of each file of CIFAR-10: 5,085 + 1,017."""

    of_each_file = 1017

    def load(self) -> tuple[Split, Split]:
        """From `cifar10_subset.npz` below `root` (x_train, y_train, x_test, y_test) if it exists."""
        stored = self.root / sources.CIFAR10_SUBSET
        if not stored.exists():
            return super().load()
        with np.load(stored) as arrays:
            x_train, y_train, x_test, y_test = (
                torch.from_numpy(arrays[name]) for name in ("x_train", "y_train", "x_test", "y_test")
            )
        if (len(x_train), len(x_test)) != (5 * self.of_each_file, self.of_each_file):
            raise UserError(f"{stored} holds {len(x_train)} + {len(x_test)} images instead of 5,085 + 1,017: delete it")
        return split_of(x_train, y_train.long()), split_of(x_test, y_test.long())


class Digits(DataModule):
    """scikit-learn's 1,797 digits, [N, 1, 8, 8] as float32 in [0, 1]; the same stratified 80/20 split in every run."""

    def load(self) -> tuple[Split, Split]:
        """The split has a constant seed, so that runs with different seeds are tested on the same images."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        return stratified((digits.images / 16).astype(np.float32)[:, None], digits.target.astype(np.int64))


def checked_digits(digits: Sequence[int] | None) -> list[int]:
    """Some of the digits, in the order in which they are named."""
    if not digits or sorted(set(digits) & set(range(10))) != sorted(digits):
        raise UserError(f"dataset.digits={digits} must be some of the digits 0 to 9, each once")
    return list(digits)


def of_classes(split: Split, classes: Sequence[int]) -> Split:
    """The points of some classes, in the order of the split."""
    assert split.y is not None
    return split.part(torch.isin(split.y, torch.tensor(classes)).nonzero()[:, 0])


def idx_split(contents: dict[str, bytes], name: str) -> Split:
    """The images and labels of one split in MNIST's format."""
    images = read_idx(contents[f"{name}-images-idx3-ubyte"])
    labels = read_idx(contents[f"{name}-labels-idx1-ubyte"])
    return split_of(images.unsqueeze(1), labels.long())


def read_idx(content: bytes) -> Tensor:
    """The uint8 tensor of an IDX file: byte 3 is the number of dimensions, which follow as big-endian integers."""
    ndim = content[3]
    shape = np.frombuffer(content, ">u4", count=ndim, offset=4)
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * ndim)
    return torch.from_numpy(values.reshape(shape).copy())  # a copy, because bytes are read-only


def cifar_split(of_each: int | None, *batches: dict[str, Any]) -> Split:
    """Files of CIFAR-10, joined. Each row has the red, then the green, then the blue 32 x 32 pixels of one image."""
    x = np.concatenate([batch["data"][:of_each] for batch in batches]).reshape(-1, 3, 32, 32)
    y = np.concatenate([batch["labels"][:of_each] for batch in batches]).astype(np.int64)
    return split_of(torch.from_numpy(x), torch.from_numpy(y))
