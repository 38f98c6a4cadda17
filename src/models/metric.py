"""The metric of a model's latent space: how far apart decoded observations are, for a small step of z.

It is that of the function f behind the observations, without their noise: of bits and categories the logits, of warped
images the warped values. These are what the model takes to be Gaussian, and what has a Jacobian in closed form.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution

from src.gp.geometry import expected_metric, pulled_back
from src.models.warp import Warped

CHUNK = 1024  # points at a time; bounds the memory of convolutions


class ExpectedMetric:
    """GP decoders: the expectation of J^T J under the GP that they predict from."""

    if TYPE_CHECKING:

        def given(self, batch: Any = None) -> Any:
            """The conditioned GP."""

    def metric(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Tensor:
        """G [n, Q, Q] = E[J]^T E[J] + sum_d Cov(J_d) at z [n, Q]."""
        return expected_metric((self.given() if given is None else given).jacobian_moments, z)


class PulledBackMetric:
    """Other decoders: J^T J of the mean and of the sd of what they decode."""

    if TYPE_CHECKING:
        dtype: Any  # the precision of the parameters

        def decode(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Distribution:
            """The distribution of observations."""

    def metric(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Tensor:
        """G [n, Q, Q] at z [n, Q]; one noise for all of the latent space adds nothing."""
        auxes: Sequence[Any] = [None] * len(z) if aux is None else aux.split(CHUNK)
        parts = [self.chunk_metric(*chunk, given) for chunk in zip(z.split(CHUNK), auxes, strict=False)]
        return torch.cat(parts).to(z)

    def chunk_metric(self, z: Tensor, aux: Tensor | None, given: Any) -> Tensor:
        """G of a few points."""
        return pulled_back(lambda at: moments(self.decode(at, given, aux)), z.to(self.dtype))


def moments(p: Distribution) -> Tensor:
    """Mean and sd of reals, warped or not, and the logits of bits, as rows."""
    if isinstance(p, Bernoulli):
        return p.logits.flatten(1)
    normal = p.normal if isinstance(p, Warped) else p
    return torch.cat([normal.mean.flatten(1), normal.stddev.expand_as(normal.mean).flatten(1)], 1)
