"""Observations of a few functions of one variable, which the tests of the sparse and the exact posterior share."""

from typing import NamedTuple

import torch
from torch import Tensor

P, M, B, NEW = 3, 5, 12, 4


class Problem(NamedTuple):
    """Kernels between M inducing and B observed points, and what is observed of P functions."""

    k_mm: Tensor  # [M, M]
    k_mb: Tensor  # [M, B]
    k_bb: Tensor  # [B, B]
    y: Tensor  # [B, P]
    variance: Tensor  # [B, P]


def rbf(a: Tensor, b: Tensor) -> Tensor:
    return (-0.5 * (a[:, None] - b).square()).exp()


def make_problem() -> Problem:
    generator = torch.Generator().manual_seed(0)
    points = 6 * torch.rand(B, generator=generator, dtype=torch.float64)
    inducing = torch.linspace(0, 6, M, dtype=torch.float64)
    y = torch.randn(B, P, generator=generator, dtype=torch.float64)
    variance = 0.1 + torch.rand(B, P, generator=generator, dtype=torch.float64)
    return Problem(2 * rbf(inducing, inducing), 2 * rbf(inducing, points), 2 * rbf(points, points), y, variance)
