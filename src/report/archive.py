"""Runs without their folders: settings and metrics in one small file, to publish beside the tables."""

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from src.report.records import NAME, Run, check_config, valid_metrics
from src.runs.errors import UserError
from src.runs.identity import CANNOT_CHANGE_NUMBERS, Config, counted, is_below

RECORDED = ("started", "ended", "seconds", "git", "python", "versions")  # but not the name of the machine


def text(runs: Iterable[Run]) -> str:
    """One line per run, so that versions of the file can be compared; cells that never ran are left out."""
    ran = sorted((run for run in runs if run.status != "missing"), key=lambda run: run.name)
    lines = [json.dumps(entry(run), sort_keys=True) for run in ran]
    return "[\n" + ",\n".join(lines) + "\n]\n"


def entry(run: Run) -> dict[str, Any]:
    """What is kept of one run."""
    return {
        "name": run.name,
        "status": run.status,
        "config": counted(run.config),
        "record": {"command": portable(run), **{key: run.record[key] for key in RECORDED if key in run.record}},
        "metrics": run.metrics,
        "evaluations": run.evaluations,
    }


def portable(run: Run) -> str:
    """The command that repeats the run, without paths and other options that cannot change the numbers."""
    words = shlex.split(run.record.get("command", ""))
    return shlex.join(word for word in words if not is_below(word.partition("=")[0], CANNOT_CHANGE_NUMBERS))


def read(path: Path) -> list[Run]:
    """The runs of such a file; without folders they have no curves and no pictures."""
    try:
        return [run_of(path, **kept) for kept in json.loads(path.read_text())]
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise UserError(f"{path} is not a file of runs as written by `python -m src.report --format json`") from error


def run_of(
    path: Path,
    name: str,
    status: str,
    config: Config,
    record: dict[str, Any],
    metrics: dict[str, float],
    evaluations: list[dict[str, Any]],
) -> Run:
    """One run of the file."""
    parts = NAME.fullmatch(name)
    if parts is None:
        raise ValueError(f"{name} is not the name of a run")
    check_config(config)
    valid = valid_metrics(config, metrics)
    return Run(path / name, parts["model"], parts["dataset"], status, config, record, valid, evaluations)
