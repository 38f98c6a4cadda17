"""Scores and times by a setting, such as the number of inducing points, and what was watched through the training."""

from collections.abc import Iterator, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from src.evaluation.canvas import COLUMN, PALETTE, SMALL, add_legend, quiet
from src.evaluation.registry import WATCHED
from src.report.labels import label, metric_of, short
from src.report.records import Run
from src.runs.identity import Value

MARKERS = "osD^vP"
SECONDS = "seconds_per_epoch"
TIME_LABEL = "s per epoch"
MAX_PANELS = 9  # of the KL divergences
TRACES = {  # columns of the history that have a figure of one line per run
    "noise_share": "noise / variance of data",
    "kernel_variance": "kernel variance",
    "lengthscale": "length scale",
    "active_dims": "dimensions in use",
    "bias": "bias of mini-batches",
}


class Curve(NamedTuple):
    """A score against a setting, in runs that differ in nothing else but their seed."""

    name: str
    dataset: str
    setting: str
    metric: str
    across: str  # what the axis of the setting says
    exact: str | None = None  # the model whose score is a line across
    log: bool = False  # whether the axis of the setting is logarithmic


CURVES = (
    Curve("inducing_points", "rotated_mnist", "model.num_inducing", "mse_sample", "inducing points m", log=True),
    Curve("batch_sizes", "rotated_mnist", "dataset.batch_size", "mse_sample", "batch size b", log=True),
    Curve("kernel_rank", "rotated_mnist", "model.aux.object_dim", "mse_sample", "length of object vectors", log=True),
    Curve("rotated_digits", "rotated_mnist", "dataset.digits", "mse_sample", "digits of 4,050 views"),
    Curve("ball_inducing", "moving_ball", "model.num_inducing", "path_rmse", "inducing times m", "gp_vae"),
    Curve("autogp_inducing", "mnist", "model.num_inducing", "error_rate", "inducing points M", log=True),
    Curve("autogp_inducing_nlp", "mnist", "model.num_inducing", "target_nlp", "inducing points M", log=True),
)
TRADED = ("inducing_points", "kernel_rank")  # curves that a figure of error against time compares


class Point(NamedTuple):
    """The runs with one value of the setting: means, and the sd of the score if there are several."""

    at: float
    score: float
    sd: float
    seconds: float


class Line(NamedTuple):
    """The points of one model with one configuration, by the setting."""

    model: str
    settings: dict[str, Value]  # apart from the one across
    points: list[Point]


def curve_figures(runs: Sequence[Run]) -> Iterator[tuple[str, Figure]]:
    """Every curve that some runs make, the trade of error for time, and what was watched."""
    found = {curve.name: lines_of(curve, runs) for curve in CURVES}
    for curve in CURVES:
        if found[curve.name]:
            yield curve.name, by_setting(curve, found[curve.name], runs)
    if traded := [line for name in TRADED for line in found[name]]:
        yield "error_against_time", error_against_time(traded)
    yield from traces(runs)


def lines_of(curve: Curve, runs: Sequence[Run]) -> list[Line]:
    """The runs of a curve, grouped by what else they are; a line has at least two values of the setting."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        if run.dataset == curve.dataset and curve.metric in run.metrics and curve.setting in run.levels:
            groups.setdefault(str((run.model, rest_of(run, curve.setting))), []).append(run)
    lines = [line_of(curve, groups[key]) for key in sorted(groups)]
    return [line for line in lines if len(line.points) > 1]


def rest_of(run: Run, setting: str) -> dict[str, Value]:
    """The settings of a run apart from one, and from how it was watched."""
    return {k: v for k, v in sorted(run.settings.items()) if k not in (setting, "evaluation.watch_every")}


def line_of(curve: Curve, group: Sequence[Run]) -> Line:
    """One point per value of the setting."""
    values: dict[float, list[Run]] = {}
    for run in group:
        values.setdefault(number_of(run.levels[curve.setting]), []).append(run)
    points = [point_of(at, curve.metric, values[at]) for at in sorted(values)]
    return Line(group[0].model, rest_of(group[0], curve.setting), points)


def number_of(value: Value) -> float:
    """A number itself; of a list, how many entries it has."""
    return value if isinstance(value, int | float) else str(value).count(",") + 1


def point_of(at: float, metric: str, runs: Sequence[Run]) -> Point:
    """Means and spread over seeds."""
    scores, seconds = ([run.metrics[name] for run in runs if name in run.metrics] for name in (metric, SECONDS))
    return Point(at, mean(scores), stdev(scores) if len(scores) > 1 else 0.0, mean(seconds) if seconds else np.nan)


def by_setting(curve: Curve, lines: Sequence[Line], runs: Sequence[Run]) -> Figure:
    """The score and the seconds per epoch against the setting, one line per configuration."""
    figure = Figure(figsize=(COLUMN, 1.75), layout="constrained")
    score, time = figure.subplots(1, 2)
    handles = []
    for i, line in enumerate(lines):
        at, mean_score, sd, seconds = np.array(line.points).T
        style = style_of(i)
        handles.append(score.errorbar(at, mean_score, sd, capsize=2, label=name_of(line, lines), **style))
        time.plot(at, seconds, **style)
    if exact := exact_score(curve, lines[0], runs):
        name = label("model", curve.exact)
        handles.append(score.axhline(exact, color="black", linewidth=0.8, linestyle="--", label=name))
    for axes, text in ((score, metric_of(curve.metric).label), (time, TIME_LABEL)):
        framed(axes, curve.across, text)
        ticks = [point.at for point in lines[0].points]
        if curve.log:
            axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks], fontsize=SMALL - 1.5)
    time.set_ylim(bottom=0)
    add_legend(figure, handles)
    return figure


def name_of(line: Line, lines: Sequence[Line]) -> str:
    """The model, and the settings that tell the line apart from others of the same model."""
    others = [other.settings for other in lines if other.model == line.model]
    keys = [key for key in line.settings if len({str(settings.get(key)) for settings in others}) > 1]
    return ", ".join([label("model", line.model), *(label(key, line.settings[key]) for key in keys)])


def exact_score(curve: Curve, like: Line, runs: Sequence[Run]) -> float | None:
    """The mean score of the exact model, of runs that are trained like those of a line."""
    trained = [key for key in like.settings if key.startswith(("model.optimizer", "trainer", "dataset"))]
    scores = [
        run.metrics[curve.metric]
        for run in runs
        if (run.model, run.dataset) == (curve.exact, curve.dataset)
        and curve.metric in run.metrics
        and all(run.settings.get(key) == like.settings[key] for key in trained)
    ]
    return mean(scores) if scores else None


def error_against_time(lines: Sequence[Line]) -> Figure:
    """The score against the seconds per epoch: each point is a value of the setting."""
    figure = Figure(figsize=(COLUMN, 2.0), layout="constrained")
    axes = figure.subplots()
    for i, line in enumerate(lines):
        at, score, _, seconds = np.array(line.points).T
        axes.plot(seconds, score, label=label("model", line.model), **style_of(i))
        for text, across, up in zip(at, seconds, score, strict=True):
            axes.annotate(f"{text:g}", (across, up), xytext=(2, 2), textcoords="offset points", fontsize=SMALL)
    axes.margins(0.1)  # for the numbers beside the last points
    framed(axes, TIME_LABEL, metric_of("mse_sample").label)
    add_legend(figure, axes.get_lines())
    return figure


def traces(runs: Sequence[Run]) -> Iterator[tuple[str, Figure]]:
    """What models told about themselves over the training: hyperparameters, dimensions in use, inducing times."""
    for dataset in sorted({run.dataset for run in runs}):
        own = [run for run in runs if run.dataset == dataset and run.history]
        for name, text in TRACES.items():
            if watched := [run for run in own if len(trace_of(run, name)) > 1]:
                yield f"{name}-{dataset}", trace_figure(watched, name, text)
        if watched := [run for run in own if len(trace_of(run, "inducing_0")) > 1]:
            yield f"inducing_times-{dataset}", inducing_times(watched)
        if watched := first_of_each_kind([run for run in own if len(trace_of(run, "kl_1")) > 1]):
            yield f"dimensions-{dataset}", divergences(watched)


def trace_of(run: Run, name: str) -> np.ndarray:
    """Pairs of epoch and value [n, 2] of the epochs that were watched."""
    found = [(epoch, row.get(WATCHED + name, np.nan)) for epoch, row in enumerate(run.history, 1)]
    return np.array([pair for pair in found if np.isfinite(pair[1])]).reshape(-1, 2)


def trace_figure(runs: Sequence[Run], name: str, text: str) -> Figure:
    """One line per run, one colour per number of inducing points."""
    figure = Figure(figsize=(COLUMN, 2.0), layout="constrained")
    axes = figure.subplots()
    kinds = sorted({kind_of(run) for run in runs})
    for run in runs:
        colour = PALETTE[kinds.index(kind_of(run)) % len(PALETTE)]
        axes.plot(*trace_of(run, name).T, color=colour, linewidth=0.9)
    framed(axes, "epoch", text)
    handles = [Line2D([], [], color=PALETTE[i % len(PALETTE)], label=kind_label(kind)) for i, kind in enumerate(kinds)]
    add_legend(figure, handles)
    return figure


def kind_of(run: Run) -> tuple[str, int]:
    """The model of a run and its number of inducing points, 0 if it has none."""
    return run.model, int(run.settings.get("model.num_inducing") or 0)


def kind_label(kind: tuple[str, int]) -> str:
    """`SVGP-VAE, m = 15`."""
    model, size = kind
    return label("model", model) + (f", m = {size}" if size else "")


def first_of_each_kind(runs: Sequence[Run]) -> list[Run]:
    """One run per model and number of inducing points, the lowest seed; few enough for a panel each."""
    first = {kind_of(run): run for run in sorted(runs, key=lambda run: -run.seed)}
    return [first[kind] for kind in sorted(first)][:MAX_PANELS]


def divergences(runs: Sequence[Run]) -> Figure:
    """The KL divergence of each latent dimension over the training, one panel per run: an unused one falls to 0."""
    figure, panels = panels_of(len(runs))
    for axes, run in zip(panels, runs, strict=True):
        numbers = range(1, 1 + sum(name.startswith(f"{WATCHED}kl_") for name in run.history[0]))
        for number in numbers:
            colour = PALETTE[(number - 1) % len(PALETTE)]
            axes.plot(*trace_of(run, f"kl_{number}").T, color=colour, linewidth=0.8)
        axes.set_title(f"{kind_label(kind_of(run))}, Q = {len(numbers)}", fontsize=SMALL, pad=2)
    figure.supxlabel("epoch", fontsize=SMALL)
    figure.supylabel("KL per point, nats", fontsize=SMALL)
    return figure


def panels_of(count: int) -> tuple[Figure, list[Axes]]:
    """A figure with so many panels on common axes, three to a row."""
    columns = min(3, count)
    rows = -(-count // columns)
    figure = Figure(figsize=(COLUMN, 0.3 + 1.2 * rows), layout="constrained")
    panels = list(figure.subplots(rows, columns, squeeze=False, sharex=True, sharey=True).flat)
    for axes in panels[count:]:
        axes.set_axis_off()
    for axes in panels[:count]:
        quiet(axes)
    return figure, panels[:count]


def inducing_times(runs: Sequence[Run]) -> Figure:
    """The inducing times of each run over the training, one panel per run."""
    figure, panels = panels_of(len(runs))
    for axes, run in zip(panels, runs, strict=True):
        for number in range(kind_of(run)[1]):
            axes.plot(*trace_of(run, f"inducing_{number}").T, color=PALETTE[0], linewidth=0.6)
        start = run.settings.get("model.aux.start")
        title = f"m = {kind_of(run)[1]}" if start is None else f"{short('model.aux.start')} {start}"
        axes.set_title(title, fontsize=SMALL, pad=2)
    figure.supxlabel("epoch", fontsize=SMALL)
    figure.supylabel("inducing times", fontsize=SMALL)
    return figure


def style_of(i: int) -> dict[str, Any]:
    """Colour and marker of the i-th line."""
    colour, marker = PALETTE[i % len(PALETTE)], MARKERS[i % len(MARKERS)]
    return {"color": colour, "marker": marker, "markersize": 3, "linewidth": 0.9}


def framed(axes: Axes, across: str, up: str) -> None:
    """Labels, a light grid and few ticks."""
    quiet(axes)
    axes.grid(linewidth=0.3, color="#dddddd")
    axes.set_axisbelow(True)
    axes.set_xlabel(across, fontsize=SMALL)
    axes.set_ylabel(up, fontsize=SMALL)
    axes.yaxis.set_major_locator(MaxNLocator(5))
