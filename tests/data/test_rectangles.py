"""Rectangles: the benchmark's own files, and a stand-in that keeps its rules."""

import io
import logging
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from src.data import rectangles
from src.data.rectangles import (
    PHOTOGRAPHS,
    STAND_IN,
    Rectangles,
    RectanglesImage,
    bit_split,
    draw_insides,
    draw_patches,
    draw_sides,
    read_bits,
)


def test_numbers_of_sixteen_characters_are_read_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    bits = np.random.default_rng(0).integers(0, 2, (7, 785))
    monkeypatch.setattr(rectangles, "ROWS_AT_ONCE", 3)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        numbers = np.array(["   0.0000000e+00", "   1.0000000e+00"])
        archive.writestr("x.amat", "".join("".join(row) + "\n" for row in numbers[bits]))
    with zipfile.ZipFile(content) as archive:
        found = read_bits(archive, "x.amat")
    assert np.array_equal(found.numpy(), bits == 1)
    split = bit_split(found)
    assert split.y is not None and split.y.tolist() == bits[:, -1].tolist()
    assert np.array_equal(split.all().x.flatten(1).numpy(), 255 * bits[:, :-1])


def test_the_benchmark(data_root: Path, data_file: Callable[[str], Path]) -> None:
    data_file("rectangles/rectangles.zip")
    data = Rectangles(data_root, batch_size=1024)
    data.setup()
    assert (len(data.train), len(data.test)) == (1200, 50_000) and data.facts.shape == (1, 28, 28)
    assert data.facts.binary and data.facts.classes == ("wide", "tall")
    for split in (data.train, data.test):
        x = split.all().x[:, 0]
        assert x.dtype == torch.uint8 and split.y is not None
        height, width = ((x != 0).any(axis).sum(1) for axis in (2, 1))
        assert torch.equal(split.y, (height > width).long()) and (height - width).abs().min() == 3
        assert ((x != 0).sum((1, 2)) == 2 * (height + width) - 4).all()  # the border only


def test_sides_keep_the_rules_of_the_benchmark() -> None:
    height, width = draw_sides(20_000, np.random.default_rng(0))
    area = height * width
    assert min(height.min(), width.min()) == 10 and max(height.max(), width.max()) == 28
    assert abs(height - width).min() == 5 and area.min() >= 196 and area.max() <= 588
    assert abs((height > width).mean() - 0.5) < 0.02


def test_insides_are_rectangles_of_these_sides_at_all_places() -> None:
    height, width = np.full(5000, 12), np.full(5000, 20)
    inside = torch.from_numpy(draw_insides(height, width, np.random.default_rng(0)))
    rows, columns = inside.any(2), inside.any(1)
    assert (rows.sum(1) == 12).all() and (columns.sum(1) == 20).all()
    assert (inside == rows[:, :, None] & columns[:, None]).all()
    first = (lines.byte().argmax(1).tolist() for lines in (rows, columns))
    assert [set(starts) for starts in first] == [set(range(17)), set(range(9))]


def test_patches_come_from_all_photographs_and_are_not_flat() -> None:
    rng = np.random.default_rng(0)
    photographs = [rng.integers(low, low + 100, (60, 40), np.uint8) for low in (0, 100)]
    photographs[0][:, :30] = 50  # flat
    patches = draw_patches(photographs, 300, rng)
    assert patches.shape == (300, 28, 28) and patches.std((1, 2)).min() >= 10
    bright = patches.reshape(300, -1).max(1) >= 100
    assert bright.sum() == 150 and 50 < bright[:150].sum() < 100  # in random order


def test_the_stand_in(
    data_root: Path,
    data_file: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    data_file(f"rectangles/{PHOTOGRAPHS}")
    monkeypatch.setattr(rectangles, "TRAIN", 1000)
    monkeypatch.setattr(rectangles, "TEST", 500)
    with caplog.at_level(logging.WARNING):
        data = RectanglesImage(data_root, batch_size=100)
        data.setup()
    assert STAND_IN in caplog.messages and "STAND-IN" in (RectanglesImage.__doc__ or "")
    assert (len(data.train), len(data.test)) == (1000, 500) and data.facts.shape == (1, 28, 28)
    assert data.train.storage.dtype == torch.uint8 and not data.facts.binary
    again = RectanglesImage(data_root, batch_size=100, seed=7).load()[0]
    assert torch.equal(again.all().x, data.train.all().x)
