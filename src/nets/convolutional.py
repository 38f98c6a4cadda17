"""Convolutional encoders and decoders: a small encoder for any image, and the nets of the SVGP-VAE paper.

Encoders map images [B, C, H, W] to a chosen number of outputs, decoders map latents [B, inputs] to images. Those of
conditional VAEs also take a condition [B, conditions].
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from src.runs.errors import UserError

FILTERS = 8
# Which of three weights meet which pixel [even or odd answer, pixel, weight] where each pixel stands twice in a row.
SUMS = (((1, 1, 0), (0, 0, 1)), ((1, 0, 0), (0, 1, 1)))
PADDED_SUMS = (((1, 0, 0), (0, 1, 1), (0, 0, 0)), ((0, 0, 0), (1, 1, 0), (0, 0, 1)))
SMALLEST = 15  # pixels that three 3 x 3 convolutions with stride 2 leave something of


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


class ELUEncoder(nn.Module):
    """SVGP-VAE's encoder: three 3 x 3 convolutions with stride 2, ELU, and a linear layer (28 -> 13 -> 6 -> 2 pixels).

    Each number of a condition is a constant plane beside the image, and is joined to the last features.
    """

    def __init__(self, shape: Sequence[int], outputs: int, conditions: int = 0) -> None:
        super().__init__()
        depth, height, width = image_shape(shape, SMALLEST)
        depths = [depth + conditions, FILTERS, FILTERS, FILTERS]
        layers = [layer for pair in pairwise(depths) for layer in (nn.Conv2d(*pair, 3, stride=2), nn.ELU())]
        self.convolutions = nn.Sequential(*layers, nn.Flatten())
        features = FILTERS * math.prod(((side - 7) // 8) for side in (height, width))
        self.head = nn.Linear(features + conditions, outputs)
        self.apply(glorot)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """[b, outputs]."""
        if condition is None:
            answer: Tensor = self.head(self.convolutions(by_pixel(x)))
            return answer
        features = self.convolutions(by_pixel(torch.cat([x, planes(condition, *x.shape[-2:])], 1)))
        return self.head(torch.cat([features, condition], 1))


class ELUDecoder(nn.Module):
    """SVGP-VAE's decoder: a linear layer to 4 x 4 x 8 and three times twice the size, a 3 x 3 convolution and ELU.

    The second convolution is without padding: 4 -> 8 -> 16 - 2 -> 28 pixels. Other sizes are cut from the next larger
    one. A condition is joined to the latents, and each of its numbers to the first map as a constant plane.
    """

    def __init__(self, shape: Sequence[int], inputs: int, conditions: int = 0) -> None:
        super().__init__()
        depth, *self.sides = image_shape(shape, 1)
        self.start = [math.ceil((side + 4) / 8) for side in self.sides]
        self.dense = nn.Linear(inputs + conditions, FILTERS * math.prod(self.start))
        convolutions = [
            UpConv2d(FILTERS + conditions, FILTERS, padded=True),
            UpConv2d(FILTERS, FILTERS, padded=False),
            UpConv2d(FILTERS, depth, padded=True),
        ]
        self.layers = nn.Sequential(*(layer for c in convolutions for layer in (c, nn.ELU())))
        self.apply(glorot)

    def forward(self, z: Tensor, condition: Tensor | None = None) -> Tensor:
        """[b, C, H, W]."""
        seen = z if condition is None else torch.cat([z, condition], 1)
        first = self.dense(seen).unflatten(1, (FILTERS, *self.start))
        if condition is not None:
            first = torch.cat([first, planes(condition, *self.start)], 1)
        height, width = self.sides
        return self.layers(by_pixel(first))[..., :height, :width]


class UpConv2d(nn.Conv2d):
    """A 3 x 3 convolution of the image at twice its size (each pixel four times), with a padding of 1 or none.

    Made on the image as it is: the filter meets equal pixels, so for the even and the odd pixels of the answer, down
    and across, some of its weights add up. That is four smaller filters; a step of the SVGP-VAE on rotated MNIST takes
    about three quarters of the time.
    """

    sums: Tensor  # [2, 3 pixels, or 2 without padding, 3 weights]

    def __init__(self, inputs: int, outputs: int, padded: bool) -> None:
        super().__init__(inputs, outputs, 3, padding=int(padded))
        sums = torch.tensor(PADDED_SUMS if padded else SUMS, dtype=self.weight.dtype)
        self.register_buffer("sums", sums, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """[b, C, 2 H, 2 W], or 2 pixels fewer each way without padding."""
        filters = torch.einsum("puk,qvl,ockl->opqcuv", self.sums, self.sums, self.weight).flatten(0, 2)
        assert self.bias is not None
        answer = functional.conv2d(x, by_pixel(filters), self.bias.repeat_interleave(4), padding=self.padding)
        return functional.pixel_shuffle(answer, 2)


def image_shape(shape: Sequence[int], smallest: int) -> tuple[int, int, int]:
    """Channels, height and width, of which the latter are at least so many pixels."""
    if len(shape) != 3 or min(shape[1:]) < smallest:
        raise UserError(
            f"the SVGP-VAE nets need images of shape (C, H, W), H and W at least {smallest}; these data have shape "
            f"{tuple(shape)}: give model.encoder and model.decoder others"
        )
    depth, height, width = shape
    return depth, height, width


def by_pixel(x: Tensor) -> Tensor:
    """Images with the channels of a pixel together in memory: on a CPU the decoder takes half the time."""
    return x.contiguous(memory_format=torch.channels_last)


def planes(condition: Tensor, height: int, width: int) -> Tensor:
    """Numbers [b, C] as constant images [b, C, height, width]."""
    return condition[:, :, None, None].expand(-1, -1, height, width)


def glorot(module: nn.Module) -> None:
    """Keras' default start: Glorot-uniform weights, no bias."""
    if isinstance(module, nn.Linear | nn.Conv2d):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)  # type: ignore[arg-type]
