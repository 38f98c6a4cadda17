"""Figures of inducing inputs beside the latents that they stand for, and of noisy points beside denoised ones."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from src.evaluation.canvas import PAGE, PALETTE, SMALL, add_legend, quiet
from src.evaluation.point_figures import GREY, array, picture_rows, vector_panels
from src.evaluation.shown import INTENSITIES, Limits, levels

BINS = 40
PER_ROW = 5


def by_dimension(means: Tensor, inducing: Tensor) -> Figure:
    """One panel per latent dimension: the densities of latent means [N, Q] and of inducing inputs [M, Q].

    Inducing inputs are marked below, each by a line.
    """
    latent_dim = means.shape[1]
    rows = -(-latent_dim // PER_ROW)
    figure = Figure(figsize=(PAGE, 0.4 + 1.2 * rows), layout="constrained")
    panels = figure.subplots(rows, min(PER_ROW, latent_dim), squeeze=False).flat
    for number, axes in enumerate(panels):
        if number < latent_dim:
            densities(axes, array(means[:, number]), array(inducing[:, number]))
            axes.set_xlabel(f"$z_{{{number + 1}}}$", fontsize=SMALL)
        else:
            axes.set_axis_off()
    add_legend(figure, figure.axes[0].get_legend_handles_labels()[0])
    return figure


def densities(axes: Axes, means: np.ndarray, inducing: np.ndarray) -> None:
    """Histograms on common axes, each of area one."""
    quiet(axes)
    edges = np.linspace(min(means.min(), inducing.min()), max(means.max(), inducing.max()), BINS + 1)
    coarse = edges[:: BINS // 10].tolist()
    axes.hist(means, edges.tolist(), density=True, color=PALETTE[4], label="latent means")
    axes.hist(inducing, coarse, density=True, histtype="step", color=PALETTE[5], label="inducing inputs")
    axes.plot(inducing, np.zeros_like(inducing), "|", color=PALETTE[5], markersize=6, markeredgewidth=0.7)
    axes.set_yticks([])


def mark_inducing(figure: Figure, inducing: Tensor, coordinates: list[int]) -> None:
    """Add the inducing inputs [M, Q] to a map of the latents, and say how many of them lie outside it."""
    axes = figure.axes[0]
    across, *up = array(inducing)[:, coordinates].T
    height = up[0] if up else np.zeros_like(across)
    (left, right), (bottom, top) = axes.get_xlim(), axes.get_ylim()
    outside = int(((across < left) | (across > right) | (height < bottom) | (height > top)).sum())
    axes.plot(across, height, "x", color="black", markersize=3.5, markeredgewidth=0.9)
    axes.set(xlim=(left, right), ylim=(bottom, top))
    note = f"{len(across)} inducing inputs" + (f", {outside} outside" if outside else "")
    axes.annotate(f"x {note}", (0.02, 0.02), xycoords="axes fraction", fontsize=SMALL)


def denoised(clean: Tensor, noisy: Tensor, mean: Tensor, limits: Limits = INTENSITIES) -> Figure:
    """Three rows of images, or one panel per row of a table, at most five."""
    if clean.ndim > 2:
        rows = {"clean": clean, "noisy": noisy, "reconstruction": mean}
        return picture_rows([(name, levels(images, limits), 1.0, GREY) for name, images in rows.items()], bar=-1)
    figure, panels = vector_panels(min(5, len(clean)))
    d = np.arange(1, clean.shape[1] + 1)
    for i, axes in enumerate(panels):
        axes.plot(d, array(noisy[i]), "s", color=PALETTE[5], markersize=3, label="noisy")
        axes.plot(d, array(clean[i]), "x", color="black", markersize=3, label="clean")
        axes.plot(d, array(mean[i]), "o", color=PALETTE[0], markersize=2.5, label="reconstruction")
    add_legend(figure, figure.axes[0].get_legend_handles_labels()[0])
    return figure
