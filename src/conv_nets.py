"""The networks of the GP-VAE papers: encoders with mean and variance in one, and decoders that mirror them.

Encoders take observations [b, *shape], decoders latents [b, inputs]; those of conditional VAEs also a condition
[b, conditions].
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.distributions import Independent, Normal
from torch.nn import functional

from src.errors import UserError
from src.posterior import Amortised

FILTERS = 8
# Which of three weights meet which pixel [even or odd answer, pixel, weight] where each pixel stands twice in a row.
SUMS = (((1, 1, 0), (0, 0, 1)), ((1, 0, 0), (0, 1, 1)))
PADDED_SUMS = (((1, 0, 0), (0, 1, 1), (0, 0, 0)), ((0, 0, 0), (1, 1, 0), (0, 0, 1)))
SMALLEST = 15  # pixels that three 3 x 3 convolutions with stride 2 leave something of


class GaussianNet(Amortised):
    """q(z | x) with the mean and the log variance from one net, the variance kept within limits."""

    def __init__(self, net: nn.Module, variance_range: Sequence[float] = (1e-10, 1e10)) -> None:
        nn.Module.__init__(self)
        self.kind = "diagonal"
        self.net, self.limits = net, [math.log(limit) for limit in variance_range]

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Independent:
        """q of each observation, for a conditional VAE given the condition."""
        mean, log_variance = (self.net(x) if condition is None else self.net(x, condition)).chunk(2, 1)
        return gaussian(mean, log_variance.clamp(*self.limits).exp())  # exp first would overflow, with a NaN gradient


def gaussian(mean: Tensor, variance: Tensor) -> Independent:
    """Independent normals over the last dimension."""
    return Independent(Normal(mean, variance.sqrt(), validate_args=False), 1, validate_args=False)


class ELUEncoder(nn.Module):
    """SVGP-VAE's encoder: three 3 x 3 convolutions with stride 2, ELU, and a linear layer (28 -> 13 -> 6 -> 2 pixels).

    A condition is a constant plane a number beside the image, and again a number beside the last features.
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
    one. A condition is joined to the latents, and to the first map as a constant plane a number.
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


class TanhMLP(nn.Module):
    """Pearce's nets for the moving ball: one hidden layer of tanh units; a condition is joined to what comes in."""

    def __init__(self, inputs: int, outputs: int, hidden: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs))
        self.apply(truncated_normal)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """[b, outputs]."""
        rows = x.flatten(1)
        answer: Tensor = self.layers(rows if condition is None else torch.cat([rows, condition], 1))
        return answer


def tanh_encoder(shape: Sequence[int], outputs: int, conditions: int = 0, hidden: int = 500) -> nn.Module:
    """1024-500-4 for frames of 32 x 32 and two channels."""
    return TanhMLP(math.prod(shape) + conditions, outputs, hidden)


class TanhDecoder(TanhMLP):
    """2-500-1024 for two channels and frames of 32 x 32."""

    def __init__(self, shape: Sequence[int], inputs: int, conditions: int = 0, hidden: int = 500) -> None:
        super().__init__(inputs + conditions, math.prod(shape), hidden)
        self.shape = tuple(shape)

    def forward(self, x: Tensor, condition: Tensor | None = None) -> Tensor:
        """[b, *shape]."""
        return super().forward(x, condition).unflatten(1, self.shape)


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


def truncated_normal(module: nn.Module) -> None:
    """Pearce's start: normal weights with variance 1 / inputs, cut at two standard deviations, no bias."""
    if isinstance(module, nn.Linear):
        scale = module.in_features**-0.5
        nn.init.trunc_normal_(module.weight, 0, scale, -2 * scale, 2 * scale)
        nn.init.zeros_(module.bias)
