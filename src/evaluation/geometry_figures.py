"""Figures of the geometry of a latent plane."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from torch import Tensor

from src.evaluation.canvas import COLUMN, GREYS, LARGE, colour_bar, draw_points
from src.evaluation.latent_figures import BACKGROUND_SIDE, latent_grid, panel
from src.evaluation.point_figures import array
from src.gp.geometry import Metric, magnification

MAX_POINTS = 1000  # so that the background is seen


@torch.no_grad()
def geodesic_map(
    z: Tensor, y: Tensor | None, metric: Metric, curves: Tensor, title: str, names: Sequence[str] = ()
) -> Figure:
    """Latent points z [n, 2], coloured by label y [n], and curves [P, steps, 2] above the magnification factor."""
    grid = latent_grid(z, BACKGROUND_SIDE, margin=0.05)
    size = array(magnification(metric(grid.points.double()))).reshape(-1, BACKGROUND_SIDE)
    background = np.log10(np.maximum(size, size.max() * 1e-6))  # a net may be flat somewhere
    figure, axes = panel(grid, COLUMN, 2.8)
    axes.set_title(title, fontsize=LARGE)
    image = axes.imshow(background, GREYS, aspect="auto", interpolation="bilinear", origin="lower", extent=grid.extent)
    colour_bar(figure, image, r"$\log_{10}\sqrt{\det\,G}$", ax=axes)
    drawn = np.random.default_rng(0).permutation(len(z))[:MAX_POINTS]  # mixed, so that no class covers another
    labels = np.zeros(len(z)) if y is None else array(y)
    classes = np.arange(len(names)) if names and y is not None else np.unique(labels)
    across, up = array(z).T
    draw_points(figure, axes, across[drawn], up[drawn], labels[drawn], classes, names if y is not None else ())
    axes.add_collection(LineCollection(list(array(curves)), colors="black", linewidths=0.5, alpha=0.8, zorder=3))
    ends = array(curves[:, [0, -1]].flatten(0, 1))
    axes.scatter(ends[:, 0], ends[:, 1], s=12, c="white", edgecolors="black", linewidths=0.8, zorder=4)
    left, right, bottom, top = grid.extent
    axes.set(xlim=(left, right), ylim=(bottom, top))
    return figure
