"""The base class of datasets whose files lie below a root, and what several of them need to read theirs."""

import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from typing_extensions import Unpack

from src.data import sources
from src.data.batch import Split, split_of
from src.data.module import DataModule, Options


class FromFiles(DataModule):
    """Data from files below `root`; missing files are downloaded to it if they have an address."""

    files: sources.FileSet

    def __init__(self, root: str | Path, **options: Unpack[Options]) -> None:
        super().__init__(**options)
        self.root = Path(root).expanduser()

    def contents(self) -> dict[str, bytes]:
        """The verified content of each file of the dataset."""
        return sources.obtain(self.files, self.root).contents


def matlab(content: bytes) -> dict[str, Any]:
    """The arrays of a .mat file, by name."""
    from scipy.io import loadmat

    return loadmat(io.BytesIO(content))


def stratified(x: np.ndarray, y: np.ndarray, test_size: float = 0.2) -> tuple[Split, Split]:
    """A split with the same shares of the classes y [N] in both parts, the same in every run."""
    from sklearn.model_selection import train_test_split

    parts = train_test_split(np.arange(len(y)), test_size=test_size, random_state=0, stratify=y)
    train, test = (split_of(torch.from_numpy(x[rows]), torch.from_numpy(y[rows])) for rows in parts)
    return train, test
