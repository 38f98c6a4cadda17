"""Sums of B Gaussian bumps in the plane at T points, exact to rounding, for much less than B T exponentials.

A bump with its axes along the coordinates is a product of two functions of one variable, so the table of the sum on a
grid of G x G nodes takes 2 B G exponentials and one matrix product. The sum is smooth: between Chebyshev's nodes its
interpolating polynomial reaches the rounding error of float64 (a fast Gauss transform, in the plane and dense).
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

GRID_BLOCK = 2**16  # entries of the T x G arrays that exist at a time: 0.5 MB, so that they stay in the cache


class Axis(NamedTuple):
    """One coordinate of the grid, and the interpolation from its nodes."""

    nodes: Tensor  # [G]
    weights: Tensor  # [G], of the barycentric formula

    def poles(self, points: Tensor) -> Tensor:
        """[T, G], in each row proportional to the polynomials that are 1 at one node and 0 at the others."""
        distance = points[:, None] - self.nodes
        return self.weights / distance.add_(1e-150)  # which changes nothing but 0


def make_axis(points: Tensor) -> Axis:
    """As many Chebyshev nodes over the range of these points as bumps of width 1 / sqrt(2) or more need.

    On the ellipse around [-h, h] with semi-axis h sinh(s), exp(-t^2) is at most exp((h sinh s)^2), and the error of G
    nodes falls like exp((h sinh s)^2 - G s). With h sinh(s) = 4.5 it is exp(-37), the rounding error.
    """
    low, high = points.min().item(), points.max().item()
    middle, half = (low + high) / 2, max((high - low) / 2, 1e-3)
    size = math.ceil(57 / math.asinh(4.5 / half))
    angles = (torch.arange(size, dtype=points.dtype, device=points.device) + 0.5) * math.pi / size
    signs = 1 - 2 * (torch.arange(size, device=points.device) % 2)
    return Axis(middle + half * angles.cos(), signs * angles.sin())


def make_grid(points: Tensor) -> tuple[Axis, Axis]:
    """The grid over the range of points [T, 2]."""
    first, second = points.detach().unbind(1)
    return make_axis(first), make_axis(second)


def gauss_sum(mean: Tensor, precision: Tensor, points: Tensor, grid: tuple[Axis, Axis]) -> Tensor:
    """sum_n prod_q sqrt(precision_nq / 2) exp(-precision_nq (mean_nq - t_q)^2 / 2) at points t [T, 2], precision <= 2.

    O(B G^2 + T G^2); float64.
    """
    offsets = [mean[:, q, None] - grid[q].nodes for q in (0, 1)]  # [B, G]
    bumps = [
        (precision[:, q, None] / 2).sqrt() * (-precision[:, q, None] * offsets[q].square() / 2).exp() for q in (0, 1)
    ]
    slopes = [(precision[:, q, None] * offsets[q] * bumps[q]).detach() for q in (0, 1)]
    tables = bumps[0].mT @ bumps[1], slopes[0].mT @ bumps[1].detach(), bumps[0].detach().mT @ slopes[1]
    sums: Tensor = Interpolation.apply(points, *tables, grid)
    return sums


class Interpolation(torch.autograd.Function):
    """The values [T] at points [T, 2] of a function of two variables that is known on a grid, as are its slopes."""

    @staticmethod
    def forward(
        ctx: Any, points: Tensor, table: Tensor, slope1: Tensor, slope2: Tensor, grid: tuple[Axis, Axis]
    ) -> Tensor:
        """O(T G^2). The slopes at the points are their own interpolants, more exact than those of the values' one."""
        values = [values_of(block, (table, slope1, slope2), grid) for block in blocks(points, grid)]
        all_values = torch.cat(values, 1)  # [3, T]
        ctx.grid = grid
        ctx.save_for_backward(points, all_values[1:].mT)
        return all_values[0]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        """O(T G^2)."""
        points, slopes = ctx.saved_tensors
        first, second = ctx.grid
        grad_table = slopes.new_zeros(len(first.nodes), len(second.nodes))
        for block, weights in zip(blocks(points, ctx.grid), blocks(grad, ctx.grid), strict=True):
            poles1, poles2 = first.poles(block[:, 0]), second.poles(block[:, 1])
            weights = weights / (poles1.sum(1) * poles2.sum(1))
            grad_table.addmm_(poles1.mT, poles2 * weights[:, None])
        return grad[:, None] * slopes, grad_table, None, None, None


def values_of(points: Tensor, tables: tuple[Tensor, ...], grid: tuple[Axis, Axis]) -> Tensor:
    """What each table says at the points, [tables, T]."""
    first, second = (axis.poles(points[:, q]) for q, axis in enumerate(grid))
    along_first = (first @ torch.cat(tables, 1)).unflatten(1, (len(tables), -1))  # [T, tables, G]
    return torch.linalg.vecdot(along_first, second[:, None]).mT / (first.sum(1) * second.sum(1))


def blocks(points: Tensor, grid: tuple[Axis, Axis]) -> tuple[Tensor, ...]:
    """The points in groups small enough for the cache."""
    return points.split(max(1, GRID_BLOCK // max(len(axis.nodes) for axis in grid)))
