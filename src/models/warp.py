"""A warp of images: intensities in [0, 1] become real numbers, which a Gaussian can model, and densities go back.

y = logit(a + (1 - 2 a) u) / R with a = 0.05, as in real-valued flows (Dinh, Sohl-Dickstein & Bengio, 2017). R is the
range of the logits, so that y has the range of u, and encoders, kernels and noise start as they do without a warp.
Bytes are dequantised, u = (byte + noise) / 256 with noise uniform in [0, 1). The density of u is that of y times dy/du;
with 8 bits added and in units of log 2 it bounds the bits that the bytes take.
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch import distributions as D
from torch.nn.functional import softplus

from src.data.batch import Batch
from src.data.facts import Facts
from src.models.likelihoods import masked, quadrature
from src.models.needs import require, warp_problem
from src.runs.errors import UserError

MARGIN = 0.05  # a
RANGE = 2 * math.log((1 - MARGIN) / MARGIN)  # R
BIN_POINTS = 8  # at which the log density of a byte is averaged: exact to 1e-5, without noise


class LogitWarp:
    """Intensities u in [0, 1] to real numbers y; `levels` is the number of grey levels, 0 if they are continuous."""

    def __init__(self, levels: int) -> None:
        self.levels = levels

    def unit(self, x: Tensor, noise: Tensor | float) -> Tensor:
        """Intensities x in [0, 1], quantised or not, as u; the noise within a level is in [0, 1)."""
        return (x * (self.levels - 1) + noise) / self.levels if self.levels else x

    def forward(self, u: Tensor) -> Tensor:
        """y of u."""
        return (MARGIN + (1 - 2 * MARGIN) * u).logit() / RANGE

    def inverse(self, y: Tensor) -> Tensor:
        """The intensity x in [0, 1] of y: of quantised ones the level that has u in the middle."""
        u = ((RANGE * y).sigmoid() - MARGIN) / (1 - 2 * MARGIN)
        return ((u * self.levels - 0.5) / (self.levels - 1) if self.levels else u).clamp(0, 1)

    def log_slope(self, y: Tensor) -> Tensor:
        """log dy/du at y: dy/ds = 1 / (R s (1 - s)) of s = sigmoid(R y), and ds/du = 1 - 2 a."""
        return math.log((1 - 2 * MARGIN) / RANGE) + softplus(RANGE * y) + softplus(-RANGE * y)


class Warped(D.Distribution):
    """Intensities x [B, *shape] whose warped values are normal."""

    def __init__(self, normal: D.Normal, warp: LogitWarp) -> None:
        super().__init__(normal.mean.shape, validate_args=False)
        self.normal, self.warp = normal, warp

    @property
    def mean(self) -> Tensor:
        """E[x], by quadrature."""
        return quadrature(self.warp.inverse, self.normal.mean, self.normal.variance.expand(self.batch_shape))

    @property
    def variance(self) -> Tensor:
        """E[(x - E[x])^2], by quadrature."""
        mean = self.mean
        variance = self.normal.variance.expand(self.batch_shape)
        return quadrature(lambda y: (self.warp.inverse(y) - mean).square(), self.normal.mean, variance)

    def log_prob(self, x: Tensor) -> Tensor:
        """The log density of u, with the slope of the warp; of quantised values its mean over their level."""
        count = BIN_POINTS if self.warp.levels else 1
        total = torch.zeros_like(x)
        for number in range(count):
            y = self.warp.forward(self.warp.unit(x, (number + 0.5) / count))
            total = total + (self.normal.log_prob(y) + self.warp.log_slope(y)) / count
        return total


class Warps:
    """What models share that may warp their observations: `warp` is None if they do not."""

    warp: LogitWarp | None = None

    if TYPE_CHECKING:
        facts: Facts
        num_data: int
        data_mean: Tensor

        def as_float(self, x: Tensor) -> Tensor:
            """Observations in the model's precision."""

    def set_warp(self, name: str | None, likelihood: str | None) -> None:
        """Choose the warp by its name in a config."""
        if name not in (None, "logit"):
            raise UserError(f"model.warp={name} must be logit or null")
        if name and likelihood not in (None, "gaussian"):
            raise UserError(
                f"model.warp={name} needs model.likelihood=gaussian: bits and categories are no intensities"
            )
        self.warp = None if name is None else LogitWarp(self.facts.levels)

    def check_warp(self, facts: Facts) -> None:
        """Raise a UserError unless there are grey values between 0 and 1."""
        if self.warp is not None:
            require(warp_problem("logit", facts.scale, facts.binary))

    def dequantised(self, batch: Batch) -> Batch:
        """A training batch with random noise within the levels of bytes, as u, if the model warps."""
        if self.warp is None or batch.x.dtype != torch.uint8:
            return batch
        x = self.as_float(batch.x)
        return replace(batch, x=self.warp.unit(x, torch.rand_like(x)))

    def modelled(self, x: Tensor) -> Tensor:
        """What the model explains of observations: themselves, or their warped values, of bytes in the middle."""
        return self.as_float(x) if self.warp is None else self.warp.forward(self.unit(x))

    def unit(self, x: Tensor) -> Tensor:
        """Observations in [0, 1], of bytes the middle of their level; `modelled` takes them as it takes the bytes."""
        x_float = self.as_float(x)
        return x_float if self.warp is None or x.dtype != torch.uint8 else self.warp.unit(x_float, 0.5)

    def unwarped(self, p: D.Normal) -> D.Normal | Warped:
        """The distribution of observations, if p is that of what the model explains."""
        return p if self.warp is None else Warped(p, self.warp)

    def slope_term(self, x: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """(N / B) sum_n log dy/du of centred rows x [B, D], which turns densities of y into those of intensities."""
        if self.warp is None:
            return {}
        slopes = masked(self.warp.log_slope(x + self.data_mean), mask)
        return {"warp": self.num_data / len(x) * slopes.sum()}
