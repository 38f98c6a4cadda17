"""Faces, from the real files; upright, whole, and each with its own label."""

import io
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from src.data import faces
from src.data.faces import DRIVERS, TABLE, DrivFace, Frey, Olivetti, drivers_zip, face
from src.data.files import matlab
from src.data.sources import members_md5
from tests.data.made_up import give, mat


def test_the_images_of_made_up_files_are_upright(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every image has its number in its first row."""
    frames = np.zeros((20, 28, 20), np.uint8)
    frames[:, 0] = np.arange(20)[:, None]
    give(monkeypatch, mat(ff=frames.reshape(20, -1).T))
    train, test = Frey("nowhere", batch_size=1).load()
    x = torch.cat([train.all().x, test.all().x])
    assert x.shape == (20, 1, 28, 20) and set(x[:, 0, 0, 7].tolist()) == set(range(20)) and not x[:, :, 1:].any()

    people = np.zeros((400, 64, 64), np.uint8)
    people[:, 0] = (np.arange(400) // 10)[:, None]
    give(monkeypatch, mat(faces=people.swapaxes(1, 2).reshape(400, -1).T))
    for split in Olivetti("nowhere", batch_size=1).load():
        x = split.all().x
        assert split.y is not None and torch.equal(x[:, 0, 0, 7].long(), split.y) and not x[:, :, 1:].any()


def test_frey(data_root: Path, data_file: Callable[[str], Path]) -> None:
    columns = matlab(data_file("faces/frey_rawface.mat").read_bytes())["ff"].T
    data = Frey(data_root, batch_size=1024)
    data.setup()
    x, x_test = data.train.all().x, data.test.all().x
    assert x.shape == (1769, 1, 28, 20) and x_test.shape == (196, 1, 28, 20) and x.dtype == torch.uint8
    assert data.facts.target.kind == "none" and data.facts.scale == "image"
    drawn = torch.cat([x, x_test]).flatten(1).numpy()
    assert np.array_equal(drawn[np.lexsort(drawn.T)], columns[np.lexsort(columns.T)])
    assert smoothness(x) < 0.7 * smoothness(x.view(-1, 1, 20, 28))


def test_olivetti(data_root: Path, data_file: Callable[[str], Path]) -> None:
    datasets = pytest.importorskip("sklearn.datasets._olivetti_faces")
    assert datasets.FACES.url == faces.OLIVETTI_ADDRESS
    data_file("faces/olivettifaces.mat")
    data = Olivetti(data_root, batch_size="full")
    data.setup()
    x = data.train.all().x
    assert x.shape == (320, 1, 64, 64) and x.dtype == torch.uint8 and smoothness(x) < 12
    assert data.train.y is not None and data.test.y is not None
    assert data.train.y.bincount().tolist() == [8] * 40 and data.test.y.bincount().tolist() == [2] * 40
    mirrored, upside_down = ((x.double() - x.double().flip(axis)).square().mean() for axis in (3, 2))
    assert mirrored < 0.7 * upside_down  # rows and columns are not mixed up
    mean = torch.stack([x[data.train.y == person].double().mean(0) for person in range(40)])
    nearest = torch.cdist(data.test.all().x.double().flatten(1), mean.flatten(1)).argmin(1)
    assert (nearest == data.test.y).double().mean() > 0.8


def smoothness(x: torch.Tensor) -> float:
    """The mean difference between neighbouring pixels: large if rows and columns are mixed up."""
    return max(x.double().diff(dim=axis).abs().mean().item() for axis in (2, 3))


@pytest.fixture(scope="module")
def drivers(data_root: Path, data_file: Callable[[str], Path]) -> DrivFace:
    data_file(f"faces/{DRIVERS}")
    data = DrivFace(data_root, batch_size=512)
    data.setup()
    return data


def test_drivface(drivers: DrivFace) -> None:
    x = drivers.train.all().x
    assert x.shape == (606, 1, 40, 40) and x.dtype == torch.uint8
    assert drivers.train.y is not None and drivers.train.y.bincount().tolist() == [27, 546, 33]
    assert drivers.test is drivers.train and drivers.test_is_train
    assert drivers.facts.classes == ("right", "front", "left") and smoothness(x) < 15


def photograph(pixels: np.ndarray) -> bytes:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "png")
    return file.getvalue()


def test_a_face_is_the_marked_box_pooled_by_its_maxima() -> None:
    pixels = np.zeros((120, 100), np.uint8)
    pixels[30:110:2, 15:95:2] = 200  # one bright pixel in each square of four inside the box
    box = {"xF": "15", "yF": "30", "wF": "80", "hF": "80"}
    assert (face(photograph(pixels), box) == 200).all()
    shifted = face(photograph(pixels), {**box, "yF": "20"})
    assert (shifted[:5] == 0).all() and (shifted[5:] == 200).all()


def test_a_larger_box_is_scaled() -> None:
    pixels = np.zeros((200, 200), np.uint8)
    pixels[:, 100:] = 250
    small = face(photograph(pixels), {"xF": "20", "yF": "0", "wF": "160", "hF": "160"})
    assert small.shape == (40, 40) and (small[:, :19] == 0).all() and (small[:, 21:] == 250).all()


def zipped(files: dict[str, bytes]) -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


def test_a_zip_file_within_a_zip_file_is_packed_anew_with_the_same_checksum(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images = {"DrivImages/b .jpg": b"second", "DrivImages/a .jpg": b"first"}
    nested = {
        "drivface/DrivImages.zip": zipped(images),
        f"drivface/{TABLE}": b"points",
        "drivface/readme.txt": b"hello",
    }

    def download(addresses: dict[str, str], scratch: Path) -> Path:
        (scratch / "download").write_bytes(zipped(nested))
        return scratch

    monkeypatch.setattr("src.data.fetching.web_files", download)
    content = (drivers_zip("an address", tmp_path) / DRIVERS).read_bytes()
    assert faces.unpacked(content) == {"a .jpg": b"first", "b .jpg": b"second", TABLE: b"points"}
    flat = zipped({TABLE: b"points", "readme.txt": b"another", "x/a .jpg": b"first", "x/b .jpg": b"second"})
    assert members_md5(content) == members_md5(flat)
    assert members_md5(flat) != members_md5(zipped({TABLE: b"points", "a .jpg": b"first", "b .jpg": b"changed"}))
