"""The style of all figures: sizes, colours, axes, legends, and how files are saved. Does not import torch."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from src.runs.files import whole

logging.getLogger("fontTools").setLevel(logging.WARNING)  # it tells of every font in a PDF

COLUMN, PAGE = 3.3, 7.0  # widths, in inches
SMALL, LARGE = 7, 8  # font sizes, in points
SCREEN, PRINT = 150, 300  # dots per inch
LINE = 0.14  # height of a line of small text, in inches
# Okabe & Ito's eight colours, then Tol's wine and indigo: distinct from each other and from grey for all readers
PALETTE = ["#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#000000", "#882255", "#332288"]
MARKERS = "o^sD"  # of the first ten classes, the next ten, ...
UNKNOWN = "#7fb2e5"  # of pixels that are not known: in print a middle grey
GREYS = LinearSegmentedColormap.from_list("quiet", ["#ffffff", "#a0a0a0"])


def heights(labels: np.ndarray, classes: np.ndarray) -> np.ndarray:
    """Heights between -0.5 and 0.5 for points of a one-dimensional space: one row per class, random within the row."""
    jitter = np.random.default_rng(0).uniform(0.1, 0.9, len(labels))
    if len(classes) > len(PALETTE):
        return jitter - 0.5
    return (np.searchsorted(classes, labels) + jitter) / len(classes) - 0.5


def draw_points(
    figure: Figure,
    axes: Axes,
    across: np.ndarray,
    up: np.ndarray,
    labels: np.ndarray,
    classes: np.ndarray,
    names: Sequence[str] = (),
) -> None:
    """Points with one colour per class and a legend or, for many classes, a colour map and its bar.

    Up to 10 classes have a legend, and up to 40 that have names: every ten share a marker.
    """
    colours = len(PALETTE)
    size = np.clip(
        4000 / len(labels), 4 if len(classes) <= colours else 9, 12
    )  # few points are larger, and so are markers
    style: dict[str, Any] = {"s": size, "alpha": 0.7, "linewidths": 0, "rasterized": True}
    if len(classes) > colours * (len(MARKERS) if names else 1):
        points = axes.scatter(across, up, c=labels, cmap="viridis", **style)
        colour_bar(figure, points, "label", ax=axes, location="bottom")
        return
    place = np.searchsorted(classes, labels)
    for i in range(-(-len(classes) // colours)):
        ten = place // colours == i
        axes.scatter(across[ten], up[ten], c=np.array(PALETTE)[place[ten] % colours], marker=MARKERS[i], **style)
    if len(classes) > 1:
        add_legend(figure, [class_mark(i, name) for i, name in enumerate(names or [f"{c:g}" for c in classes])])


def class_mark(place: int, name: str) -> Line2D:
    """The entry of a class in a legend."""
    colour, marker = PALETTE[place % len(PALETTE)], MARKERS[place // len(PALETTE)]
    return Line2D([], [], color=colour, label=name, marker=marker, linestyle="", markersize=3)


def save(figure: Figure, path: Path, dpi: int = PRINT) -> None:
    """Write a figure in the format of the path's suffix; an interrupted write leaves no file."""
    with whole(path) as unfinished, matplotlib.rc_context({"pdf.fonttype": 42}):  # fonts that journals accept
        figure.savefig(unfinished, dpi=dpi)


def quiet(axes: Axes) -> None:
    """Few ticks, small labels, thin lines."""
    axes.tick_params(labelsize=SMALL, width=0.5, length=2)
    axes.locator_params(nbins=4)
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)


def colour_bar(figure: Figure, shown: ScalarMappable, label: str, **where: Any) -> None:
    """A thin labelled colour bar."""
    bar = figure.colorbar(shown, pad=0.02, aspect=30, **where)
    bar.set_label(label, fontsize=SMALL)
    quiet(bar.ax)
    bar.outline.set_linewidth(0.5)


def add_legend(figure: Figure, handles: list[Any]) -> None:
    """A legend below the figure, in one row if the names are short; each further row makes the figure taller."""
    lengths = [len(handle.get_label()) for handle in handles]
    fitting = int(figure.get_figwidth() / (0.3 + 0.05 * max(lengths)))  # inches: a mark, and the letters of a name
    columns = len(handles) if sum(lengths) <= 20 else max(1, min(5, fitting))
    figure.set_figheight(figure.get_figheight() + LINE * (-(-len(handles) // columns) - 1))
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=columns,
        fontsize=SMALL,
        frameon=False,
        handlelength=1,
        handletextpad=0.2,
        columnspacing=0.8,
    )
