"""Sums of Gaussian bumps by a grid equal the sums themselves, to the rounding error of float64."""

import pytest
import torch
from torch import Tensor

from src.gp import gauss_sum as module
from src.gp.gauss_sum import gauss_sum, make_grid


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def plain(mean: Tensor, precision: Tensor, points: Tensor) -> Tensor:
    exponent = -(precision * (mean - points[:, None]).square()).sum(-1) / 2  # [P, B]
    return ((precision / 2).sqrt().prod(-1) * exponent.exp()).sum(1)


def bumps(seed: int, width: float) -> tuple[Tensor, Tensor]:
    """300 bumps, from the narrowest there can be to very wide ones, some of them far from all points."""
    return width * normal(seed, 300, 2), 2 / (1 + 3 * normal(seed + 1, 300, 2).square())


@pytest.mark.parametrize("width", [0.0, 0.1, 1.0, 4.0, 15.0])
@pytest.mark.parametrize("stretch", [1.0, 3.0])
def test_it_is_the_sum(width: float, stretch: float) -> None:
    mean, precision = bumps(0, stretch * width)
    points = width * normal(2, 500, 2)
    expected = plain(mean, precision, points)
    error = gauss_sum(mean, precision, points, make_grid(points)) - expected
    assert error.abs().max() < 1e-13 * expected.max()


def test_gradients_are_those_of_the_sum(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GRID_BLOCK", 1000)
    variables = [*bumps(0, 1.5), 1.5 * normal(2, 100, 2)]
    mean, precision, points = (variable.requires_grad_() for variable in variables)
    weights = normal(3, 100)
    found = torch.autograd.grad(gauss_sum(mean, precision, points, make_grid(points)) @ weights, variables)
    expected = torch.autograd.grad(plain(mean, precision, points) @ weights, variables)
    for gradient, true in zip(found, expected, strict=True):
        assert (gradient - true).abs().max() < 1e-12 * true.abs().max()


def test_a_point_on_a_node_has_the_value_there() -> None:
    mean, precision = bumps(0, 1.0)
    points = 2 * normal(2, 50, 2)
    grid = make_grid(points)
    on_nodes = torch.stack([grid[0].nodes[[0, 7, 9]], grid[1].nodes[[3, 7, 0]]], 1).requires_grad_()
    sums = gauss_sum(mean, precision, on_nodes, grid)
    torch.testing.assert_close(sums, plain(mean, precision, on_nodes), rtol=1e-12, atol=0)
    assert torch.autograd.grad(sums.sum(), on_nodes)[0].isfinite().all()
