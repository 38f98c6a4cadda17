"""Tables of one's own experiments."""

from pathlib import Path

import pytest

from src.report import records
from src.report.formats import latex, markdown
from src.report.own import own_table
from src.report.records import Run
from src.report.significance import BEST
from src.report.tables import Table
from src.runs.errors import UserError
from tests.report.handmade import write_run


def three_models(outputs: Path, dataset: str = "mnist") -> list[Run]:
    for model, error in (("sas", 0.2), ("vae", 0.3), ("bayesian_sas", 0.21)):
        for seed in range(3):
            metrics = {"rmse": error + 0.01 * seed, "accuracy_1nn": error}
            write_run(outputs, model, dataset, seed, None if model == "vae" else 400, metrics=metrics)
    return records.read(outputs).runs


def texts(table: Table) -> dict[str, list[str]]:
    return {row.label: row.texts for row in table.rows}


def test_rows_columns_and_metrics_are_those_asked_for(tmp_path: Path) -> None:
    table = own_table(three_models(tmp_path), ["model"], ["dataset"], ["rmse", "accuracy_1nn"])
    assert table.columns == [("RMSE",), ("1-NN accuracy",)] and table.title == "Your experiments, MNIST"
    assert texts(table) == {
        "Bayesian SAS-GP": ["0.2200 ± 0.0100 (3)", "0.210 ± 0.000 (3)"],
        "SAS-GP": ["0.2100 ± 0.0100 (3)", "0.200 ± 0.000 (3)"],
        "VAE": ["0.3100 ± 0.0100 (3)†", "0.300 ± 0.000 (3)"],
    }
    assert [row.verdicts for row in table.rows] == [["", ""], [BEST, ""], ["", BEST]]
    assert "Welch" in table.note


def test_the_best_is_bold_in_markdown_and_latex(tmp_path: Path) -> None:
    table = own_table(three_models(tmp_path), ["model"], metrics=["rmse"])
    assert "| SAS-GP | **0.2100 ± 0.0100 (3)** |" in markdown([table])
    assert r"SAS-GP & \textbf{.2100 $\pm$ .0100 (3)} \\" in latex([table]) and r"(3)$^\dagger$" in latex([table])


def test_a_best_value_is_that_of_its_dataset(tmp_path: Path) -> None:
    three_models(tmp_path)
    write_run(tmp_path, "sas", "digits", metrics={"rmse": 0.1})
    write_run(tmp_path, "vae", "digits", active_set=None, metrics={"rmse": 0.05})
    table = own_table(records.read(tmp_path).runs, ["model"], ["dataset"], ["rmse"])
    assert table.columns == [("digits",), ("MNIST",)] and table.title == "Your experiments, RMSE"
    assert [row.verdicts for row in table.rows] == [["", ""], ["", BEST], [BEST, ""]]
    assert texts(table)["Bayesian SAS-GP"][0] == ""  # no run of it


def test_rows_are_named_by_what_differs_among_those_of_their_model(tmp_path: Path) -> None:
    for epochs, size in ((3, 100), (3, 400), (30, 400)):
        write_run(tmp_path, "sas", active_set=size, epochs=epochs)
    write_run(tmp_path, "vae", active_set=None, epochs=3)
    table = own_table(records.read(tmp_path).runs, metrics=["rmse"])
    assert [row.label for row in table.rows] == [
        "SAS-GP, A = 100, max_epochs = 3",
        "SAS-GP, A = 400, max_epochs = 3",
        "SAS-GP, A = 400, max_epochs = 30",
        "VAE",
    ]
    assert table.remarks == []
    assert [row.label for row in own_table(three_models(tmp_path / "b")).rows] == ["Bayesian SAS-GP", "SAS-GP", "VAE"]


def test_a_remark_says_what_else_differs(tmp_path: Path) -> None:
    write_run(tmp_path, "sas", epochs=3)
    write_run(tmp_path, "vae", active_set=None, epochs=30)
    (remark,) = own_table(records.read(tmp_path).runs, ["model"]).remarks
    assert remark == "MNIST: the runs shown also differ in max_epochs (3, 30)."
    write_run(tmp_path, "sas", epochs=30)
    competing, *others = own_table(records.read(tmp_path).runs, ["model"]).remarks
    assert competing.startswith("Several configurations match; the first is shown: max_epochs = 30") and not others


def test_settings_seeds_and_metrics_can_be_rows_or_columns(tmp_path: Path) -> None:
    runs = three_models(tmp_path)
    table = own_table(runs, ["metric"], ["model", "seed"], ["rmse"])
    assert table.columns[:2] == [("Bayesian SAS-GP", "seed = 0"), ("Bayesian SAS-GP", "seed = 1")]
    assert texts(table)["RMSE"][0] == "0.2100 (1)"
    assert [row.label for row in own_table(runs, ["latent_dim"], ["model"], ["rmse"]).rows] == ["latent_dim = 2"]


def test_scores_that_a_model_cannot_have_are_empty(tmp_path: Path) -> None:
    write_run(tmp_path, "sas_classifier", metrics={"error_rate": 0.1})
    write_run(tmp_path, "vae", active_set=None)
    runs = records.read(tmp_path).runs
    assert texts(own_table(runs, ["model"], metrics=["error_rate"])) == {"SAS classifier": ["0.1000 (1)"]}
    assert texts(own_table(runs, ["model"], metrics=["error_rate", "rmse"]))["VAE"] == ["", "0.2000 (1)"]


def test_failed_runs_are_counted_and_numbers_are_in_order(tmp_path: Path) -> None:
    for size in (1000, 50, 400):
        write_run(tmp_path, "sas", active_set=size, status="failed" if size == 50 else "done")
    table = own_table(records.read(tmp_path).runs, ["active_set"], metrics=["rmse"])
    assert texts(table) == {"A = 50": ["1 failed"], "A = 400": ["0.2000 (1)"], "A = 1000": ["0.2000 (1)"]}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((["model"], ["model"]), "model is named twice"),
        ((["model"], ["active_set"]), "the runs have the datasets digits, mnist: add dataset to the rows or columns"),
        ((["model"], None, ["rsme"]), "no run has the metric rsme; did you mean rmse?"),
        ((["modle"],), "no setting modle"),
    ],
)
def test_a_wrong_table_is_one_sentence(options: tuple[list[str], ...], message: str, tmp_path: Path) -> None:
    three_models(tmp_path)
    write_run(tmp_path, "sas", "digits")
    with pytest.raises(UserError) as error:
        own_table(records.read(tmp_path).runs, *options)
    assert message in str(error.value)


def test_without_a_finished_run_there_is_no_table(tmp_path: Path) -> None:
    write_run(tmp_path, status="failed")
    with pytest.raises(UserError, match="no run is finished"):
        own_table(records.read(tmp_path).runs)
