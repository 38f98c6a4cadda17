"""Textures: patches without a common pixel, and the real photographs."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from src.data.sources import FileSet
from src.data.textures import Textures, draw_patches, texture_files
from src.runs.errors import UserError


def photograph(height: int, width: int) -> bytes:
    """A photograph whose rows of patches have a grey value of their own."""
    file = io.BytesIO()
    Image.fromarray(np.repeat(np.arange(height) // 16, width).reshape(height, width).astype(np.uint8)).save(file, "png")
    return file.getvalue()


def test_patches_lie_side_by_side() -> None:
    patches = draw_patches(photograph(330, 250))  # 20 x 15 patches fit
    assert patches.shape == (300, 1, 16, 16) and patches.dtype == torch.uint8
    assert (patches.flatten(1).amax(1) == patches.flatten(1).amin(1)).all()
    assert patches[:, 0, 0, 0].bincount().tolist() == [15] * 20


def loaded(root: Path, *names: str, **options: Any) -> Textures:
    data = Textures(root, names or ("brick", "gravel"), batch_size="full", **options)
    data.setup()
    return data


@pytest.mark.parametrize("names", [("brick", "gravel"), ("D20", "D16", "grass")])
def test_real_textures(names: tuple[str, ...], data_root: Path, data_file: Callable[[str], Path]) -> None:
    for name in texture_files(names).md5:
        data_file(f"textures/{name}")
    data = loaded(data_root, *names)
    size = 150 * len(names)
    assert data.train.all().x.shape == data.test.all().x.shape == (size, 1, 16, 16)
    assert data.facts.classes == names and data.facts.scale == "image"
    for split in (data.train, data.test):
        assert split.y is not None and split.y.bincount().tolist() == [150] * len(names)
    seen, unseen = ({x.numpy().tobytes() for x in split.all().x} for split in (data.train, data.test))
    assert not seen & unseen


def test_standardised_pixels(data_root: Path, data_file: Callable[[str], Path]) -> None:
    for name in ("brick.png", "gravel.png"):
        data_file(f"textures/{name}")
    data = loaded(data_root, standardise=True)
    x, raw = data.train.all().x, loaded(data_root).train.all().x.double()
    assert x.mean().abs() < 1e-5 and (x.std(correction=0) - 1).abs() < 1e-5 and data.facts.scale == "table"
    assert torch.corrcoef(torch.stack([x.flatten().double(), raw.flatten()]))[0, 1] == pytest.approx(1)


def test_brodatz_textures_are_put_there_by_hand(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"put D16.gif \(MD5 bd81.*\) into .*textures; no public address of Brodatz"):
        Textures(tmp_path, ["D16"], batch_size=1).setup()
    assert isinstance(Textures.files, FileSet) and list(Textures.files.sources) == ["the wheel scikit-image by pip"]


@pytest.mark.parametrize("names", [[], ["plaid"], ["brick", "brick"]])
def test_unknown_textures_are_an_error(names: list[str]) -> None:
    with pytest.raises(UserError, match=r"must be some of brick, grass, gravel, D105, .*, each once"):
        Textures("nowhere", names, batch_size=1)
