"""The table of all runs."""

from pathlib import Path

from src.report import records, tables
from src.report.labels import minus
from src.report.settings import overview_metrics, settings_table
from tests.report.handmade import write_run


def test_runs_that_are_not_what_the_paper_did_are_in_the_table_of_settings_only(tmp_path: Path) -> None:
    write_run(tmp_path, latent_dim=5, metrics={"rmse": 0.1})
    runs = records.read(tmp_path).runs
    assert tables.paper_tables(runs) == []
    (row,) = settings_table(runs).rows
    assert row.label == "Bayesian SAS-GP, MNIST, A = 400" and row.texts == ["1 done", "0.1000"]


def test_every_configuration_has_a_line_and_its_settings_are_levels_of_its_cells(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, "sas", "digits", seed, active_set=50, metrics={"rmse": 0.2 + 0.1 * seed})
    write_run(tmp_path, "sas", "digits", active_set=50, epochs=40, status="failed")
    found = settings_table(records.read(tmp_path).runs)
    assert {row.label: row.texts for row in found.rows} == {
        "SAS-GP, digits, A = 50, max_epochs = 20": ["2 done", "0.2500 ± 0.0707"],
        "SAS-GP, digits, A = 50, max_epochs = 40": ["1 failed", ""],
    }
    assert {cell.place["trainer.max_epochs"] for cell in found.cells} == {20, 40}


def test_the_overview_has_the_metrics_of_tasks_that_can_be_better_without_their_variants(tmp_path: Path) -> None:
    others = {
        "rmse_sd": 1,
        "rmse_c2000": 1,
        "rmse_mixture": 1,
        "objective": 1,
        "epochs": 1,
        "exact_evidence": 1,
        "own": 1,
        "imputation_rmse_median": 1,
        "mean_imputation_rmse": 1,
        "bound_test": 1,
    }
    write_run(tmp_path, metrics={"accuracy_1nn": 0.7, "nlpd": -0.2, "seconds_per_epoch": 2.0, **others})
    assert overview_metrics(records.read(tmp_path).runs) == ["rmse", "nlpd", "accuracy_1nn", "seconds_per_epoch"]


def test_densities_of_bits_and_of_reals_have_columns_of_their_own(tmp_path: Path) -> None:
    write_run(tmp_path, "vae", active_set=None, metrics={"nlpd": -1.0})
    write_run(tmp_path, "gp_vae", active_set=None, metrics={"nlp": 0.05}, likelihood="bernoulli")
    found = settings_table(records.read(tmp_path).runs)
    assert found.columns == [("runs",), ("RMSE",), ("NLPD",), ("NLP",)]
    assert {row.label: row.texts[2:] for row in found.rows} == {
        "GP-VAE, MNIST": ["", "0.0500"],
        "VAE, MNIST": [minus("-1.000"), ""],
    }
