"""Runs without their folders: the settings and metrics behind tables, in one small file to publish beside them."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from src.errors import UserError
from src.report.records import NAME, Run
from src.runs import Config, without_what_cannot_change_numbers

RECORDED = ("command", "started", "ended", "seconds", "git", "python", "versions")  # nothing that tells of a machine


def text(runs: Iterable[Run]) -> str:
    """One line a run, so that two versions of the file can be compared."""
    lines = [json.dumps(entry(run), sort_keys=True) for run in sorted(runs, key=lambda run: run.name)]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def entry(run: Run) -> dict[str, Any]:
    """What is kept of a run."""
    return {
        "name": run.name,
        "status": run.status,
        "config": without_what_cannot_change_numbers(run.config),
        "record": {key: run.record[key] for key in RECORDED if key in run.record},
        "metrics": run.metrics,
        "evaluations": run.evaluations,
    }


def read(path: Path) -> list[Run]:
    """The runs of such a file."""
    try:
        return [run_of(**kept) for kept in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is no file of runs as `python -m src.report --format json` writes it") from error


def run_of(
    name: str,
    status: str,
    config: Config,
    record: dict[str, Any],
    metrics: dict[str, float],
    evaluations: list[dict[str, Any]],
) -> Run:
    """A run as its folder would tell of it, but for its curve and its pictures."""
    parts = NAME.fullmatch(name)
    if parts is None:
        raise ValueError(f"{name} is not the name of a run")
    return Run(Path(name), parts["model"], parts["dataset"], status, config, record, metrics, evaluations)
