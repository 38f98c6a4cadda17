"""The curves on the page: the objective and everything else that runs write into `history.csv`."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from src.report.page_runs import rounded, title
from src.report.records import Run
from src.report.settings import kinds_of

MOST_POINTS, FEWEST_POINTS = 150, 30  # of a curve
NUMBERS = 300_000  # in all curves together, about 2 MB
OBJECTIVE = "objective"
NOT_SHOWN = ("loss", "seconds", "phase")


def curves(runs: Sequence[Run]) -> dict[str, Any]:
    """The curves of all runs, and the names of what they show."""
    trained = [run for run in runs if len(run.history) > 1]
    kinds = kinds_of(trained)
    quantities = list(dict.fromkeys(name for run in trained for name in values_of(run)))
    columns = sum(len(values_of(run)) for run in trained)
    points = max(FEWEST_POINTS, min(MOST_POINTS, NUMBERS // max(1, columns)))
    return {"quantities": quantities, "curves": [curve_of(run, points, *kinds[run.group]) for run in trained]}


def values_of(run: Run) -> list[str]:
    """What a run has a curve of: the objective first."""
    return [OBJECTIVE, *(name for name in run.history[0] if name not in NOT_SHOWN)]


def curve_of(run: Run, points: int, kind: int, name: str) -> dict[str, Any]:
    """The curves of a run against epoch and time, thinned for a small picture."""
    history = run.history
    kept = np.unique(np.linspace(0, len(history) - 1, points).round().astype(int)).tolist()
    seconds = np.cumsum([row["seconds"] for row in history])
    return {
        "run": run.name,
        "panel": title(run),
        "kind": kind,
        "label": name,
        "epoch": [i + 1 for i in kept],
        "seconds": [rounded(seconds[i]) for i in kept],
        "values": {quantity: [rounded(value_at(history[i], quantity)) for i in kept] for quantity in values_of(run)},
    }


def value_at(row: dict[str, float], quantity: str) -> float:
    """The objective, which is the negative loss, or another value of an epoch."""
    return -row["loss"] if quantity == OBJECTIVE else row[quantity]
