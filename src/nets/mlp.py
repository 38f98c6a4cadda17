"""Fully connected encoders and decoders; each adapts to the shape of the data.

Encoders map observations [B, *shape] to a chosen number of outputs, decoders map latents [B, inputs] to observations.
Those of conditional VAEs also take a condition [B, conditions].
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn


def mlp(shape: Sequence[int], outputs: int, hidden: Sequence[int] = (512, 256)) -> nn.Sequential:
    """The papers' encoder: D-512-256-Q with ReLU."""
    widths = [math.prod(shape), *hidden]
    layers = [layer for pair in pairwise(widths) for layer in (nn.Linear(*pair), nn.ReLU(inplace=True))]
    return nn.Sequential(nn.Flatten(), *layers, nn.Linear(widths[-1], outputs))


def mlp_decoder(shape: Sequence[int], inputs: int, hidden: Sequence[int] = (256, 512)) -> nn.Sequential:
    """The encoder's mirror image, Q-256-512-D; without hidden layers a linear map."""
    layers = [layer for pair in pairwise([inputs, *hidden]) for layer in (nn.Linear(*pair), nn.ReLU(inplace=True))]
    return nn.Sequential(*layers, nn.Linear([inputs, *hidden][-1], math.prod(shape)), nn.Unflatten(1, tuple(shape)))


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


def truncated_normal(module: nn.Module) -> None:
    """Pearce's start: normal weights with variance 1 / inputs, cut at two standard deviations, no bias."""
    if isinstance(module, nn.Linear):
        scale = module.in_features**-0.5
        nn.init.trunc_normal_(module.weight, 0, scale, -2 * scale, 2 * scale)
        nn.init.zeros_(module.bias)
