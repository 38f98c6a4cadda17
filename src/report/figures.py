"""The papers' figures from the records of runs, as wide as a column or a page."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from src.evaluation.canvas import (
    COLUMN,
    GREYS,
    LARGE,
    PAGE,
    PALETTE,
    SCREEN,
    SMALL,
    add_legend,
    colour_bar,
    draw_points,
    quiet,
    save,
)
from src.evaluation.task import Arrays
from src.report.curves import curve_figures
from src.report.evidence import Evidence, evidence_of
from src.report.labels import label
from src.report.learning import learning_figures
from src.report.records import Run
from src.runs.identity import Value

# figures of single runs, and the arrays that they need
MAPS = {"latents": "grid_sd", "generation": "generated_views", "views": "view_latents", "paths": "estimated_paths"}
MARKERS = "osD^vPX*<>"
DASHES: list[Any] = ["-", "--", ":", "-.", (0, (5, 1, 1, 1, 1, 1)), (0, (1, 3))]


def draw(runs: Sequence[Run], shown: Sequence[Run], folder: Path) -> list[Path]:
    """Draw every figure that has runs, as PDF and PNG; returns the PNGs. Maps show the runs `shown`."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for name, figure in figures(runs, shown):
        layout = figure.get_layout_engine()
        assert layout is not None
        layout.execute(figure)
        figure.set_layout_engine(None)  # laid out once; saving a figure with an engine draws it twice
        save(figure, folder / f"{name}.pdf")
        save(figure, folder / f"{name}.png", SCREEN)
        paths.append(folder / f"{name}.png")
    return paths


def figures(runs: Sequence[Run], shown: Sequence[Run]) -> Iterator[tuple[str, Figure]]:
    """Names and figures."""
    for dataset in sorted({run.dataset for run in runs}):
        trained = [run for run in runs if run.dataset == dataset and len(run.history) > 1]
        if trained:
            yield f"objective-{dataset}", objectives(trained)
        chosen = [run for run in shown if run.dataset == dataset]
        arrays = {run.model: run.arrays for run in chosen}
        for name, function in zip(MAPS, (latent_maps, generated, view_latents, paths), strict=True):
            available = {model: found for model, found in arrays.items() if MAPS[name] in found}
            for number, alike in enumerate(with_the_same_classes(available), 1):
                yield f"{name}-{dataset}" + (f"-{number}" if number > 1 else ""), function(alike)
    if found := evidence_of(runs):
        yield "evidence", evidence(found)
    yield from curve_figures(runs)
    yield from learning_figures(runs)


def with_the_same_classes(arrays: dict[str, Arrays]) -> list[dict[str, Arrays]]:
    """Models in groups that can share a legend: runs on different files of one's own may have other classes."""
    groups: dict[tuple[str, ...], dict[str, Arrays]] = {}
    for model, found in arrays.items():
        groups.setdefault(class_names(found), {})[model] = found
    return list(groups.values())


def class_names(arrays: Arrays) -> tuple[str, ...]:
    """The names of the classes; empty if they have none."""
    return tuple(arrays["classes"].tolist()) if "classes" in arrays else ()


def objectives(runs: Sequence[Run]) -> Figure:
    """The objective against epoch and time: one row per model, one line per configuration.

    Lines tell active sets (or inducing inputs) by colour and dash, batches by width.
    """
    models = sorted({run.model for run in runs})
    figure = Figure(figsize=(COLUMN, 0.35 + 1.25 * len(models)), layout="constrained")
    panels = figure.subplots(len(models), 2, sharey="row", squeeze=False)
    sizes, batches = distinct(map(size_of, runs)), distinct(map(batch_of, runs))
    for (by_epoch, by_time), model in zip(panels, models, strict=True):
        groups: dict[str, list[Run]] = {}
        for run in runs:
            if run.model == model:
                groups.setdefault(run.group, []).append(run)
        drawn = [draw_objective(by_epoch, by_time, group, sizes, batches) for group in groups.values()]
        frame(by_epoch, by_time, np.concatenate(drawn), label("model", model))
    panels[-1][0].set_xlabel("epoch", fontsize=SMALL)
    panels[-1][1].set_xlabel("seconds of training", fontsize=SMALL)
    letter = "A or M" if any(run.active_set is None and size_of(run) is not None for run in runs) else "A"
    keys = [Line2D([], [], label=f"{letter} = {size}", **line_style(size, sizes)) for size in sizes]
    if len(batches) > 1:
        widths = {f"batches of {batch}": line_width(batch, batches) for batch in batches}
        keys += [Line2D([], [], color="grey", linewidth=width, label=name) for name, width in widths.items()]
    if keys:
        add_legend(figure, keys)
    return figure


def size_of(run: Run) -> Value:
    """A, or M of a model without an active set; None if it has neither."""
    return run.settings.get("model.num_inducing") if run.active_set is None else run.active_set


def batch_of(run: Run) -> Value:
    """The number of points per batch, or `full`."""
    return run.settings.get("dataset.batch_size")


def distinct(values: Iterable[Value]) -> list[Value]:
    """What there is, once each, numbers first."""
    return sorted({value for value in values if value is not None}, key=str_order)


def str_order(size: Value) -> tuple[bool, Any]:
    """Numbers by value, then words."""
    return isinstance(size, str), size


def draw_objective(
    by_epoch: Axes, by_time: Axes, group: Sequence[Run], sizes: Sequence[Value], batches: Sequence[Value]
) -> np.ndarray:
    """Draw the mean over seeds with a band of one sd, up to the last epoch that all of them have; returns the mean."""
    length = min(len(run.history) for run in group)
    values = -np.array([[row["loss"] for row in run.history[:length]] for run in group])
    seconds = np.cumsum([[row["seconds"] for row in run.history[:length]] for run in group], 1).mean(0)
    mean, sd = values.mean(0), values.std(0, ddof=1) if len(group) > 1 else 0.0
    style = line_style(size_of(group[0]), sizes) | {"linewidth": line_width(batch_of(group[0]), batches)}
    for axes, across in ((by_epoch, np.arange(1, length + 1)), (by_time, seconds)):
        axes.plot(across, mean, **style)
        if len(group) > 1:
            axes.fill_between(across, mean - sd, mean + sd, color=style["color"], alpha=0.2, linewidth=0)
    return mean


def line_style(size: Value, sizes: Sequence[Value]) -> dict[str, Any]:
    """One colour and dash per size, so that no reader depends on colour; black without a size."""
    i = sizes.index(size) if size in sizes else None
    colour = "black" if i is None else PALETTE[i % len(PALETTE)]
    return {"color": colour, "linestyle": DASHES[(i or 0) % len(DASHES)], "linewidth": 0.9}


def line_width(batch: Value, batches: Sequence[Value]) -> float:
    """Larger batches have wider lines."""
    return 0.9 * 2 ** (batches.index(batch) if batch in batches else 0)


def frame(by_epoch: Axes, by_time: Axes, values: np.ndarray, title: str) -> None:
    """Titles, few ticks, and limits that a bad first epoch does not stretch."""
    values = values[np.isfinite(values)]
    for axes in (by_epoch, by_time):
        quiet(axes)
        axes.grid(linewidth=0.3, color="#dddddd")
        axes.set_axisbelow(True)
    by_epoch.set_title(title, fontsize=SMALL, loc="left", pad=3)
    by_epoch.set_ylabel("objective", fontsize=SMALL)
    by_epoch.xaxis.set_major_locator(MaxNLocator(4, integer=True))
    if len(values):
        low, high = np.quantile(values, 0.05), values.max()
        space = 0.08 * ((high - low) or abs(high) or 1.0)
        by_epoch.set_ylim(low - space, high + space)


def latent_maps(arrays: dict[str, Arrays]) -> Figure:
    """Test data in the latent planes of several models side by side, on the predictive sd."""
    columns = min(5, len(arrays))
    rows = -(-len(arrays) // columns)
    width = COLUMN if columns <= 2 else PAGE
    figure = Figure(figsize=(width, 0.3 + rows * (width / columns + 0.1)), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, (model, found) in zip(panels, arrays.items(), strict=False):
        draw_latents(figure, axes, found, legend=figure.legends == [])
        axes.set_title(label("model", model), fontsize=LARGE, pad=3)
    for axes in panels[len(arrays) :]:
        axes.set_axis_off()
    return figure


def draw_latents(figure: Figure, axes: Axes, arrays: Arrays, legend: bool) -> None:
    """One latent plane."""
    quiet(axes)
    left, right, bottom, top = [*arrays["grid_across"][[0, -1]], *arrays["grid_up"][[0, -1]]]
    style: dict[str, Any] = {"aspect": "auto", "interpolation": "bilinear", "origin": "lower"}
    axes.imshow(arrays["grid_sd"], GREYS, extent=(left, right, bottom, top), **style)
    labels = arrays.get("labels", np.zeros(len(arrays["z"])))
    across, up = arrays["z"].T
    names = class_names(arrays)
    classes = np.arange(len(names)) if names else np.unique(labels)
    draw_points(figure if legend else Figure(), axes, across, up, labels, classes, names)
    axes.set_xlabel("z₁", fontsize=SMALL, labelpad=1)
    axes.set_ylabel("z₂", fontsize=SMALL, labelpad=0)


def generated(arrays: dict[str, Arrays]) -> Figure:
    """Unseen test views, and what each model generates from their object and angle alone."""
    first = next(iter(arrays.values()))
    rows = [("test image", first["views"])]
    rows += [(label("model", model), found["generated_views"]) for model, found in arrays.items()]
    return image_rows(rows)


def image_rows(rows: Sequence[tuple[str, np.ndarray]]) -> Figure:
    """Rows of images [n, 1, H, W] in [0, 1], as wide as a column."""
    n = len(rows[0][1])
    size = (COLUMN - 0.75) / n
    figure = Figure(figsize=(COLUMN, 0.1 + 1.12 * size * len(rows)), layout="constrained")
    for axes, (name, images) in zip(figure.subplots(len(rows), squeeze=False).flat, rows, strict=True):
        axes.imshow(np.concatenate(list(images[:, 0]), 1), "gray", vmin=0, vmax=1)
        axes.set(xticks=[], yticks=[], frame_on=False)
        axes.set_ylabel(name, fontsize=SMALL, rotation=0, ha="right", va="center")
    return figure


def view_latents(arrays: dict[str, Arrays]) -> Figure:
    """Principal components of training latents, coloured by angle, and by class if there are at most ten."""
    panels = [(model, "angle", found) for model, found in arrays.items()]
    few = {model: found for model, found in arrays.items() if len(np.unique(found["view_labels"])) <= len(PALETTE)}
    panels += [(model, "class", found) for model, found in few.items()]
    rows = -(-len(panels) // 2)
    figure = Figure(figsize=(COLUMN, 0.6 + 1.6 * rows), layout="constrained")
    every = list(figure.subplots(rows, 2, squeeze=False).flat)
    for axes, (model, by, found) in zip(every, panels, strict=False):
        across, up = found["view_latents"].T
        if by == "angle":
            degrees = np.degrees(found["view_angles"])
            style: dict[str, Any] = {"cmap": "twilight", "vmin": 0, "vmax": 360, "s": 3, "linewidths": 0}
            turns = axes.scatter(across, up, c=degrees, rasterized=True, **style)
        else:
            labels = found["view_labels"]
            draw_points(figure if figure.legends == [] else Figure(), axes, across, up, labels, np.unique(labels))
        axes.set(xticks=[], yticks=[])
        axes.set_title(f"{label('model', model)}, by {by}", fontsize=SMALL, pad=2)
    for axes in every[len(panels) :]:
        axes.set_axis_off()
    colour_bar(figure, turns, "angle in degrees", ax=every, location="bottom", shrink=0.5)
    return figure


def paths(arrays: dict[str, Arrays]) -> Figure:
    """True paths and those of each model's latent means: one row per model, one column per video."""
    videos = min(5, *(len(found["paths"]) for found in arrays.values()), 5)
    size = (COLUMN - 0.3) / videos
    figure = Figure(figsize=(COLUMN, 0.35 + (size + 0.12) * len(arrays)), layout="constrained")
    panels = figure.subplots(len(arrays), videos, squeeze=False, sharex="col", sharey="col")
    for line, (model, found) in zip(panels, arrays.items(), strict=True):
        for axes, true, estimated in zip(line, found["paths"], found["estimated_paths"], strict=False):
            axes.plot(*true.T, color=PALETTE[0], linewidth=0.9)
            axes.plot(*estimated.T, color=PALETTE[5], linewidth=0.9, linestyle="--")
            axes.set(xticks=[], yticks=[], aspect="equal")
            for spine in axes.spines.values():
                spine.set(linewidth=0.4, color="#bbbbbb")
        line[0].set_ylabel(label("model", model), fontsize=SMALL)
    first, second = panels[0][0].get_lines()
    first.set_label("true path")
    second.set_label("latent means, after one affine map")
    add_legend(figure, [first, second])
    return figure


def evidence(found: Sequence[Evidence]) -> Figure:
    """The SAS estimate against the exact log marginal likelihood of the same points, and the difference by N."""
    sizes = sorted({e.run.active_set for e in found}, key=str_order)
    figure = Figure(figsize=(COLUMN, 2.0), layout="constrained")
    against, by_number = figure.subplots(1, 2)
    for i, size in enumerate(sizes):
        values = [(e.points, e.exact, e.estimate) for e in found if e.run.active_set == size]
        number, exact, estimate = np.array(values).T
        style: dict[str, Any] = {"color": PALETTE[i % len(PALETTE)], "marker": MARKERS[i % len(MARKERS)], "s": 12}
        against.scatter(exact, estimate, label=label("active_set", size), **style)
        by_number.scatter(number, estimate - exact, **style)
    quiet(against)
    against.locator_params("x", nbins=3)
    quiet(by_number)
    against.axline((found[0].exact,) * 2, slope=1, color="black", linewidth=0.5, zorder=0)
    against.set_xlabel("exact log marginal likelihood", fontsize=SMALL)
    against.set_ylabel("SAS estimate", fontsize=SMALL)
    by_number.axhline(0, color="black", linewidth=0.5, zorder=0)
    by_number.set_xscale("log")
    by_number.set_xlabel("points N", fontsize=SMALL)
    by_number.set_ylabel("estimate minus exact", fontsize=SMALL)
    add_legend(figure, against.get_legend_handles_labels()[0])
    return figure
