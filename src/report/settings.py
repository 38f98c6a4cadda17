"""Everything that there is: a line for every group of settings, whatever model and dataset."""

from collections import Counter
from collections.abc import Iterable, Sequence

from src.report.records import Run, differing
from src.report.tables import Place, Row, Table, mean_text, named, of_group, short

METRICS = ("rmse", "mae", "nlpd", "accuracy_1nn", "mse_sample", "path_rmse", "seconds_per_epoch")


def settings_table(runs: Sequence[Run]) -> Table:
    """One line for every group of settings, whatever model and dataset: everything that is there."""
    groups: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: (run.dataset, run.model, str(run.active_set).zfill(9))):
        groups.setdefault(run.group, []).append(run)
    metrics = [metric for metric in METRICS if any(metric in run.metrics for run in runs)]
    rows, cells = [], []
    for group in groups.values():
        line = [of_group(Place(group[0].model, group[0].dataset, group[0].active_set, m), group) for m in metrics]
        counts = Counter(run.status for run in group)
        texts = [", ".join(f"{counts[s]} {s}" for s in sorted(counts)), *(mean_text(c) for c in line)]
        rows.append(Row(group_label(group[0], runs), "ours", texts, [""] * len(texts)))
        cells += line
    columns: list[tuple[str, ...]] = [("runs",), *((named("metric", metric),) for metric in metrics)]
    return Table("settings", "All runs by their settings", "Mean ± sd over seeds.", "", columns, rows, [], cells)


def group_label(run: Run, runs: Iterable[Run]) -> str:
    """`Bayesian SAS-GP, MNIST, A = 400, max_epochs = 20`, with what sets it apart from others of model and dataset."""
    size = [] if run.active_set is None else [named("active_set", run.active_set)]
    keys = differing(other for other in runs if (other.model, other.dataset) == (run.model, run.dataset))
    own = [f"{short(key)} = {run.settings[key]}" for key in keys if key in run.settings]
    return ", ".join([named("model", run.model), named("dataset", run.dataset), *size, *own])
