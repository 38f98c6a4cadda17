"""Figures of a latent space and of decoded observations, at the widths of a two-column paper.

Each function creates its own `Figure` and touches no global state, so it needs no display and can run in a thread.
`decode` maps latent points [g, Q] to the distribution of their pixels [g, *shape]; pixels of images lie in [0, 1].
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Normal
from torch.nn.functional import pad

from src.evaluation.canvas import (
    COLUMN,
    GREYS,
    LARGE,
    PAGE,
    PALETTE,
    SMALL,
    UNKNOWN,
    add_legend,
    colour_bar,
    draw_points,
    heights,
    quiet,
)
from src.evaluation.canvas import (
    save as save,
)

Decode = Callable[[Tensor], Normal]

MAX_POINTS = 5000
MAX_NAMES = 30  # columns that have room for their names
BACKGROUND_SIDE = 60
GREY: dict[str, Any] = {"cmap": "gray", "vmax": 1}  # of images, the same in all figures
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


def reconstructions(
    x: Tensor,
    mean: Tensor,
    sd: Tensor,
    n: int = 10,
    columns: Sequence[str] = (),
    unit: str = "value",
    mask: Tensor | None = None,
) -> Figure:
    """The first n observations, their reconstructions and predictive sd: rows of images, or curves for vectors.

    Up to 30 columns that have names are shown by name. Pixels outside the mask are marked as unknown.
    """
    x, mean, sd = (t[:n].detach().cpu() for t in (x, mean, sd))
    if x.ndim > 2:
        return image_rows(x, mean, sd, None if mask is None else mask[:n])
    return named_panels(x, mean, sd, columns, unit) if 0 < len(columns) <= MAX_NAMES else curve_panels(x, mean, sd)


def image_rows(x: Tensor, mean: Tensor, sd: Tensor, mask: Tensor | None = None) -> Figure:
    """Rows of images [n, C, H, W]; the sd is averaged over channels, and a number where all pixels have the same."""
    rows: list[tuple[str, Tensor, float, dict[str, Any]]] = [
        ("image", x.clamp(0, 1) if mask is None else tinted(x, mask), 1.0, GREY),
        ("reconstruction", mean.clamp(0, 1), 1.0, GREY),
    ]
    if is_one_number(sd):
        figure = picture_rows(rows, bar=-1)
        write_below(figure.axes[-1], "predictive sd", [f"{value:.3f}" for value in sd.flatten(1).mean(1).tolist()])
        return figure
    sd = sd.mean(1, keepdim=True)
    return picture_rows([*rows, ("predictive sd", sd, 0.0, {"cmap": "Greys", "vmax": sd.max().item()})], bar=2)


def is_one_number(sd: Tensor) -> bool:
    """Whether all pixels of each image [n, C, H, W] have the same sd, as those of a GP with one noise have."""
    pixels = sd.flatten(1)
    return bool((pixels.amax(1) - pixels.amin(1) <= 1e-4 * pixels.amax(1)).all())


def write_below(axes: Axes, label: str, texts: Sequence[str]) -> None:
    """A number below each of the images in a row."""
    left, right = axes.get_xlim()
    step = (right - left) / len(texts)
    axes.set_xticks([left + (i + 0.5) * step for i in range(len(texts))], texts, fontsize=SMALL)
    axes.set_xlabel(label, fontsize=SMALL)
    axes.tick_params(length=0)


def picture_rows(rows: Sequence[tuple[str, Tensor, float, dict[str, Any]]], bar: int) -> Figure:
    """Labelled rows of images [n, C, H, W], each with its white and its style; row `bar` has a colour bar."""
    n, _, height, width = rows[0][1].shape
    gap = max(1, width // 14)
    size = (PAGE - 1.2) / max(n, 10)  # of an image; labels and numbers take 1.2 inches
    figure = Figure(figsize=(1.2 + n * size, 0.2 + len(rows) * size * height / (width + gap)), layout="constrained")
    for i, (axes, (name, images, white, style)) in enumerate(zip(figure.subplots(len(rows)), rows, strict=True)):
        shown = axes.imshow(tile(pad(images, (0, gap), value=white)[None]), vmin=0, **style)
        axes.set(xticks=[], yticks=[], frame_on=False)
        axes.set_ylabel(name, fontsize=SMALL, rotation=0, ha="right", va="center")
        if i == bar:
            colour_bar(figure, shown, "", cax=axes.inset_axes((1.0, 0.05, 0.008, 0.9)))
    return figure


def curve_panels(x: Tensor, mean: Tensor, sd: Tensor) -> Figure:
    """One panel per vector of [n, D]: the observation, its reconstruction, and a band of two sd around it."""
    figure, panels = vector_panels(len(x))
    for i, axes in enumerate(panels):
        observed, centre, spread = array(x[i]), array(mean[i]), 2 * array(sd[i])
        d = np.arange(1, len(centre) + 1)
        axes.fill_between(d, centre - spread, centre + spread, color=PALETTE[4], alpha=0.4, linewidth=0, label="± 2 sd")
        axes.plot(d, observed, color="black", linewidth=0.6, label="observation")
        axes.plot(d, centre, color=PALETTE[0], linewidth=0.8, label="reconstruction")
    add_legend(figure, figure.axes[0].get_legend_handles_labels()[0])
    return figure


def named_panels(x: Tensor, mean: Tensor, sd: Tensor, columns: Sequence[str], unit: str) -> Figure:
    """One panel per row of a table [n, D], at most five: a line per column with the value and its reconstruction."""
    shown = min(5, len(x))
    figure = Figure(figsize=(PAGE, 0.7 + 0.13 * len(columns)), layout="constrained")
    d = np.arange(len(columns))
    for i, axes in enumerate(figure.subplots(1, shown, sharex=True, sharey=True, squeeze=False).flat):
        quiet(axes)
        style: dict[str, Any] = {"color": PALETTE[0], "ecolor": PALETTE[4], "markersize": 2.5, "elinewidth": 1.5}
        name = "reconstruction ± 2 sd"
        axes.errorbar(array(mean[i]), d, xerr=2 * array(sd[i]), fmt="o", label=name, **style)
        axes.plot(array(x[i]), d, "x", color="black", markersize=3, markeredgewidth=0.7, label="observation")
        axes.set_title(f"test point {i + 1}", fontsize=SMALL, pad=2)
        axes.set_xlabel(unit, fontsize=SMALL)
    name_rows(figure.axes[0], columns)
    add_legend(figure, figure.axes[0].get_legend_handles_labels()[0])
    return figure


def vector_panels(n: int) -> tuple[Figure, list[Axes]]:
    """A figure with n panels on common axes, five to a row."""
    columns = min(5, n)
    rows = -(-n // columns)
    figure = Figure(figsize=(PAGE, 0.4 + 1.1 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, sharex=True, sharey=True, squeeze=False).flat)
    for i, axes in enumerate(panels):
        quiet(axes)
        if i >= n:
            axes.set_axis_off()
    return figure, panels[:n]


def imputations(x: Tensor, mask: Tensor, hidden: Tensor, mean: Tensor, sd: Tensor) -> Figure:
    """Points as they were seen (where `mask`) and filled in, the predictive sd, and the truth of `hidden` values."""
    return imputed_curves(x, mask, hidden, mean, sd) if x.ndim == 2 else imputed_images(x, mask, hidden, mean, sd)


def imputed_images(x: Tensor, mask: Tensor, hidden: Tensor, mean: Tensor, sd: Tensor) -> Figure:
    """Four rows of images [n, C, H, W]; what is not known has a colour that no pixel has, in print a middle grey."""
    spread = torch.where(mask, 0.0, sd).mean(1, keepdim=True)
    return picture_rows(
        [
            ("seen", tinted(x, mask), 1.0, {}),
            ("filled in", torch.where(mask, x, mean).clamp(0, 1), 1.0, GREY),
            ("predictive sd", spread, 0.0, {"cmap": "Greys", "vmax": spread.max().item()}),
            ("truth", tinted(x, mask | hidden), 1.0, {}),
        ],
        bar=2,
    )


def tinted(x: Tensor, known: Tensor) -> Tensor:
    """Images [n, C, H, W] in colour, light blue where they are not known."""
    tint = torch.tensor(to_rgb(UNKNOWN), dtype=x.dtype).view(3, 1, 1)
    return torch.where(known, x, tint).clamp(0, 1)


def imputed_curves(x: Tensor, mask: Tensor, hidden: Tensor, mean: Tensor, sd: Tensor) -> Figure:
    """One panel per vector of [n, D]: what was seen, and predictions with bars of two sd beside the hidden truth."""
    figure, panels = vector_panels(len(x))
    d = np.arange(1, x.shape[1] + 1)
    for i, axes in enumerate(panels):
        observed, missing, scored = array(mask[i]), array(~mask[i]), array(hidden[i])
        marks: dict[str, Any] = {"linestyle": "", "markersize": 2.5}
        axes.plot(d[observed], array(x[i])[observed], "o", color="black", label="seen", **marks)
        bars: dict[str, Any] = {"color": PALETTE[0], "elinewidth": 0.8, "label": "filled in ± 2 sd"}
        axes.errorbar(d[missing], array(mean[i])[missing], 2 * array(sd[i])[missing], fmt="s", ms=2, **bars)
        axes.plot(d[scored], array(x[i])[scored], "x", color=PALETTE[5], label="truth", **marks)
    add_legend(figure, figure.axes[0].get_legend_handles_labels()[0])
    return figure


def column_errors(rmse: Tensor, columns: Sequence[str], unit: str) -> Figure:
    """The RMSE [D] of each column as bars, the worst first; of a wide table the worst 30."""
    worst = rmse.argsort(descending=True)[:MAX_NAMES].tolist()
    figure = Figure(figsize=(COLUMN, 0.6 + 0.13 * len(worst)), layout="constrained")
    axes = figure.subplots()
    quiet(axes)
    axes.barh(range(len(worst)), array(rmse[worst]), color=PALETTE[0], height=0.7)
    name_rows(axes, [columns[i] for i in worst])
    many = f"the worst {len(worst)} of {len(columns)} columns" if len(worst) < len(columns) else "all columns"
    axes.set_title(f"Test RMSE, {many}", fontsize=LARGE)
    axes.set_xlabel(f"RMSE of the {unit}", fontsize=SMALL)
    return figure


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Names of rows, from the top; long ones are cut."""
    axes.set_yticks(range(len(names)), [name if len(name) <= 24 else f"{name[:23]}…" for name in names])
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params("y", length=0)


@torch.no_grad()
def decoded_grid(z: Tensor, decode: Decode, shape: tuple[int, ...], side: int = 15) -> Figure:
    """Observations decoded on a regular grid over the central 98 % of the latent points z [n, Q]."""
    grid = latent_grid(z, side, tail=0.01)
    mean = decode(grid.points).mean.reshape(-1, side, *shape).cpu()  # [rows, side, *shape], from the lowest row
    figure, axes = panel(grid, *((COLUMN, COLUMN) if len(mean) > 1 else (PAGE, 1.0)))
    left, right, bottom, top = grid.extent
    if len(shape) == 1:
        axes.add_collection(LineCollection(list(curves(array(mean), grid.extent)), linewidths=0.5, colors="black"))
        axes.set(xlim=(left, right), ylim=(bottom, top))
    else:
        picture = tile(mean.flip(0).clamp(0, 1))
        square = (right - left) / (top - bottom) * picture.shape[0] / picture.shape[1]
        axes.imshow(picture, "gray", vmin=0, vmax=1, extent=grid.extent, aspect=square)
        axes.vlines(np.linspace(left, right, side + 1)[1:-1], bottom, top, colors="white", linewidths=0.3)
        axes.hlines(np.linspace(bottom, top, len(mean) + 1)[1:-1], left, right, colors="white", linewidths=0.3)
    return figure


def tile(images: Tensor) -> np.ndarray:
    """Images [rows, columns, C, H, W] as one picture, [rows * H, columns * W] or, in colour, [..., 3]."""
    rows, columns, channels, height, width = images.shape
    picture = images.permute(0, 3, 1, 4, 2).reshape(rows * height, columns * width, channels)
    return array(picture.squeeze(-1))


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


def array(tensor: Tensor) -> np.ndarray:
    """A tensor as an array that matplotlib can draw."""
    return tensor.detach().cpu().numpy()
