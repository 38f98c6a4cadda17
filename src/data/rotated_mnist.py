"""Rotated MNIST: digits at 16 angles, one of which is reserved for the test."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from src.data import sources
from src.data.batch import Split, split_of
from src.data.files import FromFiles
from src.data.images import checked_digits, idx_split
from src.data.module import Options

OBJECTS, POOL = 400, 360  # per digit: all objects, and those for training and test; the other 40 are for monitoring
ANGLES = 16
DEGREES = 360 / ANGLES


class RotatedMNIST(FromFiles):
    """400 handwritten digits at multiples of 22.5 degrees, [N, 1, 28, 28] as float32; 4,050 + 270 images of digit 3.

    Built as published for SVGP-VAE (Jazbec et al., 2021, after Casale et al., 2018) from MNIST's training images. Of
    360 objects, the training split has three quarters of the views at 15 angles, the test split three quarters of the
    views at the 16th angle. Cubic splines overshoot, so pixels leave [0, 1]. The views are the same in every run.

    `aux` holds the object (0 to 399 for the first of the `digits`, 400 to 799 for the second, ...) and the angle in
    radians. The label is the digit, or the object if there is only one digit: a constant label would say nothing, and
    the test angle never occurs in training.
    """

    files = sources.MNIST
    aux_names = ("object", "angle")
    objects: Tensor  # [objects, 28, 28], uint8, not rotated
    eval: Split  # the 40 other objects of each digit at all angles, for monitoring only

    def __init__(self, root: str | Path, digits: Sequence[int] = (3,), **options: Unpack[Options]) -> None:
        super().__init__(root, **options)
        self.digits = checked_digits(digits)

    def load(self) -> tuple[Split, Split]:
        """Draw the objects and their views, and rotate the images."""
        mnist = idx_split(self.contents(), "train").all()
        images = [mnist.x[mnist.y == digit, 0] for digit in self.digits]
        rows, *views = draw([len(x) for x in images])
        self.objects = torch.cat([x[row] for x, row in zip(images, rows, strict=True)])
        rotated = rotations(self.objects)
        train, test, self.eval = (self.split(rotated, view) for view in views)
        return train, test

    def split(self, rotated: Tensor, views: Tensor) -> Split:
        """The images of these views, with label, object and angle."""
        objects, angles = views.unbind(1)
        radians = torch.from_numpy(np.radians(DEGREES * angles.numpy()))
        labels = objects if len(self.digits) == 1 else torch.tensor(self.digits)[objects // OBJECTS]
        return split_of(rotated[objects, angles].unsqueeze(1), labels, aux=torch.stack([objects, radians], 1).float())


class Draws(NamedTuple):
    """The random choices of the dataset; a view is an object and a multiple of 22.5 degrees."""

    images: list[list[int]]  # for each digit, the MNIST images that become objects
    train: Tensor  # [n, 2]
    test: Tensor  # [n, 2]
    eval: Tensor  # [n, 2]


def draw(counts: Sequence[int]) -> Draws:
    """The published draws; `counts` are the numbers of MNIST images of each digit.

    The order matters, since one seeded generator draws the objects of each digit, the test angle, the training views
    and the test views.
    """
    random = Random(0)
    images = [random.sample(range(count), OBJECTS) for count in counts]
    (test_angle,) = random.sample(range(ANGLES), 1)
    objects, angles = torch.arange(OBJECTS * len(counts)), torch.arange(ANGLES)
    in_pool = objects % OBJECTS < POOL
    seen = torch.cartesian_prod(objects[in_pool], angles[angles != test_angle])
    unseen = torch.cartesian_prod(objects[in_pool], angles[angles == test_angle])
    train, test = (views[random.sample(range(len(views)), len(views) * 3 // 4)] for views in (seen, unseen))
    return Draws(images, train, test, torch.cartesian_prod(objects[~in_pool], angles))


def rotations(objects: Tensor) -> Tensor:
    """Bytes [objects, 28, 28] rotated to all angles: float32 [objects, 16, 28, 28], 0 to 1 apart from overshoot."""
    from scipy import ndimage  # imported here because it is slow

    pixels = objects.numpy() / 255
    turned = [ndimage.rotate(pixels, DEGREES * k, axes=(1, 2), reshape=False) for k in range(ANGLES)]
    return torch.from_numpy(np.stack(turned, 1).astype(np.float32))
