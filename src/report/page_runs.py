"""The table of runs on the page: what names a run, its metrics, the settings that differ, and its details."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from src.report.labels import label, metric_of, short
from src.report.records import Run, differing
from src.report.settings import overview_metrics

FIRST = ("model", "dataset", "A", "seed", "status")


def rounded(value: float, figures: int = 5) -> float:
    """A number with few significant figures, which keeps the page small."""
    return float(f"{value:.{figures}g}")


def runs_table(runs: Sequence[Run]) -> dict[str, Any]:
    """Columns and rows of the table of runs: identity, metrics, and the settings that differ."""
    keys = differing(runs)
    metrics = overview_metrics(runs)
    columns = [{"label": name, "title": name} for name in FIRST]
    columns += [{"label": metric_of(m).label, "title": f"{m}: {metric_of(m).better} is better"} for m in metrics]
    columns += [{"label": short(key), "title": key} for key in keys]
    rows = [
        [label("model", run.model), label("dataset", run.dataset), run.active_set, run.seed, status_of(run)]
        + [rounded(run.metrics[m]) if m in run.metrics else None for m in metrics]
        + [run.settings.get(key) for key in keys]
        for run in runs
    ]
    ranks = ranks_of(rows, range(len(FIRST), len(FIRST) + len(metrics)))
    ranked = [{**column, "rank": rank} for column, rank in zip(columns, ranks, strict=True)]
    return {"columns": ranked, "rows": rows, "names": [run.name for run in runs]}


def ranks_of(rows: Sequence[Sequence[Any]], scores: range) -> list[int | None]:
    """Which columns a narrow table keeps: the lowest ranks; None for those that say the same of every run.

    What tells runs apart comes first, then scores by the number of runs that have them.
    """
    by_runs = sorted(scores, key=lambda i: sum(row[i] is None for row in rows))
    model, dataset, size, seed, status = range(len(FIRST))
    order = [model, *by_runs[:1], status, dataset, size, *range(scores.stop, len(rows[0])), seed, *by_runs[1:]]
    same = [i for i in order if i not in (model, *scores) and len(rows) > 1 and len({str(row[i]) for row in rows}) == 1]
    return [None if i in same else order.index(i) for i in range(len(rows[0]))]


def status_of(run: Run) -> str:
    """The status of a run; `diverged` for one that ended with useless numbers."""
    return "diverged" if run.status == "done" and has_diverged(run) else run.status


def has_diverged(run: Run) -> bool:
    """Whether a metric or the objective is not finite, or the objective ended below that of the first epoch.

    Objectives that change during training, in phases or by GECO, are not compared with their start.
    """
    loss = [row["loss"] for row in run.history]
    if not all(map(math.isfinite, [*run.metrics.values(), *loss[-1:]])):
        return True
    changes = any("phase" in row for row in run.history[:1]) or run.settings.get("model.geco") is not None
    return len(loss) > 1 and not changes and loss[-1] > loss[0]


def details(run: Run) -> dict[str, Any]:
    """What the page shows of a single run."""
    record = run.record
    return {
        "command": record.get("command", ""),
        "started": record.get("started", ""),
        "ended": record.get("ended", ""),
        "host": record.get("host", ""),
        "git": str(record.get("git") or "")[:12],
        "versions": ", ".join(f"{name} {version}" for name, version in (record.get("versions") or {}).items()),
        "error": "" if run.status != "failed" else last_line(run.folder / "log.txt"),
        "notes": "; ".join(record.get("notes") or []),
        "metrics": {key: rounded(value) for key, value in run.metrics.items()},
    }


def last_line(path: Path) -> str:
    """The last line of a log, which is the error."""
    try:
        return (path.read_text().strip().splitlines() or [""])[-1]
    except OSError:
        return ""


def title(run: Run) -> str:
    """`SAS-GP, MNIST`."""
    return f"{label('model', run.model)}, {label('dataset', run.dataset)}"


def about(run: Run) -> str:
    """`A = 400, 30 epochs, seed 0`: which of the runs of a model and dataset this one is."""
    size = [] if run.active_set is None else [label("active_set", run.active_set)]
    return ", ".join([*size, f"{run.epochs} epochs", f"seed {run.seed}"])
