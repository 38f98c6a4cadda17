"""A million digits: MNIST's training images with small random shifts and rotations, similar to MNIST8M."""

import io
import math
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample
from typing_extensions import Unpack

from src.data import sources
from src.data.batch import Split, split_of
from src.data.files import FromFiles
from src.data.images import idx_split
from src.data.module import Options
from src.runs.bars import bar
from src.runs.errors import UserError
from src.runs.files import whole
from src.runs.randomness import stream

SIDE = 28
DEGREES, PIXELS = 15, 2  # the largest rotation and shift in either direction
SEED = 0  # the same images in every run
CHUNK = 10_000  # images generated and written at a time; an interruption loses at most one chunk


class MNISTMillion(FromFiles):
    """`size` distorted training digits, [N, 1, 28, 28], in a memory-mapped file; MNIST's own 10,000 test images."""

    files = sources.MNIST

    def __init__(self, root: str | Path, size: int = 1_000_000, **options: Unpack[Options]) -> None:
        super().__init__(root, **options)
        self.size = size

    def load(self) -> tuple[Split, Split]:
        """Generate the file if it is missing, then map it; mode "c" never writes to it but satisfies torch."""
        images, labels = make(self.root, self.size)
        x = np.lib.format.open_memmap(images, mode="c")[:, None]
        y = torch.from_numpy(np.load(labels)).long()
        return split_of(x, y), idx_split(self.contents(), "t10k")


def make(root: Path, size: int) -> tuple[Path, Path]:
    """The files of `size` images and of their labels; missing files are written, by one process at a time."""
    if size < 1:
        raise UserError(f"the size of mnist_million must be at least 1, not {size}")
    folder = root / "mnist_million"
    images, labels = folder / f"images_{size}.npy", folder / f"labels_{size}.npy"
    if images.exists() and labels.exists():
        return images, labels
    mnist = idx_split(sources.obtain(sources.MNIST, root).contents, "train").all()
    assert mnist.y is not None
    try:
        folder.mkdir(exist_ok=True)
        with FileLock(folder / f".{size}.lock"):
            write_labels(labels, mnist.y, size)
            if not images.exists():
                write_images(images, mnist.x, size)
    except OSError as error:
        raise UserError(f"mnist_million cannot be written to {folder}: {error.strerror}") from error
    return images, labels


def write_labels(path: Path, labels: Tensor, size: int) -> None:
    """Write the labels of MNIST's images in order, repeated as often as needed."""
    with whole(path) as unfinished:
        np.save(unfinished, labels[torch.arange(size) % len(labels)].byte().numpy())


def write_images(path: Path, images: Tensor, size: int) -> None:
    """Write chunk by chunk to an unfinished file, which a later call continues after its last whole chunk."""
    unfinished = path.with_suffix(".unfinished")
    header, chunk_bytes = npy_header((size, SIDE, SIDE)), CHUNK * SIDE**2
    with unfinished.open("ab") as file:
        done = max(0, file.tell() - len(header)) // chunk_bytes
        file.truncate(len(header) + done * chunk_bytes if done else 0)
        if not done:
            file.write(header)
        form = {"initial": done * CHUNK, "unit": "images", "leave": True}
        with bar(None, path.parent.name, size, **form) as images_written:
            for start in range(done * CHUNK, size, CHUNK):
                rows = torch.arange(start, min(start + CHUNK, size)) % len(images)
                file.write(distorted(images[rows], stream(SEED, start)).numpy().tobytes())
                images_written.update(len(rows))
    unfinished.replace(path)


def npy_header(shape: tuple[int, ...]) -> bytes:
    """The header of an .npy file of bytes."""
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": "|u1", "fortran_order": False, "shape": shape})
    return header.getvalue()


def distorted(images: Tensor, seed: int) -> Tensor:
    """Images [B, 1, 28, 28], B <= CHUNK, each randomly rotated and shifted, bilinear, with a black border."""
    uniform = torch.rand(CHUNK, 3, generator=torch.Generator().manual_seed(seed))[: len(images)] * 2 - 1
    angle, shift = math.radians(DEGREES) * uniform[:, 0], PIXELS / (SIDE / 2) * uniform[:, 1:]
    cos, sin = angle.cos(), angle.sin()
    rotation = torch.stack([cos, -sin, sin, cos], 1).view(-1, 2, 2)
    grid = affine_grid(torch.cat([rotation, shift[:, :, None]], 2), list(images.shape), align_corners=False)
    return grid_sample(images.float(), grid, align_corners=False).round_().byte()
