"""The table that a sweep ends with."""

from pathlib import Path

import pytest

from src.report import records, terminal
from src.report.own import own_table
from src.runs.request import RunRequest
from tests.report.handmade import write_run

METRICS = {"rmse": 0.2, "mae": 0.1, "nlpd": -0.3, "accuracy_1nn": 0.7}


def test_columns_are_aligned_and_the_best_has_a_star(tmp_path: Path) -> None:
    write_run(tmp_path, "sas", metrics={"rmse": 0.2})
    write_run(tmp_path, "vae", active_set=None, metrics={"rmse": 0.3})
    title, _, head, first, second, *_ = terminal.text(own_table(records.read(tmp_path).runs)).splitlines()
    assert title == "Your experiments, MNIST" and head.index("RMSE") == first.index("0.2000") == second.index("0.3000")
    assert first.endswith("(1)*") and second.endswith("(1)")


def test_only_metrics_that_fit_are_shown_and_the_others_are_named(tmp_path: Path) -> None:
    write_run(tmp_path, "sas", metrics=METRICS)
    runs = records.read(tmp_path).runs
    assert "1-NN accuracy" in terminal.fitting(runs, 100) and "More metrics" not in terminal.fitting(runs, 100)
    narrow = terminal.fitting(runs, 36)
    assert "MAE" in narrow and "NLPD" not in narrow
    assert narrow.endswith("More metrics with python -m src.report --metric: nlpd, accuracy_1nn")
    assert "RMSE" in terminal.fitting(runs, 1)  # at least one


def request_of(folder: Path) -> RunRequest:
    run = records.read_run(folder)
    return RunRequest([], {**run.config, "paths": {"outputs": str(folder.parent)}}, run.model, run.dataset)


def test_a_sweep_shows_its_cells_and_no_other_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folders = [write_run(tmp_path, "sas"), write_run(tmp_path, "sas", seed=1, status="failed")]
    write_run(tmp_path, "vae", active_set=None)
    cells = [request_of(folder) for folder in folders]
    terminal.print_sweep([*cells, RunRequest([], {**cells[0].config, "seed": 2}, "sas", "mnist")])
    told = capsys.readouterr().out
    assert "0.2000 (1; 1 failed, 1 missing)" in told and "VAE" not in told
    terminal.print_sweep(cells[1:])
    assert capsys.readouterr().out == ""  # nothing is done
