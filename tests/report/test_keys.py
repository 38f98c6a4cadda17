"""Settings by the names that people type."""

from pathlib import Path

import pytest

from src.report import records
from src.report.keys import chosen, is_typed, key_of, several
from src.report.records import Run
from src.runs.errors import UserError
from tests.report.handmade import write_run


@pytest.fixture
def runs(tmp_path: Path) -> list[Run]:
    write_run(tmp_path, "sas", epochs=3)
    write_run(tmp_path, "sas", epochs=30, seed=1, warp=None, kernel={"_target_": "gpytorch.kernels.RBFKernel"})
    write_run(tmp_path, "vae", active_set=None, epochs=30, encoder={"lr": 1.0})
    return records.read(tmp_path).runs


@pytest.mark.parametrize(
    ("typed", "key"),
    [
        ("model", "model"),
        ("trainer.max_epochs", "trainer.max_epochs"),
        ("max_epochs", "trainer.max_epochs"),
        ("optimizer.lr", "model.optimizer.lr"),
        ("active_set.size", "active_set"),
        ("kernel", "model.kernel._target_"),
        ("max_train", "dataset.max_train"),  # null in all runs
        ("seed", "seed"),
    ],
)
def test_a_setting_is_found_by_its_name_or_the_end_of_it(typed: str, key: str, runs: list[Run]) -> None:
    assert key_of(typed, runs) == key


def test_a_wrong_name_is_answered_with_names_that_exist(runs: list[Run]) -> None:
    with pytest.raises(UserError, match="no setting max_epoch; did you mean max_epochs"):
        key_of("max_epoch", runs)
    with pytest.raises(UserError, match=r"lr could be model\.encoder\.lr or model\.optimizer\.lr"):
        key_of("lr", runs)
    with pytest.raises(UserError, match="for example model, dataset"):
        key_of("qqq", runs)


def test_conditions_choose_runs(runs: list[Run]) -> None:
    assert [run.model for run in chosen(runs, ["max_epochs=30"])] == ["sas", "vae"]
    assert [run.seed for run in chosen(runs, ["max_epochs=30", "model=sas,gplvm"])] == [1]
    assert [run.model for run in chosen(runs, ["active_set=null"])] == ["vae"]
    assert len(chosen(runs, ["seed=0,1"])) == 3 and len(chosen(runs, ["optimizer.lr=2e-3"])) == 3
    with pytest.raises(UserError, match="no run has max_epochs=4; the runs have max_epochs=3,30"):
        chosen(runs, ["max_epochs=4"])
    with pytest.raises(UserError, match="--where takes conditions such as"):
        chosen(runs, ["sas"])


def test_values_are_compared_as_they_are_typed() -> None:
    assert is_typed(0.001, "1e-3") and is_typed(None, "null") and is_typed(True, "true") and is_typed("svi", "svi")
    assert is_typed("[3, 6]", "[3,6]") and not is_typed("[3, 6]", "[3]")
    assert not is_typed(True, "1") and not is_typed(1, "true") and not is_typed(3, "x")


def test_a_list_is_one_of_several_values() -> None:
    assert several("3,5") == ["3", "5"] and several("[3],[3,6],x") == ["[3]", "[3,6]", "x"]
