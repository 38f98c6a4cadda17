"""The tables of the page."""

from pathlib import Path

from src.report import records
from src.report.own import own_table
from src.report.page_tables import by_dataset, tables_of_page
from tests.report.handmade import write_run


def test_papers_tables_show_rows_and_columns_with_runs_and_fold_the_others_away(tmp_path: Path) -> None:
    write_run(tmp_path)
    found = tables_of_page(records.read(tmp_path).runs)
    shown, _, whole = found.papers.partition('<details class="whole">')
    assert 'id="table1"' in shown and "missing" not in shown and "A = 400" in shown and "A = 100" not in shown
    assert 'id="table1-whole"' in whole and "missing" in whole and "A = 100" in whole
    assert "The whole table; " in whole and "cells have no run" in whole


def test_a_papers_table_without_runs_is_not_on_the_page(tmp_path: Path) -> None:
    write_run(tmp_path, latent_dim=5)
    assert tables_of_page(records.read(tmp_path).runs).papers == ""


def test_each_dataset_has_a_table_with_its_own_metrics(tmp_path: Path) -> None:
    write_run(tmp_path, "sas", "digits", metrics={"rmse": 0.2})
    write_run(tmp_path, "vae", "digits", active_set=None, metrics={"rmse": 0.3})
    write_run(tmp_path, "sas_classifier", "wine", metrics={"error_rate": 0.1})
    digits, wine = by_dataset(records.read(tmp_path).runs)
    assert (digits.name, digits.title, wine.title) == ("settings-digits", "digits", "wine")
    assert digits.columns == [("runs",), ("RMSE",)] and ("error rate",) in wine.columns
    assert [(row.label, row.verdicts[1]) for row in digits.rows] == [("SAS-GP, A = 400", "best"), ("VAE", "")]


def test_what_was_asked_for_is_on_top(tmp_path: Path) -> None:
    write_run(tmp_path)
    runs = records.read(tmp_path).runs
    assert tables_of_page(runs).own == ""
    assert 'id="own"' in tables_of_page(runs, [own_table(runs)]).own
