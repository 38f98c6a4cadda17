"""Figures of test points beside their reconstructions: rows of pictures, or curves and named columns of vectors.

Each function creates its own `Figure` and touches no global state, so it needs no display and can run in a thread.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from torch import Tensor
from torch.nn.functional import pad

from src.evaluation.canvas import COLUMN, LARGE, PAGE, PALETTE, SMALL, UNKNOWN, add_legend, colour_bar, quiet
from src.evaluation.shown import INTENSITIES, Limits, levels

MAX_NAMES = 30  # columns that have room for their names
GREY: dict[str, Any] = {"cmap": "gray", "vmax": 1}  # of images, the same in all figures


class Columns(NamedTuple):
    """The columns of a table, and what their values are."""

    names: Sequence[str] = ()
    unit: str = "value"


NO_NAMES = Columns()


def reconstructions(
    x: Tensor,
    mean: Tensor,
    sd: Tensor,
    rows: Sequence[int],
    columns: Columns = NO_NAMES,
    mask: Tensor | None = None,
    limits: Limits = INTENSITIES,
) -> Figure:
    """Observations, their reconstructions and predictive sd: rows of images, or curves for vectors.

    `rows` are those of the test split. Up to 30 columns that have names are shown by name. Pixels outside the mask are
    marked as unknown. `limits` are the values that are black and white.
    """
    x, mean, sd = (t.detach().cpu() for t in (x, mean, sd))
    if x.ndim > 2:
        return image_rows(x, mean, sd, mask, limits)
    if 0 < len(columns.names) <= MAX_NAMES:
        return named_panels(x, mean, sd, rows, columns)
    return curve_panels(x, mean, sd)


def image_rows(x: Tensor, mean: Tensor, sd: Tensor, mask: Tensor | None, limits: Limits) -> Figure:
    """Rows of images [n, C, H, W]; the sd is averaged over channels, and a number where all pixels have the same."""
    seen = levels(x, limits)
    rows: list[tuple[str, Tensor, float, dict[str, Any]]] = [
        (f"image{between(limits)}", seen if mask is None else tinted(seen, mask), 1.0, GREY),
        ("reconstruction", levels(mean, limits), 1.0, GREY),
    ]
    if is_one_number(sd):
        figure = picture_rows(rows, bar=-1)
        write_below(figure.axes[-1], "predictive sd", [f"{value:.3f}" for value in sd.flatten(1).mean(1).tolist()])
        return figure
    sd = sd.mean(1, keepdim=True)
    return picture_rows([*rows, ("predictive sd", sd, 0.0, {"cmap": "Greys", "vmax": sd.max().item()})], bar=2)


def between(limits: Limits) -> str:
    """The values that are black and white, if they are not those of intensities."""
    return "" if limits == INTENSITIES else f"\n{limits.black:.2g} to {limits.white:.2g}"


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


def named_panels(x: Tensor, mean: Tensor, sd: Tensor, rows: Sequence[int], columns: Columns) -> Figure:
    """One panel per row of a table [n, D], at most five: a line per column with the value and its reconstruction."""
    shown = min(5, len(x))
    figure = Figure(figsize=(PAGE, 0.7 + 0.13 * len(columns.names)), layout="constrained")
    d = np.arange(len(columns.names))
    for i, axes in enumerate(figure.subplots(1, shown, sharex=True, sharey=True, squeeze=False).flat):
        quiet(axes)
        style: dict[str, Any] = {"color": PALETTE[0], "ecolor": PALETTE[4], "markersize": 2.5, "elinewidth": 1.5}
        name = "reconstruction ± 2 sd"
        axes.errorbar(array(mean[i]), d, xerr=2 * array(sd[i]), fmt="o", label=name, **style)
        axes.plot(array(x[i]), d, "x", color="black", markersize=3, markeredgewidth=0.7, label="observation")
        axes.set_title(f"test point {rows[i] + 1}", fontsize=SMALL, pad=2)
        axes.set_xlabel(columns.unit, fontsize=SMALL)
    name_rows(figure.axes[0], columns.names)
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


def imputations(
    x: Tensor, mask: Tensor, hidden: Tensor, mean: Tensor, sd: Tensor, limits: Limits = INTENSITIES
) -> Figure:
    """Points as they were seen (where `mask`) and filled in, the predictive sd, and the truth of `hidden` values."""
    if x.ndim == 2:
        return imputed_curves(x, mask, hidden, mean, sd)
    return imputed_images(levels(x, limits), mask, hidden, levels(mean, limits), sd, limits)


def imputed_images(x: Tensor, mask: Tensor, hidden: Tensor, mean: Tensor, sd: Tensor, limits: Limits) -> Figure:
    """Four rows of images [n, C, H, W] of grey levels from 0 to 1.

    What is not known has a colour that no pixel has, in print a middle grey.
    """
    spread = torch.where(mask, 0.0, sd).mean(1, keepdim=True)
    return picture_rows(
        [
            (f"seen{between(limits)}", tinted(x, mask), 1.0, {}),
            ("filled in", torch.where(mask, x, mean), 1.0, GREY),
            ("predictive sd", spread, 0.0, {"cmap": "Greys", "vmax": spread.max().item()}),
            ("truth", tinted(x, mask | hidden), 1.0, {}),
        ],
        bar=2,
    )


def tinted(x: Tensor, known: Tensor) -> Tensor:
    """Images [n, C, H, W] of grey levels from 0 to 1 in colour, light blue where they are not known."""
    tint = torch.tensor(to_rgb(UNKNOWN), dtype=x.dtype).view(3, 1, 1)
    return torch.where(known, x, tint)


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


def tile(images: Tensor) -> np.ndarray:
    """Images [rows, columns, C, H, W] as one picture, [rows * H, columns * W] or, in colour, [..., 3]."""
    rows, columns, channels, height, width = images.shape
    picture = images.permute(0, 3, 1, 4, 2).reshape(rows * height, columns * width, channels)
    return array(picture.squeeze(-1))


def array(tensor: Tensor) -> np.ndarray:
    """A tensor as an array that matplotlib can draw."""
    return tensor.detach().cpu().numpy()
