"""The table of runs on the page."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from src.report import records
from src.report.page_runs import details, runs_table, status_of
from tests.report.handmade import write_run


def table_of(outputs: Path) -> Any:
    return runs_table(records.read(outputs).runs)


def ranked(table: Any) -> list[str]:
    kept = [column for column in table["columns"] if column["rank"] is not None]
    return [column["label"] for column in sorted(kept, key=lambda column: column["rank"])]


def test_rows_settings_and_commands_are_those_of_the_runs(tmp_path: Path) -> None:
    write_run(tmp_path, epochs=20, metrics={"rmse": 0.2}, loss=[1.0, 0.5])
    failed = write_run(tmp_path, epochs=30, status="failed")
    (failed / "log.txt").write_text("x\nNumericalError: the loss is nan\n")
    table = table_of(tmp_path)
    labels = [column["label"] for column in table["columns"]]
    assert labels == ["model", "dataset", "A", "seed", "status", "RMSE", "max_epochs"]
    rows = {row[labels.index("max_epochs")]: row for row in table["rows"]}
    assert rows[20] == ["Bayesian SAS-GP", "MNIST", 400, 0, "done", 0.2, 20]
    assert rows[30][labels.index("RMSE")] is None
    found = {run.name: details(run) for run in records.read(tmp_path).runs}
    assert all(each["command"].startswith("python -m src.train") for each in found.values())
    assert found.pop(failed.name)["error"] == "NumericalError: the loss is nan"
    assert [each["error"] for each in found.values()] == [""]


def test_the_page_has_what_a_run_noted_about_itself(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    noted = json.loads((folder / "record.json").read_text()) | {"notes": ["z2 is unused", "the noise is large"]}
    (folder / "record.json").write_text(json.dumps(noted))
    silent = write_run(tmp_path, seed=1)
    found = {run.name: details(run)["notes"] for run in records.read(tmp_path).runs}
    assert found == {folder.name: "z2 is unused; the noise is large", silent.name: ""}


def test_a_narrow_table_keeps_what_tells_runs_apart(tmp_path: Path) -> None:
    write_run(tmp_path, "sas", epochs=3, metrics={"rmse": 0.2, "error_rate": 0.1, "mae": 0.1})
    write_run(tmp_path, "sas", epochs=30, seed=1, metrics={"rmse": 0.3, "mae": 0.2})
    assert ranked(table_of(tmp_path)) == ["model", "RMSE", "max_epochs", "seed", "MAE", "error rate"]
    write_run(tmp_path, "sas", "digits", status="failed")
    assert ranked(table_of(tmp_path))[:4] == ["model", "RMSE", "status", "dataset"]


def test_a_single_run_has_all_its_columns(tmp_path: Path) -> None:
    write_run(tmp_path)
    assert ranked(table_of(tmp_path)) == ["model", "RMSE", "status", "dataset", "A", "seed"]


@pytest.mark.parametrize(
    ("loss", "metrics", "status"),
    [
        ([1.0, 0.5], {}, "done"),
        ([1.0], {}, "done"),
        ([], {}, "done"),
        ([1.0, 0.5, 1.5], {}, "diverged"),
        ([1.0, math.nan], {}, "diverged"),
        ([1.0, math.nan, 0.5], {}, "done"),
        ([1.0, 0.5], {"nlpd": math.inf}, "diverged"),
    ],
)
def test_runs_with_useless_numbers_have_diverged(
    loss: list[float], metrics: dict[str, float], status: str, tmp_path: Path
) -> None:
    write_run(tmp_path, loss=loss, metrics=metrics)
    assert status_of(records.read(tmp_path).runs[0]) == status


def test_an_objective_that_changes_during_training_may_end_lower(tmp_path: Path) -> None:
    write_run(tmp_path, loss=[1.0, 1.5], geco=0.1)
    phases = write_run(tmp_path, seed=1)
    (phases / "history.csv").write_text("epoch,step,seconds,phase,loss\n0,1,2.0,0,1.0\n1,2,2.0,1,1.5\n")
    write_run(tmp_path, seed=2, loss=[1.0, 1.5], status="failed")
    assert {run.seed: status_of(run) for run in records.read(tmp_path).runs} == {0: "done", 1: "done", 2: "failed"}
