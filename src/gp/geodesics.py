"""Geodesics: curves between pairs of latent points with the least energy under a metric, all pairs at once.

The energy of a curve c is the integral over t in [0, 1] of c'^T G(c) c'. Its minimum is the shortest curve, run through
at constant speed. Curves are cubic B-splines with fixed ends. Each starts twice, from the straight line and from the
shortest path on a graph, and goes downhill; the better one is kept, and never one that is worse than the straight line.

In the plane the graph is a grid, and the metric is interpolated between its nodes while a curve goes downhill, since
the metric of a GP costs O(A^2) per point. In other dimensions the graph joins near latent points that are known, such
as those of the training data, and the metric is the true one. Energies and lengths that are reported are always those
of the true metric.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from src.gp.geometry import Metric
from src.gp.latent_graphs import GridMetric, paths_over_points
from src.gp.linalg import add_diagonal

CONTROLS = 14  # control points of a curve, with its two ends
PER_PIECE = 5  # nodes of the quadrature in each piece of a spline: exact for a metric that is the same everywhere
EVEN = 64  # points of a path that a spline is fitted to
STEPS = 60  # downhill
SHORTEST = 1e-4  # a step downhill that is worth trying
RIDGE = 1e-9
MOST_CURVES = 2000  # that go downhill at once; fewer in many dimensions, where each asks the metric itself


@dataclass(frozen=True)
class Geodesics:
    """P curves, with their energies and lengths beside those of the straight lines, under the true metric."""

    control: Tensor  # [P, CONTROLS, Q]
    energy: Tensor  # [P]
    length: Tensor  # [P]
    straight_energy: Tensor  # [P]
    straight_length: Tensor  # [P]

    def points(self, steps: int) -> Tensor:
        """Points [P, steps, Q] at equal times, with both ends: about equally far apart under the metric."""
        return splines_at(np.linspace(0, 1, steps)).to(self.control) @ self.control


class Quadrature(NamedTuple):
    """T times between 0 and 1, as what turns control points into positions and velocities, and their weights."""

    values: Tensor  # [T, CONTROLS]
    slopes: Tensor  # [T, CONTROLS]
    weights: Tensor  # [T]


def splines_at(times: np.ndarray, derivative: int = 0) -> Tensor:
    """The clamped cubic B-splines at times [T], or their derivatives, [T, CONTROLS]."""
    from scipy.interpolate import BSpline

    knots = np.concatenate([[0.0] * 3, np.linspace(0, 1, CONTROLS - 2), [1.0] * 3])
    return torch.from_numpy(BSpline(knots, np.eye(CONTROLS), 3)(times, derivative))


@cache
def quadrature() -> Quadrature:
    """Gauss and Legendre's, in each piece of the splines."""
    nodes, weights = np.polynomial.legendre.leggauss(PER_PIECE)
    pieces = CONTROLS - 3
    times = ((np.arange(pieces)[:, None] + (nodes + 1) / 2) / pieces).ravel()
    each = torch.from_numpy(np.tile(weights / (2 * pieces), pieces))
    return Quadrature(splines_at(times), splines_at(times, derivative=1), each)


def geodesics(metric: Metric, start: Tensor, end: Tensor, known: Tensor | None = None, steps: int = STEPS) -> Geodesics:
    """The curves from start [P, Q] to end [P, Q]; the graph covers these points and `known` [N, Q].

    Computed in float64. The plane asks for the metric at SIDE^2 points and 2 T per curve, other spaces at 2 T per
    curve and step.
    """
    a, b = start.detach().double(), end.detach().double()
    downhill, paths = searched(metric, a, b, a[:0] if known is None else known.detach().double())
    lines = straight_lines(a, b)
    first, second = (downhill_from(downhill, control, steps) for control in (lines, fitted(paths, a, b)))
    better = (second.energy < first.energy).view(-1, 1, 1)
    return true_geodesics(metric, torch.where(better, second.control, first.control), lines)


def near_geodesics(metric: Metric, start: Tensor, end: Tensor, steps: int = STEPS) -> Geodesics:
    """The curves between points so near to each other that the search starts from the straight line alone."""
    lines = straight_lines(start.detach().double(), end.detach().double())
    return true_geodesics(metric, downhill_from(metric, lines, steps).control, lines)


def true_geodesics(metric: Metric, curved: Tensor, straight: Tensor) -> Geodesics:
    """The curves, or the straight lines where those are as good under the true metric."""
    (energy, length), (straight_energy, straight_length) = (measured(metric, each) for each in (curved, straight))
    worth = energy < straight_energy
    control = torch.where(worth.view(-1, 1, 1), curved, straight)
    chosen = torch.where(worth, energy, straight_energy), torch.where(worth, length, straight_length)
    return Geodesics(control, *chosen, straight_energy, straight_length)


@torch.no_grad()
def searched(metric: Metric, a: Tensor, b: Tensor, known: Tensor) -> tuple[Metric, list[Tensor]]:
    """The metric that curves go downhill on, and the shortest paths [m, Q] on a graph that they start from."""
    if a.shape[1] != 2:
        return metric, paths_over_points(metric, a, b, known)
    grid = GridMetric.over(metric, torch.cat([a, b, known]))
    return grid, grid.shortest_paths(a, b)


def straight_lines(a: Tensor, b: Tensor) -> Tensor:
    """Control points [P, CONTROLS, Q] of the straight lines at constant speed: those of the identity, t itself."""
    knots = torch.cat([torch.zeros(2), torch.linspace(0, 1, CONTROLS - 2), torch.ones(2)]).to(a)
    identity = knots.unfold(0, 3, 1).mean(1).unsqueeze(1)  # Greville: the means of three knots
    return a.unsqueeze(1) + identity * (b - a).unsqueeze(1)


class Along(NamedTuple):
    """The metric along curves, and their squared speeds c'^T G(c) c'."""

    metric: Tensor  # [P, T, Q, Q]
    speed: Tensor  # [P, T]


def along(metric: Metric, control: Tensor) -> Along:
    """What the energy of curves with these control points is made of."""
    values, slopes, _ = (each.to(control) for each in quadrature())
    at, velocity = values @ control, slopes @ control
    g = metric(at.flatten(0, 1)).unflatten(0, at.shape[:2])
    return Along(g, torch.einsum("ptq,ptqr,ptr->pt", velocity, g, velocity))


@torch.no_grad()
def measured(metric: Metric, control: Tensor) -> tuple[Tensor, Tensor]:
    """Energy and length [P] of curves."""
    speed, weights = along(metric, control).speed.clamp_min(0), quadrature().weights.to(control)
    return speed @ weights, speed.sqrt() @ weights


class Slopes(NamedTuple):
    """The energy of curves, and a step along which it falls."""

    energy: Tensor  # [P]
    step: Tensor  # [P, CONTROLS - 2, Q]


@torch.enable_grad()
def slopes_at(metric: Metric, control: Tensor) -> Slopes:
    """The gradient of the energy, divided by what its second derivative is if the metric stays the same on the curve.

    Control points are strongly coupled; with this matrix, a step of 1 is of the right size.
    """
    free = control[:, 1:-1].detach().requires_grad_()
    g, speed = along(metric, torch.cat([control[:, :1], free, control[:, -1:]], 1))
    _, slopes, weights = (each.to(control) for each in quadrature())
    energy = speed @ weights
    (gradient,) = torch.autograd.grad(energy.sum(), free)
    inner = slopes[:, 1:-1]
    matrix = torch.einsum("t,tk,tl,ptqr->pkqlr", 2 * weights, inner, inner, g.detach()).flatten(3, 4).flatten(1, 2)
    ridge = RIDGE * matrix.diagonal(dim1=1, dim2=2).mean(1, keepdim=True)  # a net's metric may be singular
    step = torch.linalg.solve(add_diagonal(matrix, ridge), gradient.flatten(1)).view_as(gradient)
    return Slopes(energy.detach(), -step)


class Descended(NamedTuple):
    """Curves and their energies."""

    control: Tensor  # [P, CONTROLS, Q]
    energy: Tensor  # [P]


def downhill_from(metric: Metric, control: Tensor, steps: int) -> Descended:
    """Curves after some steps downhill, a few curves at a time if there are many."""
    at_once = MOST_CURVES if control.shape[2] == 2 else MOST_CURVES // 20
    parts = [descended(metric, part, steps) for part in control.split(at_once)]
    return Descended(*(torch.cat(each) for each in zip(*parts, strict=True)))


def descended(metric: Metric, control: Tensor, steps: int) -> Descended:
    """Curves after some steps downhill; each has a step size of its own, and no energy ever rises."""
    energy, step = slopes_at(metric, control)
    size = torch.ones_like(energy)
    for _ in range(steps):
        trial = control.clone()
        trial[:, 1:-1] += size.view(-1, 1, 1) * step
        tried = slopes_at(metric, trial)
        better = tried.energy < energy
        chosen = better.view(-1, 1, 1)
        control, energy = torch.where(chosen, trial, control), torch.where(better, tried.energy, energy)
        step = torch.where(chosen, tried.step, step)
        size = torch.where(better, (2 * size).clamp_max(1.0), size / 4)
        if bool((size < SHORTEST).all()):
            break
    return Descended(control, energy)


def fitted(paths: Sequence[Tensor], a: Tensor, b: Tensor) -> Tensor:
    """Control points of the splines nearest to paths [m, Q], each taken at equal steps of its own length."""
    values = splines_at(np.linspace(0, 1, EVEN)).to(a)
    even = torch.stack([resampled(path, EVEN) for path in paths])  # [P, EVEN, Q]
    ends = torch.stack([a, b], 1)
    rest = even - values[:, [0, -1]] @ ends
    inner = torch.linalg.pinv(values[:, 1:-1]) @ rest
    return torch.cat([ends[:, :1], inner, ends[:, 1:]], 1)


def resampled(path: Tensor, steps: int) -> Tensor:
    """A path [m, Q] at equal steps of its length."""
    lengths = torch.linalg.vector_norm(path.diff(dim=0), dim=1)
    at = torch.cat([lengths.new_zeros(1), lengths.cumsum(0)]).numpy()
    times = np.linspace(0, at[-1], steps)
    return torch.from_numpy(np.stack([np.interp(times, at, column) for column in path.T.numpy()], 1))
