"""The table of hidden values."""

from pathlib import Path
from typing import Any

from src.report import records
from src.report.formats import markdown
from src.report.imputation import hiding, imputation_table
from src.report.labels import minus
from tests.report.handmade import write_run

RANDOM = {"fraction": 0.5, "kind": None, "split": None}
BLOCK = {"fraction": 0.25, "kind": "block", "split": "both"}


def scores(rmse: float, **others: float) -> dict[str, float]:
    baselines = {"mean_imputation_rmse": 0.5, "nearest_imputation_rmse": 0.25}
    return {"imputation_rmse": rmse, "imputation_rmse_sd": 9.0, **baselines, **others}


def test_models_are_beside_the_baselines_of_the_same_hidden_values(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, "sas", seed=seed, metrics=scores(0.2 + 0.1 * seed), missing=RANDOM)
    write_run(tmp_path, "vae", active_set=None, metrics=scores(0.4, imputation_nlpd=-0.5), missing=RANDOM)
    block = {"imputation_rmse": 0.3, "mean_imputation_rmse": 0.6}
    write_run(tmp_path, "vae", active_set=None, metrics=block, missing=BLOCK)
    write_run(tmp_path, "gplvm", metrics={"rmse": 0.1})
    found = imputation_table(records.read(tmp_path).runs)
    assert found is not None and found.remarks == []
    assert found.columns == [("MNIST", "25 % hidden in a block, in training too"), ("MNIST", "50 % hidden at random")]
    assert {row.label: row.texts for row in found.rows} == {
        "RMSE of hidden values, SAS-GP, A = 400": ["", "0.2500 ± 0.0707 (2)"],
        "RMSE of hidden values, VAE": ["0.3000 (1)", "0.4000 (1)"],
        "RMSE of mean imputation": ["0.6000 (1)", "0.5000 ± 0.0000 (2)"],
        "RMSE of nearest image": ["", "0.2500 ± 0.0000 (2)"],
        "NLPD of hidden values, VAE": ["", minus("-0.500 (1)")],
    }
    assert "25 % hidden in a block" in markdown([found])


def test_configurations_that_compete_are_named(tmp_path: Path) -> None:
    for epochs in (20, 40):
        write_run(tmp_path, "sas", epochs=epochs, metrics=scores(epochs / 100), missing=RANDOM)
    found = imputation_table(records.read(tmp_path).runs)
    assert found is not None and len(found.remarks) == 1 and "max_epochs = 20: 0.2000 (1)" in found.remarks[0]
    assert found.rows[0].texts == ["0.4000 (1) [1]"]


def test_without_hidden_values_there_is_no_table(tmp_path: Path) -> None:
    write_run(tmp_path)
    assert imputation_table(records.read(tmp_path).runs) is None


def test_what_was_hidden_in_words() -> None:
    def text(**options: Any) -> str:
        return hiding({f"dataset.missing.{key}": value for key, value in options.items()})

    assert text(fraction=0.125) == "12.5 % hidden at random"
    assert text(fraction=0.6, kind="block", split="both") == "60 % hidden in a block, in training too"
    assert text() == text(fraction=0.5, split="train") == ""
    assert hiding({"dataset.test_missing": "upper_body"}) == "upper body hidden"
