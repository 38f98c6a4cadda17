"""Files with made-up contents, in place of those that a dataset would read."""

import io
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from src.data.files import FromFiles


def give(monkeypatch: pytest.MonkeyPatch, *contents: bytes) -> None:
    """A dataset finds these contents of its files, in their order."""
    monkeypatch.setattr(FromFiles, "contents", lambda self: dict(zip(self.files.md5, contents, strict=True)))


def mat(**arrays: np.ndarray) -> bytes:
    """A .mat file with these arrays."""
    file: Any = io.BytesIO()
    savemat(file, arrays)
    return file.getvalue()
