"""The arithmetic of the tables against records made by hand."""

import math
from pathlib import Path
from typing import Any

import pytest

from src.report import records, tables
from src.report.settings import settings_table
from src.report.tables import Cell, Place, Table
from tests.report.handmade import config_of, write_run


def table(outputs: Path, name: str, sweep: bool = False) -> Table:
    found = tables.paper_table(name, records.read(outputs).runs, sweep)
    assert found is not None
    return found


def cell(table: Table, **place: Any) -> Cell:
    (found,) = [c for c in table.cells if all(getattr(c.place, key) == value for key, value in place.items())]
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


def test_runs_that_are_not_what_the_paper_did_are_in_the_table_of_settings_only(tmp_path: Path) -> None:
    write_run(tmp_path, latent_dim=5, metrics={"rmse": 0.1})
    runs = records.read(tmp_path).runs
    assert tables.paper_tables(runs) == []
    (row,) = settings_table(runs).rows
    assert row.label == "Bayesian SAS-GP, MNIST, A = 400" and row.texts == ["1 done", "0.1000"]


def test_every_group_has_a_line_in_the_table_of_settings(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, "sas", "digits", seed, active_set=50, metrics={"rmse": 0.2 + 0.1 * seed})
    write_run(tmp_path, "sas", "digits", active_set=50, epochs=40, status="failed")
    found = settings_table(records.read(tmp_path).runs)
    assert {row.label: row.texts for row in found.rows} == {
        "SAS-GP, digits, A = 50, max_epochs = 20": ["2 done", "0.2500 ± 0.0707"],
        "SAS-GP, digits, A = 50, max_epochs = 40": ["1 failed", ""],
    }


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
    assert text(rotated, "SVGP-VAE", ("test MSE",), "difference") == tables.minus("-0.0015 better")
    assert text(rotated, "CVAE", ("test MSE",), "published") == "0.0796 ± 0.0023"
    assert text(table(tmp_path, "moving_ball"), "GP-VAE", ("path RMSE",)) == "0.440 (1)"


def test_every_published_value_is_a_mean_and_an_sd_of_a_known_metric_in_a_place_of_its_table() -> None:
    for name, spec in tables.facts()["tables"].items():
        places = [
            tables.cell(spec, row | column, [], False)
            for row in tables.axis(spec["rows"])
            for column in tables.axis(spec["columns"])
        ]
        shown = [c.published for c in places if c.published]
        written = [text for model in spec["published"].values() for data in model.values() for text in data.values()]
        flat = [value for text in written for value in (text.values() if isinstance(text, dict) else [text])]
        assert sorted(shown) == sorted(flat), name
        assert all(mean > sd > 0 for mean, sd in map(tables.numbers, shown))
        assert all(c.place.metric in tables.facts()["metrics"] for c in places)


def test_published_values_are_the_papers() -> None:
    """A few, typed anew from Tables 1 and 2 of the SAS paper and Table 1 of the SVGP-VAE paper."""
    published = {name: spec["published"] for name, spec in tables.facts()["tables"].items()}
    assert published["table1"]["sas"]["cifar10"]["nlpd"][400] == "0.332 ± 0.189"
    assert published["table1"]["bayesian_sas"]["fmnist"]["rmse"][200] == "0.188 ± 0.020"
    assert published["table2"]["vae"]["fmnist"]["accuracy_1nn"] == "0.58 ± 0.008"
    assert published["rotated_mnist"]["gp_vae"]["rotated_mnist"]["mse_sample"] == "0.0370 ± 0.0012"


def test_a_place_without_runs_is_empty() -> None:
    assert tables.ours_at(Place("sas", "mnist", 100, "rmse"), []) == Cell(Place("sas", "mnist", 100, "rmse"))
