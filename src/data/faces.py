"""Faces: Frey's face in a video, the Olivetti faces of forty people, and drivers in their cars (DrivFace)."""

import csv
import io
import zipfile
from functools import partial
from pathlib import Path, PurePosixPath

import numpy as np
import torch

from src.data import fetching, sources
from src.data.arrays import hold_out
from src.data.batch import Split, split_of
from src.data.files import FromFiles, matlab, stratified


class Frey(FromFiles):
    """1,965 frames of one face in a video, [N, 1, 28, 20], without labels; the same tenth in every run is the test."""

    files = sources.FileSet("Frey", "faces", {"frey_rawface.mat": "5aeb024d42b8a6091f30e5eb18c8a48d"}, {})

    def load(self) -> tuple[Split, Split]:
        """Images are the columns of the file."""
        images = matlab(self.contents()["frey_rawface.mat"])["ff"].T.reshape(-1, 1, 28, 20)
        return hold_out(split_of(torch.from_numpy(images.copy())))


OLIVETTI_ADDRESS = "https://ndownloader.figshare.com/files/5976027"  # scikit-learn's


class Olivetti(FromFiles):
    """400 faces, [N, 1, 64, 64]: ten of each of forty people, who are the labels.

    Two images of each person are the test split, the same in every run: 320 + 80.
    """

    files = sources.FileSet(
        "Olivetti",
        "faces",
        {"olivettifaces.mat": "aa1ffbd84a31962b418e672437ea28d3"},
        {OLIVETTI_ADDRESS: partial(fetching.web_files, {"olivettifaces.mat": OLIVETTI_ADDRESS})},
    )
    classes = tuple(f"person {number}" for number in range(1, 41))

    def load(self) -> tuple[Split, Split]:
        """Images are the columns of the file, and each image is stored column by column."""
        images = matlab(self.contents()["olivettifaces.mat"])["faces"].T.reshape(-1, 1, 64, 64).transpose(0, 1, 3, 2)
        return stratified(np.ascontiguousarray(images), np.repeat(np.arange(40), 10))


DRIVERS = "DrivFace_jpeg.zip"
DRIVERS_ADDRESS = "https://archive.ics.uci.edu/static/public/378/drivface.zip"
TABLE = "drivPoints.txt"


def drivers_zip(address: str, scratch: Path) -> Path:
    """UCI's zip file, which holds the images in a zip file of their own, packed anew as one."""
    download = fetching.web_files({"download": address}, scratch) / "download"
    with zipfile.ZipFile(scratch / DRIVERS, "w") as packed:
        for name, content in unpacked(download.read_bytes()).items():
            packed.writestr(name, content)
    return scratch


def unpacked(content: bytes) -> dict[str, bytes]:
    """The images and the table of a zip file and of the zip files in it, by the last part of their paths."""
    found: dict[str, bytes] = {}
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        for path in archive.namelist():
            name = PurePosixPath(path).name
            if name.endswith(".zip"):
                found |= unpacked(archive.read(path))
            elif name.endswith(".jpg") or name == TABLE:
                found[name] = archive.read(path)
    return found


class DrivFace(FromFiles):
    """606 faces of four drivers, [N, 1, 40, 40], labelled by the direction of their gaze.

    As Meng & Lee (Regularized Sparse Gaussian Processes) use them: 80 x 80 grey pixels, 2 x 2 max-pooled, and without a
    test part. The test split is the training split, so test scores are those of the training data. UCI's file has whole
    photographs, so we cut the marked box out of each and scale it to 80 x 80.
    """

    files = sources.FileSet(
        "DrivFace",
        "faces",
        {DRIVERS: "17b83ec4d31147bc5677f667fd5ee11a"},
        {DRIVERS_ADDRESS: partial(drivers_zip, DRIVERS_ADDRESS)},
        digest=sources.members_md5,
    )
    test_is_train = True
    classes = ("right", "front", "left")

    def load(self) -> tuple[Split, Split]:
        """All photographs in the order of the table, twice."""
        files = unpacked(self.contents()[DRIVERS])
        rows = list(csv.DictReader(files[TABLE].decode().splitlines()))
        faces = np.stack([face(files[f"{row['fileName']}.jpg"], row) for row in rows])
        split = split_of(torch.from_numpy(faces[:, None]), torch.tensor([int(row["label"]) - 1 for row in rows]))
        return split, split


def face(photograph: bytes, row: dict[str, str]) -> np.ndarray:
    """The marked box (its left, top, width and height) as 40 x 40 bytes."""
    from PIL import Image

    left, top, width, height = (int(row[name]) for name in ("xF", "yF", "wF", "hF"))
    box = (left, top, left + width, top + height)
    grey = Image.open(io.BytesIO(photograph)).convert("L").resize((80, 80), Image.Resampling.BILINEAR, box)
    return np.asarray(grey).reshape(40, 2, 40, 2).max(axis=(1, 3))
