"""Figures of predicted classes: whether probabilities are right, what is mistaken for what, and the worst images."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from src.evaluation.canvas import LARGE, PAGE, PALETTE, SMALL, quiet
from src.evaluation.point_figures import array

if TYPE_CHECKING:
    from src.evaluation.prediction import Bins

FEW = 15  # classes that have room for their counts
COLUMNS = 10  # of wrong images
LONGEST = 12  # letters of a name


def reliability(found: "Bins", confusion: Tensor, names: Sequence[str]) -> Figure:
    """Accuracy by confidence beside the confusion matrix [P, P]."""
    figure = Figure(figsize=(PAGE, 3.3), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(1, 1.15))
    draw_bins(left, found)
    draw_confusion(right, array(confusion), [short(name) for name in names])
    return figure


def draw_bins(axes: Axes, found: "Bins") -> None:
    """The accuracy of each bin of the top probability against the diagonal, and the part of the points in it."""
    quiet(axes)
    width = 1 / len(found.points)
    left = width * np.arange(len(found.points))
    style: dict[str, Any] = {"width": width, "align": "edge", "linewidth": 0.4, "edgecolor": "white"}
    axes.bar(left, array(found.accuracy), color=PALETTE[0], label="accuracy", **style)
    axes.bar(left, array(found.points / found.points.sum()), color=PALETTE[1], label="part of the points", **style)
    filled = array(found.points) > 0
    axes.plot(array(found.confidence)[filled], array(found.accuracy)[filled], ".", color="black", markersize=4)
    axes.plot([0, 1], [0, 1], "--", color="black", linewidth=0.6, label="calibrated")
    error = float(((found.accuracy - found.confidence).abs() * found.points).sum() / found.points.sum())
    axes.set_title(f"calibration error {error:.4f}", fontsize=LARGE)
    axes.set(xlim=(0, 1), ylim=(0, 1.02))
    axes.set_xlabel("probability of the predicted class", fontsize=SMALL)
    axes.set_ylabel("part that is right", fontsize=SMALL)
    axes.legend(fontsize=SMALL, frameon=False, loc="upper left")


def draw_confusion(axes: Axes, counts: np.ndarray, names: Sequence[str]) -> None:
    """Mistakes as shades, per true class; the numbers are test points."""
    quiet(axes)
    mistakes = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    np.fill_diagonal(mistakes, 0.0)
    axes.imshow(mistakes, "Reds", vmin=0, vmax=max(2 * mistakes.max(), 1e-9))
    places = range(len(names))
    if len(names) <= FEW:
        axes.set_xticks(places, names, rotation=90 if max(map(len, names)) > 2 else 0)
        axes.set_yticks(places, names)
        for true, guess in np.ndindex(counts.shape):
            if counts[true, guess]:
                weight = "bold" if true == guess else "normal"
                axes.text(guess, true, str(counts[true, guess]), ha="center", va="center", fontsize=5.5, weight=weight)
    wrong = 1 - np.trace(counts) / counts.sum()
    axes.set_title(f"error rate {100 * wrong:.2f} %", fontsize=LARGE)
    axes.set_xlabel("predicted class", fontsize=SMALL)
    axes.set_ylabel("true class", fontsize=SMALL)


def wrong_images(x: Tensor, p: Tensor, y: Tensor, names: Sequence[str]) -> Figure:
    """Images x [n, C, H, W], from 0 to 1, with the true and the predicted class and its probability, p [n, P]."""
    rows = -(-len(x) // COLUMNS)
    figure = Figure(figsize=(PAGE, 0.25 + 1.0 * rows), layout="constrained")
    figure.suptitle("wrong with the highest probability: true → predicted", fontsize=LARGE)
    top, guess = p.max(-1)
    for i, axes in enumerate(figure.subplots(rows, COLUMNS, squeeze=False).flat):
        axes.set_axis_off()
        if i < len(x):
            axes.imshow(array(x[i].permute(1, 2, 0).squeeze(-1)), "gray", vmin=0, vmax=1)
            names_of_both = f"{short(names[int(y[i])])} → {short(names[int(guess[i])])}"
            axes.set_title(f"{names_of_both}\n{top[i]:.3f}", fontsize=SMALL - 1, pad=2)
    return figure


def short(name: str) -> str:
    """A name that fits; long ones are cut."""
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
