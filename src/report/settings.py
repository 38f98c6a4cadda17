"""The table of all runs: one line per configuration, whatever its model and dataset."""

from collections import Counter
from collections.abc import Iterable, Sequence

from src.evaluation import registry
from src.report import significance
from src.report.cells import mean_text, of_group
from src.report.labels import label, order
from src.report.records import Run, differing
from src.report.tables import Row, Table
from src.runs.identity import Value
from src.runs.published import Place

# The evidence and the medians of hidden values are in tables of their own. Objectives and bounds are of different kinds
# (bits, reals), so they have no column for all models: see the curves, and the metrics of each run.
ELSEWHERE = (
    *("exact_evidence", "sas_estimate", "objective", "bound_train", "bound_test"),
    *("refined_bound_train", "refined_bound_test"),
    *(f"imputation_{score}_median" for score in ("rmse", "mae", "nlpd", "nlp")),
)

TITLE = "All runs by their settings"


def overview_metrics(runs: Iterable[Run]) -> list[str]:
    """The metrics of the overview that some run has: those of tasks that can be better or worse, without variants."""
    present = {name for run in runs for name in run.metrics}
    known = registry.metrics().items()
    return [name for name, m in known if m.better != "neither" and name not in ELSEWHERE and name in present]


def settings_table(runs: Sequence[Run], marked: bool = False) -> Table:
    """One line per configuration; `marked`: the best values in bold."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    apart, datasets = settings_apart(runs), {run.dataset for run in runs}
    places = [(place_of(group[0], apart[group[0].model, group[0].dataset]), group) for group in groups.values()]
    places.sort(key=lambda item: order_of(item[0]))
    metrics = overview_metrics(runs)
    cells = [of_group({**place, "metric": metric}, group) for place, group in places for metric in metrics]
    verdicts, marks = significance.marked(cells) if marked else ([""] * len(cells), [""] * len(cells))
    texts = [mean_text(cell) + mark for cell, mark in zip(cells, marks, strict=True)]
    rows = []
    for i, (place, group) in enumerate(places):
        own = slice(i * len(metrics), (i + 1) * len(metrics))
        named = {key: place[key] for key in place if key != "dataset" or not marked or len(datasets) > 1}
        name = ", ".join(label(*item) for item in named.items())
        rows.append(Row(name, "ours", [counts_of(group), *texts[own]], ["", *verdicts[own]]))
    columns: list[tuple[str, ...]] = [("runs",), *((label("metric", metric),) for metric in metrics)]
    title = ", ".join(label("dataset", dataset) for dataset in sorted(datasets)) if marked else TITLE
    note = " ".join(filter(None, ["Mean ± sd over seeds.", significance.note(verdicts, marks)]))
    return Table("settings", title, note, "", columns, rows, [], cells)


def counts_of(group: Sequence[Run]) -> str:
    """`2 done, 1 failed`."""
    counts = Counter(run.status for run in group)
    return ", ".join(f"{counts[status]} {status}" for status in sorted(counts))


def order_of(place: Place) -> list[str]:
    """Sort key by dataset, model and settings; numbers by their value."""
    first = [str(place[key]) for key in ("dataset", "model")]
    return [*first, *(str(place[key]).zfill(12) for key in place if key not in ("dataset", "model"))]


def settings_apart(runs: Iterable[Run]) -> dict[tuple[str, str], list[str]]:
    """The settings that tell runs apart, by model and dataset."""
    together: dict[tuple[str, str], list[Run]] = {}
    for run in runs:
        together.setdefault((run.model, run.dataset), []).append(run)
    return {key: differing(same) for key, same in together.items()}


def kinds_of(runs: Sequence[Run]) -> dict[str, tuple[int, str]]:
    """A number and a label for each configuration of a model and dataset: what tells it apart from the others."""
    found: dict[str, tuple[int, str]] = {}
    for place, keys in settings_apart(runs).items():
        same = {run.group: run for run in runs if (run.model, run.dataset) == place}
        sizes = ["active_set"] if len({run.active_set for run in same.values()}) > 1 else []
        apart = [*sizes, *keys]
        values = {group: {key: run.levels.get(key) for key in apart} for group, run in same.items()}
        for number, group in enumerate(sorted(values, key=lambda group: [*map(order, values[group].values())])):
            found[group] = number, ", ".join(label(*item) for item in told(values[group]))
    return found


def told(values: Place) -> list[tuple[str, Value]]:
    """The settings that a label names: those with a value, or the first if none has one."""
    return [(key, value) for key, value in values.items() if value is not None] or list(values.items())[:1]


def place_of(run: Run, keys: Iterable[str]) -> Place:
    """Model, dataset, active set and the settings that tell a run apart from others of its model and dataset."""
    size = {} if run.active_set is None else {"active_set": run.active_set}
    own = {key: run.settings[key] for key in keys if key in run.settings}
    return {"model": run.model, "dataset": run.dataset, **size, **own}
