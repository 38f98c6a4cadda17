"""Scores of predictions through the training, by epoch and by time."""

from collections.abc import Iterator, Sequence
from textwrap import fill

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, ScalarFormatter

from src.evaluation.canvas import COLUMN, LINE, SMALL, add_legend
from src.evaluation.prediction import Prediction
from src.report.curves import framed, style_of, trace_of
from src.report.labels import label, metric_of
from src.report.records import Run
from src.report.settings import kinds_of

LEGEND = 55  # characters that fit below the figure


def learning_figures(runs: Sequence[Run]) -> Iterator[tuple[str, Figure]]:
    """One figure per dataset that has runs whose predictions were watched (`evaluation.watch_every`)."""
    for dataset in sorted({run.dataset for run in runs}):
        watched = [run for run in runs if run.dataset == dataset and scores_of([run])]
        if watched:
            yield f"learning-{dataset}", learning(watched)


def scores_of(runs: Sequence[Run]) -> list[str]:
    """The scores of predictions that some of the runs were watched for, at two epochs or more."""
    return [name for name in Prediction.watched if any(len(trace_of(run, name)) > 1 for run in runs)]


def learning(runs: Sequence[Run]) -> Figure:
    """One row per score, one line per configuration: the mean over seeds."""
    scores, kinds = scores_of(runs), kinds_of(runs)
    figure = Figure(figsize=(COLUMN, 0.5 + 1.4 * len(scores)), layout="constrained")
    panels = figure.subplots(len(scores), 2, squeeze=False, sharex="col", sharey="row")
    groups = {group: [run for run in runs if run.group == group] for group in kinds}
    handles = []
    for i, (group, same) in enumerate(sorted(groups.items(), key=lambda item: (item[1][0].model, kinds[item[0]]))):
        name = fill(", ".join(filter(None, [label("model", same[0].model), kinds[group][1]])), LEGEND)
        for (by_epoch, by_time), score in zip(panels, scores, strict=True):
            epochs, seconds, values = mean_trace(same, score)
            (line,) = by_epoch.plot(epochs, values, label=name, **style_of(i))
            by_time.plot(seconds, values, **style_of(i))
        handles.append(line)
    for (by_epoch, by_time), score in zip(panels, scores, strict=True):
        framed(by_epoch, "", metric_of(score).label)
        framed(by_time, "", "")
        by_epoch.set_yscale("log")
        by_epoch.yaxis.set_major_formatter(ScalarFormatter())
        by_epoch.yaxis.set_minor_formatter(ScalarFormatter())
        by_epoch.tick_params(which="minor", labelsize=SMALL - 1.5)
    panels[-1][0].set_xlabel("epoch", fontsize=SMALL)
    panels[-1][0].xaxis.set_major_locator(MaxNLocator(4, integer=True))
    panels[-1][1].set_xlabel("seconds of training", fontsize=SMALL)
    wrapped = sum(handle.get_label().count("\n") for handle in handles)
    figure.set_figheight(figure.get_figheight() + LINE * wrapped)
    add_legend(figure, handles)
    return figure


def mean_trace(runs: Sequence[Run], score: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Epochs, seconds of training until then, and the score, over the epochs that all of the runs have."""
    traces = [trace_of(run, score) for run in runs]
    shortest = min(traces, key=len)
    epochs = shortest[:, 0].astype(int)
    seconds = np.mean([np.cumsum([row["seconds"] for row in run.history])[epochs - 1] for run in runs], 0)
    return epochs, seconds, np.mean([trace[: len(shortest), 1] for trace in traces], 0)
