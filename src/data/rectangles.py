"""Rectangles that are tall or wide (Larochelle et al., 2007), and a stand-in for the set with images in them."""

import io
import logging
import zipfile

import numpy as np
import torch
from torch import Tensor

from src.data import sources
from src.data.batch import Split, split_of
from src.data.files import FromFiles

SIDE = 28
FIELD = 16  # characters per number in the files
ROWS_AT_ONCE = 2000
CLASSES = ("wide", "tall")

log = logging.getLogger(__name__)


class Rectangles(FromFiles):
    """1,200 + 50,000 borders of rectangles, [N, 1, 28, 28] as bits, labelled as wide or tall.

    The benchmark's own files; the training split has its 200 validation images too.
    """

    files = sources.FileSet("Rectangles", "rectangles", {"rectangles.zip": "35e52b53ad01628bee6a79416e451976"}, {})
    binary = True
    classes = CLASSES

    def load(self) -> tuple[Split, Split]:
        """Numbers are written with 16 characters each, the label last."""
        with zipfile.ZipFile(io.BytesIO(self.contents()["rectangles.zip"])) as archive:
            train, test = (read_bits(archive, f"rectangles_{part}.amat") for part in ("train", "test"))
        return bit_split(train), bit_split(test)


def read_bits(archive: zipfile.ZipFile, name: str) -> Tensor:
    """The numbers of a file [N, 785], all of them 0 or 1. The test file is too large to be read at once."""
    line = FIELD * (SIDE**2 + 1) + 1
    parts = []
    with archive.open(name) as file:
        while chunk := file.read(ROWS_AT_ONCE * line):
            digits = np.frombuffer(chunk, np.uint8).reshape(-1, line)[:, 3:-1:FIELD]  # "   1.0000000e+00"
            parts.append(torch.from_numpy(digits == ord("1")))
    return torch.cat(parts)


def bit_split(bits: Tensor) -> Split:
    """Images and labels of rows [N, 785]."""
    return split_of(255 * bits[:, :-1].byte().view(-1, 1, SIDE, SIDE), bits[:, -1].long())


STAND_IN = (
    "rectangles_image is our stand-in, built from other photographs; its errors do not compare with published ones"
)
PHOTOGRAPHS = "hyvarinen_natural_images_13_tiff.zip"
TRAIN, TEST = 12_000, 50_000
SHORTEST, DIFFERENCE = 10, 5  # pixels: the sides, and by how much they differ
AREA = (SIDE**2 / 4, 3 * SIDE**2 / 4)
FLAT = 10  # grey values: patches with a smaller sd are drawn anew


class RectanglesImage(FromFiles):
    """12,000 + 50,000 rectangles filled with one image on the ground of another, [N, 1, 28, 28], wide or tall.

    A STAND-IN for the benchmark RECTANGLES-IMAGE, whose file we do not have. It is built like the benchmark (sides of
    at least 10 pixels that differ by at least 5, a quarter to three quarters of the area, no patches without texture),
    but from 13 other photographs, so errors do not compare with published ones. The images are the same in every run.
    """

    files = sources.FileSet("RectanglesImage", "rectangles", {PHOTOGRAPHS: "6e213822e081ca05b7816e7e36e3e418"}, {})
    classes = CLASSES

    def load(self) -> tuple[Split, Split]:
        """Two patches and a rectangle for each image, drawn with a constant seed."""
        log.warning(STAND_IN)
        rng = np.random.default_rng(0)
        patches = draw_patches(self.photographs(), 2 * (TRAIN + TEST), rng)
        height, width = draw_sides(TRAIN + TEST, rng)
        x = np.where(draw_insides(height, width, rng), patches[: TRAIN + TEST], patches[TRAIN + TEST :])
        images, tall = torch.from_numpy(x[:, None]), torch.from_numpy((height > width).astype(np.int64))
        return split_of(images[:TRAIN], tall[:TRAIN]), split_of(images[TRAIN:], tall[TRAIN:])

    def photographs(self) -> list[np.ndarray]:
        """The 13 photographs, of about 256 x 512 pixels."""
        from PIL import Image

        with zipfile.ZipFile(io.BytesIO(self.contents()[PHOTOGRAPHS])) as archive:
            names = sorted(archive.namelist())
            return [np.asarray(Image.open(io.BytesIO(archive.read(name)))) for name in names]


def draw_patches(photographs: list[np.ndarray], number: int, rng: np.random.Generator) -> np.ndarray:
    """Random patches [number, 28, 28], as many from each photograph, in random order."""
    each = -(-number // len(photographs))
    patches = np.concatenate([textured_patches(photograph, each, rng) for photograph in photographs])
    return patches[rng.permutation(len(patches))[:number]]


def textured_patches(photograph: np.ndarray, number: int, rng: np.random.Generator) -> np.ndarray:
    """Random patches [number, 28, 28] of one photograph that are not flat."""
    windows = np.lib.stride_tricks.sliding_window_view(photograph, (SIDE, SIDE))
    found: list[np.ndarray] = []
    while sum(map(len, found)) < number:
        rows, columns = (rng.integers(size, size=number) for size in windows.shape[:2])
        patches = windows[rows, columns]
        found.append(patches[patches.std((1, 2), dtype=np.float32) >= FLAT])
    return np.concatenate(found)[:number]


def draw_sides(number: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Heights and widths [number], uniform among those that are allowed."""
    height, width = np.mgrid[SHORTEST : SIDE + 1, SHORTEST : SIDE + 1].reshape(2, -1)
    area = height * width
    allowed = np.flatnonzero((abs(height - width) >= DIFFERENCE) & (area >= AREA[0]) & (area <= AREA[1]))
    drawn = rng.choice(allowed, number)
    return height[drawn], width[drawn]


def draw_insides(height: np.ndarray, width: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """True inside rectangles of these sides at random places, [number, 28, 28]."""
    rows, columns = (inside(side, rng) for side in (height, width))
    return rows[:, :, None] & columns[:, None, :]


def inside(side: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """True along a side that starts at a random pixel, [number, 28]."""
    start = rng.integers(SIDE - side + 1)[:, None]
    return (np.arange(SIDE) >= start) & (np.arange(SIDE) < start + side[:, None])
