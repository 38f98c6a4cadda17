"""Encoder networks; each adapts to the shape of the data and gives a chosen number of outputs."""

import math
from collections.abc import Sequence
from itertools import pairwise

from torch import nn

from src.errors import UserError


def mlp(shape: Sequence[int], outputs: int, hidden: Sequence[int] = (512, 256)) -> nn.Sequential:
    """The papers' encoder: D-512-256-Q with ReLU."""
    widths = [math.prod(shape), *hidden]
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU(inplace=True))]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(widths[-1], outputs))


def mlp_decoder(shape: Sequence[int], inputs: int, hidden: Sequence[int] = (256, 512)) -> nn.Sequential:
    """The encoder's mirror image, Q-256-512-D; without hidden layers a linear map."""
    layers = [layer for pair in pairwise([inputs, *hidden]) for layer in (nn.Linear(*pair), nn.ReLU(inplace=True))]
    return nn.Sequential(*layers, nn.Linear([inputs, *hidden][-1], math.prod(shape)), nn.Unflatten(1, tuple(shape)))


def conv(shape: Sequence[int], outputs: int, channels: Sequence[int] = (32, 64), hidden: int = 256) -> nn.Sequential:
    """A small convolutional encoder: every layer of 3 x 3 filters halves the image."""
    if len(shape) != 3:
        raise UserError(
            f"encoder=conv needs images of shape (C, H, W); these data have shape {tuple(shape)}: use encoder=mlp"
        )
    depth, height, width = shape
    layers: list[nn.Module] = []
    for filters in channels:
        layers += [nn.Conv2d(depth, filters, 3, stride=2, padding=1), nn.ReLU()]
        depth, height, width = filters, (height + 1) // 2, (width + 1) // 2
    head = [nn.Flatten(), nn.Linear(depth * height * width, hidden), nn.ReLU(), nn.Linear(hidden, outputs)]
    return nn.Sequential(*layers, *head)
