"""Scores of hidden values: the models by dataset and by what was hidden, beside the baselines."""

from collections.abc import Sequence

from src.evaluation import registry
from src.report.cells import Cell, ours_at, ours_text
from src.report.labels import label, metric_of
from src.report.records import Run
from src.report.tables import Row, Table
from src.runs.published import Place

HIDDEN = ("dataset.missing.fraction", "dataset.missing.kind", "dataset.missing.split", "dataset.test_missing")
NOTE = "Mean ± sd over seeds; the number of runs in brackets. Only hidden values are scored."
SCORE, BASELINES = "imputation_", ("mean_", "nearest_")


def imputation_table(runs: Sequence[Run]) -> Table | None:
    """One line per score and model, then the baselines of the score; None if no run has hidden values."""
    scored = [run for run in runs if any(name.startswith(SCORE) for name in run.metrics)]
    if not scored:
        return None
    columns = distinct(scored, ("dataset", *HIDDEN))
    lines = [
        line for metric in registry.metrics() if metric.startswith(SCORE) for line in lines_of(metric, columns, scored)
    ]
    cells = [cell for _, line in lines for cell in line]
    remarks = list(dict.fromkeys(text for cell in cells for text in cell.remarks))
    rows = [Row(name, "ours", [marked(cell, remarks) for cell in line], [""] * len(line)) for name, line in lines]
    heads: list[tuple[str, ...]] = [(label("dataset", at["dataset"]), hiding(at)) for at in columns]
    return Table("imputation", "Hidden values of the test data, filled in", NOTE, "", heads, rows, remarks, cells)


def lines_of(metric: str, columns: Sequence[Place], runs: Sequence[Run]) -> list[tuple[str, list[Cell]]]:
    """The label and the cells of each model and of each baseline that has this score."""
    models = distinct([run for run in runs if metric in run.metrics], ("model", "active_set"))
    lines = [(model_label(metric, model), [of_model(model, at, metric, runs) for at in columns]) for model in models]
    for baseline in (f"{start}{metric}" for start in BASELINES):
        if any(baseline in run.metrics for run in runs):
            lines.append((metric_of(baseline).label, [of_baseline(at, baseline, runs) for at in columns]))
    return lines


def marked(cell: Cell, remarks: Sequence[str]) -> str:
    """The text of a cell with the numbers of its remarks; nothing if no run belongs to it."""
    return ours_text(cell) + "".join(f" [{remarks.index(text) + 1}]" for text in cell.remarks) if cell.is_filled else ""


def distinct(runs: Sequence[Run], levels: Sequence[str]) -> list[Place]:
    """The different values that runs have at some levels, sorted by their texts; numbers by their value."""
    found = {str(at): at for at in ({level: run.levels.get(level) for level in levels} for run in runs)}
    return sorted(found.values(), key=lambda at: [str(value).zfill(9) for value in at.values()])


def of_model(model: Place, at: Place, metric: str, runs: Sequence[Run]) -> Cell:
    """The runs of a model on data with these hidden values."""
    place = {**model, **at, "metric": metric}
    ours = [run for run in runs if metric in run.metrics and all(run.levels.get(k) == place[k] for k in (*model, *at))]
    return ours_at(place, ours)


def of_baseline(at: Place, metric: str, runs: Sequence[Run]) -> Cell:
    """A baseline is the same for all models: one value per seed."""
    own = [run for run in runs if metric in run.metrics and all(run.levels.get(key) == at[key] for key in at)]
    by_seed = {run.seed: run for run in own}
    kept = tuple(by_seed[seed] for seed in sorted(by_seed))
    return Cell({**at, "metric": metric}, tuple(run.metrics[metric] for run in kept), runs=kept)


def model_label(metric: str, model: Place) -> str:
    """`RMSE of hidden values, SAS-GP, A = 400`."""
    known = [label(key, value) for key, value in model.items() if value is not None]
    return ", ".join([metric_of(metric).label, *known])


def hiding(levels: Place) -> str:
    """What was hidden: `50 % hidden at random`; nothing if the settings do not say."""
    fraction, kind, split, columns = (levels.get(key) for key in HIDDEN)
    named = f"{columns} hidden".replace("_", " ") if columns else ""
    if fraction is None or split == "train":
        return named
    where = "in a block" if kind == "block" else "at random"
    also = ", in training too" if split == "both" else ""
    return ", ".join(filter(None, [named, f"{100 * float(fraction):.3g} % hidden {where}{also}"]))
