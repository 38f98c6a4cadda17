"""Digits made from MNIST's: small distortions, on disk, the same bytes however often the making was killed."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.ndimage import affine_transform

from src import prepare
from src.data import mnist_million
from src.data.mnist_million import MNISTMillion, distorted, npy_header, write_images
from src.runs.errors import UserError

IMAGES = torch.randint(0, 256, (7, 1, 28, 28), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist_million, "CHUNK", 4)


def test_a_distortion_is_a_rotation_about_the_centre_and_a_shift() -> None:
    """Against scipy's, with the angles and shifts that the seed gives; a level apart where it is rounded elsewhere."""
    drawn = 2 * torch.rand(mnist_million.CHUNK, 3, generator=torch.Generator().manual_seed(3)).double()[:7] - 1
    for image, made, (turn, right, down) in zip(IMAGES[:, 0], distorted(IMAGES, 3)[:, 0], drawn, strict=True):
        angle = np.radians(15 * turn.item())
        matrix = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])  # of (row, column)
        centre, shift = np.full(2, 13.5), 2 * np.array([down.item(), right.item()])
        offset = centre - matrix @ centre + shift
        expected = affine_transform(image.double().numpy(), matrix, offset, order=1, mode="grid-constant")
        assert np.abs(expected - made.numpy()).max() <= 0.51


def test_without_distortion_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist_million, "DEGREES", 0)
    monkeypatch.setattr(mnist_million, "PIXELS", 0)
    assert torch.equal(distorted(IMAGES, 0), IMAGES)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("left", [0, 5, 128, 130, 128 + 4 * 784, 128 + 9 * 784 + 1, 128 + 17 * 784])
def test_what_was_killed_goes_on_to_the_same_bytes(tmp_path: Path, left: int) -> None:
    write_images(tmp_path / "whole.npy", IMAGES, 18)
    content = (tmp_path / "whole.npy").read_bytes()
    assert len(npy_header((18, 28, 28))) == 128 and len(content) == 128 + 18 * 784
    (tmp_path / "killed.unfinished").write_bytes(content[:left])
    write_images(tmp_path / "killed.npy", IMAGES, 18)
    assert (tmp_path / "killed.npy").read_bytes() == content
    assert not (tmp_path / "killed.unfinished").exists()


@pytest.mark.usefixtures("small_chunks")
def test_going_on_makes_only_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def counted(images: torch.Tensor, seed: int) -> torch.Tensor:
        if len(made) == 2:
            made.clear()
            raise KeyboardInterrupt
        made.append(len(images))
        return distorted(images, seed)

    monkeypatch.setattr(mnist_million, "distorted", counted)
    with pytest.raises(KeyboardInterrupt):
        write_images(tmp_path / "x.npy", IMAGES, 14)
    assert not (tmp_path / "x.npy").exists()
    write_images(tmp_path / "x.npy", IMAGES, 14)
    assert made == [4, 2] and np.load(tmp_path / "x.npy").shape == (14, 28, 28)


@pytest.mark.usefixtures("small_chunks")
def test_more_images_begin_with_the_same_ones(tmp_path: Path) -> None:
    for size in (6, 18):
        write_images(tmp_path / f"{size}.npy", IMAGES, size)
    assert np.array_equal(np.load(tmp_path / "6.npy"), np.load(tmp_path / "18.npy")[:6])


def test_from_the_command_to_batches(
    data_file: Callable[[str], Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On the real MNIST: prepared ahead, or made by the dataset itself; its file stays on disk."""
    (tmp_path / "MNIST").symlink_to(data_file("MNIST").absolute())
    assert prepare.main(["mnist_million", "--size", "60010", "--root", str(tmp_path)]) == 0
    images = tmp_path / "mnist_million" / "images_60010.npy"
    assert f"60010 images and their labels in {images}" in capsys.readouterr().out
    data = MNISTMillion(tmp_path, batch_size=64, size=60010)
    data.setup()
    assert data.facts.shape == (1, 28, 28) and len(data.train) == 60010 and len(data.test) == 10_000
    assert data.train.y is not None and torch.equal(data.train.y[:10], data.train.y[60_000:])
    batch = next(iter(data.train_dataloader()))
    assert np.array_equal(batch.x[:, 0].numpy(), np.load(images, mmap_mode="r")[batch.index.numpy()])
    twice = data.train[torch.tensor([0, 60_000])].x.float() / 255  # the same digit, distorted twice
    assert 0.01 < (twice[0] - twice[1]).abs().mean() < 0.2


def test_what_cannot_be_made_is_told(data_file: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least 1, not 0"):
        MNISTMillion(tmp_path, batch_size=4, size=0).setup()
    (tmp_path / "MNIST").symlink_to(data_file("MNIST").absolute())
    (tmp_path / "mnist_million").write_text("a file where the folder should be")
    with pytest.raises(UserError, match="cannot be written to"):
        MNISTMillion(tmp_path, batch_size=4, size=10).setup()
