"""Figures of a latent space and of what is decoded across it, at the widths of a two-column paper.

Each function creates its own `Figure` and touches no global state, so it needs no display and can run in a thread.
`decode` maps latent points [g, Q] to the distribution of their pixels [g, *shape].
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Normal

from src.evaluation.canvas import COLUMN, GREYS, LARGE, PAGE, SMALL, colour_bar, draw_points, heights, quiet
from src.evaluation.point_figures import array, tile
from src.evaluation.shown import INTENSITIES, Limits, levels

Decode = Callable[[Tensor], Normal]

MAX_POINTS = 5000
BACKGROUND_SIDE = 60
ACROSS, SAMPLES = 20, 60  # of the figure of samples
CHUNK = 512  # points decoded at once; bounds the memory for large images


class Grid(NamedTuple):
    """A regular grid over the part of the latent space that a figure shows."""

    coordinates: list[int]  # of z: across and, if Q > 1, up
    ticks: list[Tensor]  # the values of the grid along each coordinate, [side]
    points: Tensor  # [side, Q] or [side * side, Q], from the lowest row; other coordinates have the mean of z

    @property
    def extent(self) -> tuple[float, float, float, float]:
        """The left, right, bottom and top of an image with cells centred on the points."""
        edges = [-0.5, 0.5, -0.5, 0.5]
        for i, ticks in enumerate(self.ticks):
            low, high = ticks[0].item(), ticks[-1].item()
            half = (high - low) / (len(ticks) - 1) / 2
            edges[2 * i : 2 * i + 2] = low - half, high + half
        left, right, bottom, top = edges
        return left, right, bottom, top


def latent_grid(z: Tensor, side: int, tail: float = 0.0, margin: float = 0.0) -> Grid:
    """A grid over the two coordinates of z [n, Q] with the largest variance, or over the only one.

    A fraction `tail` of z is cut off at each end; then a fraction `margin` of the range is added.
    """
    coordinates = sorted(z.var(0, correction=0).topk(min(2, z.shape[1])).indices.tolist())
    ticks = []
    for values in z[:, coordinates].T:
        low, high = values.quantile(tail).item(), values.quantile(1 - tail).item()
        space = margin * (high - low) if high > low else 0.5  # a collapsed coordinate still needs a range
        ticks.append(torch.linspace(low - space, high + space, side, dtype=z.dtype, device=z.device))
    points = z.mean(0).repeat(side ** len(ticks), 1)
    mesh = torch.meshgrid(*reversed(ticks), indexing="ij")
    for coordinate, values in zip(coordinates, reversed(mesh), strict=True):
        points[:, coordinate] = values.flatten()
    return Grid(coordinates, ticks, points)


@torch.no_grad()
def latent_map(z: Tensor, y: Tensor | None, decode: Decode, title: str, names: Sequence[str] = ()) -> Figure:
    """Latent points z [n, Q], coloured by label y [n], above the predictive sd averaged over pixels.

    `names` are those of the classes 0, 1, ... If Q = 1, the height of a point shows its class only.
    """
    grid = latent_grid(z, BACKGROUND_SIDE, margin=0.05)
    sd = torch.cat([decode(points).stddev.flatten(1).mean(1) for points in grid.points.split(CHUNK)])
    background = array(sd).reshape(-1, BACKGROUND_SIDE)
    drawn = np.random.default_rng(0).permutation(len(z))[:MAX_POINTS]  # mixed, so that no class covers another
    labels = np.zeros(len(z)) if y is None else array(y)
    names = names if y is not None else ()
    classes = np.arange(len(names)) if names else np.unique(labels)
    figure, axes = panel(grid, COLUMN, 2.8)
    axes.set_title(title + shown_of(z, grid), fontsize=LARGE)
    image = axes.imshow(background, GREYS, aspect="auto", interpolation="bilinear", origin="lower", extent=grid.extent)
    colour_bar(figure, image, "predictive sd", ax=axes)
    across, up = [*array(z)[:, grid.coordinates].T, heights(labels, classes)][:2]
    draw_points(figure, axes, across[drawn], up[drawn], labels[drawn], classes, names)
    return figure


def shown_of(z: Tensor, grid: Grid) -> str:
    """Which coordinates of more than two a map shows, and why."""
    if z.shape[1] <= 2:
        return ""
    names = " and ".join(f"$z_{{{coordinate + 1}}}$" for coordinate in grid.coordinates)
    return f"\n{names}, which vary most of {z.shape[1]} dimensions"


@torch.no_grad()
def decoded_grid(
    z: Tensor, decode: Decode, shape: tuple[int, ...], side: int = 15, limits: Limits = INTENSITIES
) -> Figure:
    """Observations decoded on a regular grid over the central 98 % of the latent points z [n, Q].

    `limits` are the values that are black and white in images.
    """
    grid = latent_grid(z, side, tail=0.01)
    mean = decode(grid.points).mean.reshape(-1, side, *shape).cpu()  # [rows, side, *shape], from the lowest row
    figure, axes = panel(grid, *((COLUMN, COLUMN) if len(mean) > 1 else (PAGE, 1.0)))
    left, right, bottom, top = grid.extent
    if len(shape) == 1:
        axes.add_collection(LineCollection(list(curves(array(mean), grid.extent)), linewidths=0.5, colors="black"))
        axes.set(xlim=(left, right), ylim=(bottom, top))
    else:
        picture = tile(levels(mean.flip(0), limits))
        square = (right - left) / (top - bottom) * picture.shape[0] / picture.shape[1]
        axes.imshow(picture, "gray", vmin=0, vmax=1, extent=grid.extent, aspect=square)
        axes.vlines(np.linspace(left, right, side + 1)[1:-1], bottom, top, colors="white", linewidths=0.3)
        axes.hlines(np.linspace(bottom, top, len(mean) + 1)[1:-1], left, right, colors="white", linewidths=0.3)
    return figure


def samples(images: Tensor, limits: Limits = INTENSITIES) -> Figure:
    """Images [n, C, H, W] in rows of `ACROSS`."""
    picture = tile(levels(images.unflatten(0, (-1, ACROSS)).cpu(), limits))
    figure = Figure(figsize=(PAGE, PAGE * picture.shape[0] / picture.shape[1]), layout="constrained")
    axes = figure.subplots()
    axes.imshow(picture, "gray", vmin=0, vmax=1)
    axes.set(xticks=[], yticks=[], frame_on=False)
    return figure


def curves(values: np.ndarray, extent: tuple[float, float, float, float]) -> np.ndarray:
    """Vectors [rows, columns, D] as lines [rows * columns, D, 2], one per grid cell, all on the same scale."""
    rows, columns, size = values.shape
    left, right, bottom, top = extent
    low, high = values.min(), values.max()
    within = 0.1 + 0.8 * (values - low) / ((high - low) or 1.0)  # of a cell's height
    across = left + (right - left) / columns * (np.arange(columns)[:, None] + np.linspace(0.1, 0.9, size))
    up = bottom + (top - bottom) / rows * (np.arange(rows)[:, None, None] + within)
    return np.stack([np.broadcast_to(across, up.shape), up], -1).reshape(-1, size, 2)


def panel(grid: Grid, width: float, height: float) -> tuple[Figure, Axes]:
    """A figure with one pair of axes in latent units."""
    figure = Figure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    quiet(axes)
    across, *up = (f"$z_{{{coordinate + 1}}}$" for coordinate in grid.coordinates)
    axes.set_xlabel(across, fontsize=SMALL)
    if up:
        axes.set_ylabel(up[0], fontsize=SMALL)
    else:
        axes.set_yticks([])
    return figure, axes
