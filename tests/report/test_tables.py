"""The arithmetic of the tables against records made by hand."""

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from src.report import cells, records, tables
from src.report.__main__ import main
from src.report.cells import Cell
from src.report.fill import table_of
from src.report.labels import minus
from src.report.tables import Table
from src.runs import published
from src.runs.errors import UserError
from src.runs.published import Place
from tests.report.handmade import config_of, write_run


def table(outputs: Path, name: str, sweep: bool = False) -> Table:
    found = tables.paper_table(name, records.read(outputs).runs, sweep)
    assert found is not None
    return found


def cell(table: Table, **place: Any) -> Cell:
    (found,) = [c for c in table.cells if all(c.place[key] == value for key, value in place.items())]
    return found


def text(table: Table, label: str, column: tuple[str, ...], kind: str = "ours") -> str:
    start = next(i for i, row in enumerate(table.rows) if row.label == label)
    row = next(row for row in table.rows[start:] if row.kind == kind)
    return row.texts[table.columns.index(column)]


BAYESIAN_400 = ("Bayesian SAS-GP", "A = 400")
HERE = {"model": "bayesian_sas", "dataset": "mnist", "active_set": 400}


def test_mean_and_sd_over_seeds_beside_the_published_value(tmp_path: Path) -> None:
    for seed, error in enumerate([0.20, 0.21, 0.22]):
        write_run(tmp_path, seed=seed, metrics={"rmse": error, "mae": 0.0955, "nlpd": -0.19})
    found = table(tmp_path, "table1")
    rmse = cell(found, **HERE, metric="rmse")
    assert rmse.mean == pytest.approx(0.21) and rmse.sd == pytest.approx(0.01)
    assert rmse.difference == pytest.approx(0.21 - 0.199) and rmse.verdict == "worse"
    assert text(found, "MNIST RMSE", BAYESIAN_400) == "0.2100 ± 0.0100 (3)"
    assert text(found, "MNIST RMSE", BAYESIAN_400, "published") == "0.199 ± 0.002"
    assert text(found, "MNIST RMSE", BAYESIAN_400, "difference") == "+0.0110 worse"
    assert cell(found, **HERE, metric="mae").verdict == "within sd"  # 0.0005 of a published sd of 0.001


@pytest.mark.parametrize(("accuracy", "verdict"), [(0.66, "better"), (0.60, "worse"), (0.64, "within sd")])
def test_more_is_better_in_accuracy(accuracy: float, verdict: str, tmp_path: Path) -> None:
    write_run(tmp_path, metrics={"accuracy_1nn": accuracy})
    found = cell(table(tmp_path, "table2"), model="bayesian_sas", dataset="mnist")
    assert found.difference == pytest.approx(accuracy - 0.63) and found.verdict == verdict
    assert found.sd is None and len(found.values) == 1


def test_the_defective_published_metric_is_shown_but_not_compared(tmp_path: Path) -> None:
    write_run(tmp_path, metrics={"nlpd": -0.2})
    found = table(tmp_path, "table1")
    nlpd = cell(found, **HERE, metric="nlpd")
    assert nlpd.difference is None and nlpd.verdict == ""
    assert text(found, "MNIST NLPD", BAYESIAN_400, "published") == "0.217 ± 0.002 [1]"
    assert "absolute value" in found.remarks[0]


def test_cells_without_runs_are_missing_and_others_say_what_became_of_them(tmp_path: Path) -> None:
    write_run(tmp_path, active_set=100, status="failed")
    write_run(tmp_path, active_set=200, seed=0, metrics={"mae": 0.1})
    write_run(tmp_path, active_set=200, seed=1, status="failed")
    write_run(tmp_path, active_set=200, seed=2, status="interrupted")
    found = table(tmp_path, "table1")
    assert text(found, "MNIST RMSE", ("Bayesian SAS-GP", "A = 100")) == "1 failed"
    assert text(found, "MNIST RMSE", ("Bayesian SAS-GP", "A = 200")) == "0.2000 (1; 1 failed, 1 interrupted)"
    assert text(found, "MNIST RMSE", BAYESIAN_400) == "missing"
    assert text(found, "MNIST NLPD", ("Bayesian SAS-GP", "A = 200")) == "1 failed, 1 interrupted, 1 without it"
    assert len(found.columns) == 6 and len([row for row in found.rows if row.kind == "ours"]) == 9


def test_groups_that_compete_are_never_mixed_and_all_named(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, seed=seed, epochs=20, metrics={"rmse": 0.2})
    write_run(tmp_path, seed=0, epochs=300, metrics={"rmse": 0.1})
    found = table(tmp_path, "table1")
    rmse = cell(found, **HERE, metric="rmse")
    assert rmse.values == (0.2, 0.2)  # more runs are shown before more epochs, and never the better score
    (remark,) = rmse.remarks
    assert "max_epochs = 20: 0.2000 ± 0.0000 (2); max_epochs = 300: 0.1000 (1)" in remark
    assert text(found, "MNIST RMSE", BAYESIAN_400).endswith(f"[{found.remarks.index(remark) + 1}]")


def test_active_sets_compete_where_a_table_does_not_tell_them_apart(tmp_path: Path) -> None:
    for size, accuracy in ((100, 0.9), (400, 0.7)):
        write_run(tmp_path, active_set=size, metrics={"accuracy_1nn": accuracy})
    found = cell(table(tmp_path, "table2"), model="bayesian_sas", dataset="mnist")
    assert found.values == (0.7,) and "A = 400: 0.700 (1); A = 100: 0.900 (1)" in found.remarks[0]


def test_of_two_runs_with_the_same_settings_and_seed_the_newest_counts(tmp_path: Path) -> None:
    for day, error in ((1, 0.3), (2, 0.2)):
        started = f"2026-01-0{day}T00:00:00+00:00"
        write_run(tmp_path, metrics={"rmse": error}, started=started, folder=f"bayesian_sas-mnist-a400-s0-0000000{day}")
    write_run(tmp_path, status="failed", started="2026-01-03T00:00:00+00:00")
    rmse = cell(table(tmp_path, "table1"), **HERE, metric="rmse")
    assert rmse.values == (0.2,) and rmse.others == () and "3 runs have the same settings and seed 0" in rmse.remarks[0]


def test_failed_runs_do_not_displace_a_finished_one(tmp_path: Path) -> None:
    for seed in (0, 1, 2):
        write_run(tmp_path, seed=seed, epochs=300, status="failed")
    write_run(tmp_path, seed=0, epochs=20, metrics={"rmse": 0.2})
    rmse = cell(table(tmp_path, "table1"), **HERE, metric="rmse")
    assert rmse.values == (0.2,) and "max_epochs = 20: 0.2000 (1); max_epochs = 300: 3 failed" in rmse.remarks[0]


@pytest.fixture
def inducing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table by inducing points and bound, of whatever model, in a file of its own; returns a folder for runs."""
    spec = {
        "title": "Errors by inducing points",
        "source": "A paper",
        "rows": {"dataset": ["mnist"], "model.num_inducing": [50, 100]},
        "columns": {"model.bound": ["svi", "collapsed"], "metric": ["rmse"]},
        "not_comparable": [{"model.num_inducing": 100, "because": "Another number of points."}],
        "published": {"mnist": {50: {"svi": {"rmse": 0.3}}, 100: {"svi": {"rmse": "0.2 ± 0.1"}}}},
    }
    content = {"models": {}, "datasets": {"mnist": "MNIST"}, "tables": {"inducing": spec}}
    (tmp_path / "published.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    monkeypatch.setattr(published, "PUBLISHED", tmp_path / "published.yaml")
    return tmp_path / "outputs"


def test_rows_and_columns_are_any_settings(inducing: Path) -> None:
    for number, bound, error in ((50, "svi", 0.25), (100, "svi", 0.2), (100, "collapsed", 0.1)):
        write_run(inducing, "mine", active_set=None, metrics={"rmse": error}, num_inducing=number, bound=bound)
    found = table(inducing, "inducing")
    assert found.columns == [("bound = svi", "RMSE"), ("bound = collapsed", "RMSE")]
    assert [(row.label, row.texts) for row in found.rows] == [
        ("MNIST num_inducing = 50", ["0.2500 (1)", "missing"]),
        ("published", ["0.3", ""]),
        ("difference", [minus("-0.0500 better"), ""]),
        ("MNIST num_inducing = 100", ["0.2000 (1)", "0.1000 (1)"]),
        ("published", ["0.2 ± 0.1 [1]", ""]),
    ]
    assert found.remarks == ["Another number of points."]


def test_models_compete_where_a_table_does_not_tell_them_apart(inducing: Path) -> None:
    for model, error in (("mine", 0.2), ("yours", 0.1)):
        write_run(inducing, model, active_set=None, metrics={"rmse": error}, num_inducing=50, bound="svi", own=model)
    first = cell(table(inducing, "inducing"), **{"model.num_inducing": 50, "model.bound": "svi"})
    assert first.remarks == ("Several configurations match; the first is shown: mine: 0.2000 (1); yours: 0.1000 (1).",)


def test_a_setting_that_no_run_has_is_named_with_its_table(
    inducing: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(inducing, bound="svi", num_inducng=50)
    runs = records.read(inducing).runs
    assert tables.paper_tables(runs) == []
    assert tables.left_out(runs) == {"table inducing": "none of its runs has the setting model.num_inducing"}
    main([str(inducing), "--format", "md,html"])
    reason = "table inducing: none of its runs has the setting model.num_inducing"
    assert f"skipped {reason}" in capsys.readouterr().out
    with pytest.raises(UserError, match=reason):
        table_of("inducing", runs, {})


def test_a_metric_that_no_task_defines_is_named_with_its_table(inducing: Path, tmp_path: Path) -> None:
    write_run(inducing, bound="svi", num_inducing=50)
    content = (tmp_path / "published.yaml").read_text().replace("rmse", "rsme")
    (tmp_path / "published.yaml").write_text(content)
    with pytest.raises(UserError, match="table inducing: there is no metric rsme; the tasks define rmse"):
        tables.paper_tables(records.read(inducing).runs)


def test_settings_that_moved_or_are_null_make_no_other_configuration(tmp_path: Path) -> None:
    """Runs of before and after a class moved, or an option came that is null by default."""
    write_run(tmp_path, seed=0, kernel={"_target_": "src.auxiliary.rbf"})
    write_run(tmp_path, seed=1, kernel={"_target_": "src.gp.kernels.rbf"}, option=None)
    assert len(cell(table(tmp_path, "table1"), **HERE, metric="rmse").values) == 2


def test_of_a_sweep_only_its_rows_and_columns_are_shown_and_what_never_ran_is_counted(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, metrics={"mae": 0.1, "nlpd": -0.2})
    ran = records.read(tmp_path).runs
    config = config_of("bayesian_sas", "mnist", 1, 400, 20)
    missing = records.Run(tmp_path / "a", "bayesian_sas", "mnist", "missing", config, {}, {})
    never = records.Run(tmp_path / "b", "sas", "mnist", "missing", config_of("sas", "mnist", 0, 100, 20), {}, {})
    found = tables.paper_table("table1", [*ran, missing, never], sweep=True)
    assert found is not None and found.columns == [("SAS-GP", "A = 100"), BAYESIAN_400]
    assert [row.label for row in found.rows if row.kind == "ours"] == ["MNIST RMSE", "MNIST MAE", "MNIST NLPD"]
    assert text(found, "MNIST RMSE", BAYESIAN_400) == "0.2000 (1; 1 missing)"
    assert text(found, "MNIST RMSE", ("SAS-GP", "A = 100")) == "1 missing"


def test_cells_that_a_sweep_does_not_have_are_empty(tmp_path: Path) -> None:
    write_run(tmp_path, "sas", "mnist", active_set=100)
    write_run(tmp_path, "sas", "fmnist", active_set=400)
    found = table(tmp_path, "table1", sweep=True)
    assert text(found, "MNIST RMSE", ("SAS-GP", "A = 400")) == ""


def test_a_score_that_is_not_a_number_is_shown_as_such(tmp_path: Path) -> None:
    write_run(tmp_path, metrics={"rmse": math.nan})
    found = table(tmp_path, "table1")
    assert text(found, "MNIST RMSE", BAYESIAN_400) == "nan (1)"
    assert cell(found, **HERE, metric="rmse").verdict == ""


def test_a_seed_that_is_not_a_number_is_no_reason_to_stop(tmp_path: Path) -> None:
    for seed, value in enumerate((0.2, math.nan)):
        write_run(tmp_path, seed=seed, metrics={"rmse": value})
    assert text(table(tmp_path, "table1"), "MNIST RMSE", BAYESIAN_400) == "nan ± nan (2)"


def test_the_other_papers_tables(tmp_path: Path) -> None:
    scores, rates = {"mse_sample": 0.0236, "mse_mean": 0.02}, {"schedule": "constant"}
    write_run(tmp_path, "svgp_vae", "rotated_mnist", active_set=None, metrics=scores, optimizer=rates)
    write_run(tmp_path, "gp_vae", "moving_ball", active_set=None, metrics={"path_rmse": 0.44})
    rotated = table(tmp_path, "rotated_mnist")
    assert text(rotated, "SVGP-VAE", ("test MSE",), "difference") == minus("-0.0015 better")
    assert text(rotated, "CVAE", ("test MSE",), "published") == "0.0796 ± 0.0023"
    assert text(table(tmp_path, "moving_ball"), "GP-VAE", ("path RMSE",)) == "0.440 (1)"


def test_a_place_without_runs_is_empty() -> None:
    place: Place = {"model": "sas", "dataset": "mnist", "active_set": 100, "metric": "rmse"}
    assert cells.ours_at(place, []) == Cell(place)
