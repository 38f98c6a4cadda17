"""Searches: stored, continued after any end, pruned, parallel, by the objective or by validation data."""

import signal
import subprocess
import sys
import time
from math import log10
from pathlib import Path
from typing import Any, cast

import pytest

from src.launch.optuna_study import Search
from src.launch.search_space import Options, space_of
from src.launch.stored_study import open_study, sampler_of
from src.runs import files, record, trials
from src.runs.errors import UserError
from tests.launch.commands import TINY, command, environment
from tests.launch.test_search_space import OPTIONS
from tests.training.test_experiment import SAME, small_run

pytestmark = pytest.mark.optuna

RATES = "optimizer.lr=tag(log,interval(1e-6,1e-1))"
WIDE = "optimizer.lr=tag(log,interval(1e-6,1e7))"
GOOD, BAD, BROKEN = 1e-2, 1e-6, 1e6


@pytest.fixture(autouse=True)
def at_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the code was frozen already."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(record.HOME, str(tmp_path))


def options(folder: Path, **changes: Any) -> Options:
    known = {
        "storage": f"sqlite:///{folder}/studies.db",
        "study_name": "rates",
        "startup_trials": 1,
        "warmup_epochs": 0,
    }
    return Options(**OPTIONS | known | changes)


def search(folder: Path, *overrides: str, rates: tuple[float, ...] = (), **changes: Any) -> Search:
    """A search whose first trials have these learning rates."""
    space = space_of([*TINY, RATES, f"paths.outputs={folder}", *overrides])
    found = Search(options(folder, **{"n_trials": len(rates), **changes}), space, [], folder)
    for rate in rates:
        found.study.enqueue_trial({"optimizer.lr": rate})
    return found


def folder_of(found: Search, number: int) -> Path:
    return found.space.cell(found.study.trials[number].params).folder


def test_a_search_ends_with_the_scores_of_its_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = search(tmp_path, n_trials=3, pruner=None)
    found.run()
    assert [trial.state.name for trial in found.study.trials] == 3 * ["COMPLETE"]
    for trial in found.study.trials:
        folder = folder_of(found, trial.number)
        assert trial.value == -files.read_json(folder / "metrics.json")["objective"]
        assert not (folder / trials.FILE).exists()
    assert found.report() == 0
    best: Any = min(found.study.trials, key=lambda trial: trial.value or 0.0)
    shown = capsys.readouterr().out
    assert (
        f"best: trial {best.number}, training loss {best.value:.6g}  optimizer.lr={best.params['optimizer.lr']}"
        in shown
    )
    assert f"run folder: {folder_of(found, best.number)}" in shown


def states(found: Search) -> list[str]:
    return [trial.state.name for trial in found.study.trials]


def numbers(folder: Path) -> dict[str, float]:
    metrics = files.read_json(folder / "metrics.json")
    return {name: metrics[name] for name in SAME if name in metrics}


def test_a_run_that_falls_behind_is_pruned_and_its_own_command_continues_it(tmp_path: Path) -> None:
    found = search(tmp_path, "trainer.max_epochs=4", rates=(GOOD, BAD))
    found.run()
    good, bad = cast("list[Any]", found.study.trials)
    assert states(found) == ["COMPLETE", "PRUNED"]
    assert list(good.intermediate_values) == [1, 2, 3] and len(bad.intermediate_values) < 3
    assert bad.value == bad.intermediate_values[bad.last_step] > good.intermediate_values[bad.last_step]
    folder = folder_of(found, 1)
    assert record.status(folder) == "interrupted" and (folder / "last.ckpt").exists()
    assert "its trial is pruned" in files.read_json(folder / "record.json")["error"]
    overrides = [*TINY, "trainer.max_epochs=4", f"optimizer.lr={BAD}"]
    assert small_run(tmp_path, *overrides) == folder and record.status(folder) == "done"
    assert numbers(small_run(tmp_path / "plain", *overrides)) == numbers(folder)


def test_a_warm_up_and_first_trials_are_not_judged(tmp_path: Path) -> None:
    assert states_of(search(tmp_path, rates=(GOOD, BAD), warmup_epochs=4)) == ["COMPLETE", "COMPLETE"]
    other = search(tmp_path, "seed=1", rates=(GOOD, BAD), startup_trials=2, study_name="first")
    assert states_of(other) == ["COMPLETE", "COMPLETE"]


def states_of(found: Search) -> list[str]:
    found.run()
    return states(found)


def test_a_validation_score_is_maximised_and_changes_no_number_of_a_run(tmp_path: Path) -> None:
    validated = ["dataset.validation=0.2", "search.metric=accuracy_1nn", "trainer.max_epochs=3"]
    found = search(tmp_path, *validated, rates=(GOOD,))
    assert states_of(found) == ["COMPLETE"] and found.study.direction.name == "MAXIMIZE"
    [trial], folder = found.study.trials, folder_of(found, 0)
    assert trial.value == files.read_json(folder / "metrics.json")["validation_accuracy_1nn"]
    assert list(trial.intermediate_values) == [1, 2] and all(0 <= v <= 1 for v in trial.intermediate_values.values())
    plain = small_run(tmp_path / "plain", *TINY, *validated[:1], *validated[2:], f"optimizer.lr={GOOD}")
    assert plain.name == folder.name and numbers(plain) == numbers(folder)


def test_a_failed_run_is_a_failed_trial_and_the_search_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = search(tmp_path, WIDE, rates=(BROKEN, GOOD))
    assert states_of(found) == ["FAIL", "COMPLETE"]
    assert "trial 0: failed, NumericalError" in capsys.readouterr().err
    strict = search(tmp_path, WIDE, "fail_fast=true", "seed=1", rates=(BROKEN, GOOD), study_name="strict")
    assert states_of(strict) == ["FAIL", "WAITING"] and strict.report() == 1


def test_values_that_are_wrong_together_fail_before_they_run(tmp_path: Path) -> None:
    found = search(tmp_path, "active_set.size=range(10,101,90)", n_trials=1)
    found.study.enqueue_trial({"optimizer.lr": GOOD, "active_set.size": 100})
    assert states_of(found) == ["FAIL"] and not folder_of(found, 0).exists()


def test_dead_trials_are_retried_before_new_ones(tmp_path: Path) -> None:
    """One whose run has not begun, one whose run was finished by hand, and one that somebody else works on."""
    first = search(tmp_path, rates=(GOOD, 2 * GOOD, 3 * GOOD))
    pairs = [first.asked() for _ in range(3)]
    small_run(tmp_path, *TINY, f"optimizer.lr={2 * GOOD}")
    again = search(tmp_path, n_trials=3, pruner=None)
    with record.keep(pairs[2][1].folder, pairs[2][1].config):
        again.run()
        assert states(again) == ["COMPLETE", "COMPLETE", "RUNNING"] and again.report() == 1
    again.run()  # it has ended, without any result
    assert again.starts == {0: 1, 2: 1} and again.report() == 0
    assert len(files.read_json(folder_of(again, 2) / "record.json")["starts"]) == 2


def test_trials_with_the_same_values_share_a_run(tmp_path: Path) -> None:
    found = search(tmp_path, rates=(GOOD, GOOD), n_jobs=2)
    assert states_of(found) == ["COMPLETE", "COMPLETE"]
    assert len(list(tmp_path.glob("sas-*"))) == 1


def test_a_study_that_does_not_answer_stops_no_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    overrides = [*TINY, "trainer.max_epochs=3"]
    folder = small_run(tmp_path / "first", *overrides)
    trials.assign(tmp_path / folder.name, trials.Trial(f"sqlite:///{tmp_path}/none/studies.db", "x", 0, 1, 0, None))
    assert record.status(small_run(tmp_path, *overrides)) == "done"
    shown = capsys.readouterr().err
    assert shown.count("the study x does not answer, and the run will not be pruned") == 1


def test_a_study_has_one_kind_of_score(tmp_path: Path) -> None:
    open_study(options(tmp_path), "rates", "objective", "minimize")
    with pytest.raises(UserError, match="the study rates compares runs by objective, not by rmse: choose another"):
        open_study(options(tmp_path), "rates", "rmse", "minimize")
    for storage in ("oracle://nowhere", f"sqlite:///{tmp_path}/none/studies.db", "secret:password@host"):
        with pytest.raises(UserError, match="storage cannot be opened") as error:
            open_study(options(tmp_path, storage=storage), "rates", "objective", "minimize")
        assert "password" not in str(error.value)


def test_choices_of_a_stored_study_cannot_change(tmp_path: Path) -> None:
    search(tmp_path, "kernel=rbf,matern52", n_trials=1).asked()
    with pytest.raises(UserError, match=r"Choose another hydra\.sweeper\.study_name"):
        search(tmp_path, "kernel=rbf,matern52,rbf_ard", n_trials=2).asked()


@pytest.mark.parametrize("name", ["tpe", "gp", "random"])
def test_a_continued_study_with_a_seed_draws_other_points(name: str, tmp_path: Path) -> None:
    drawn = []
    for folder in (tmp_path / "one", tmp_path / "other"):
        folder.mkdir()
        for _ in range(2):
            study = open_study(options(folder, sampler=name, seed=4), "rates", "objective", "minimize")
            trial = study.ask(space_of([RATES]).distributions())
            drawn.append(trial.params["optimizer.lr"])
            study.tell(trial, 1.0)
    assert drawn[:2] == drawn[2:] and drawn[0] != drawn[1]


@pytest.mark.parametrize("name", ["tpe", "gp"])
def test_samplers_learn_from_the_scores(name: str, tmp_path: Path) -> None:
    """The minimum of (log10 lr + 3)^2; a random search of 25 points is that near in one of ten cases."""
    study = open_study(options(tmp_path, sampler=name, seed=0), "rates", "objective", "minimize")
    for _ in range(25):
        trial = study.ask(space_of([RATES]).distributions())
        study.tell(trial, (log10(trial.params["optimizer.lr"]) + 3) ** 2)
    assert study.best_value < 1e-3
    assert type(study.sampler) is type(sampler_of(name, None))


ARGUMENTS = ["hydra/sweeper=optuna_study", *TINY, RATES, "paths.outputs=outputs"]


def test_the_command_searches_in_parallel_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna

    monkeypatch.delenv(record.HOME)
    parallel = ["hydra/launcher=parallel", "hydra.sweeper.n_trials=4"]
    result = command("src.train", "-m", *ARGUMENTS, *parallel, cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    [name] = optuna.get_all_study_names(storage := f"sqlite:///{tmp_path}/outputs/studies.db")
    study = optuna.load_study(study_name=name, storage=storage)
    assert len(study.trials) == 4 and len({trial.params["optimizer.lr"] for trial in study.trials}) == 4
    assert len(list(tmp_path.glob("outputs/.multirun/*"))) in (1, 2)  # batches of two; folders are named by the second
    assert f"best: trial {study.best_trial.number}" in result.stdout
    result = command("src.train", *ARGUMENTS, "hydra.sweeper.n_trials=4", cwd=tmp_path)
    assert result.returncode == 0 and f"study {name}: 4 of 4 trials so far" in result.stdout
    assert "a new run" not in result.stdout
    revision = files.read_json(next(tmp_path.glob("outputs/sas-*/record.json")))
    assert "search" not in revision["command"] and "optuna" not in revision["command"]


def test_a_killed_search_resumes_its_trial(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import optuna

    monkeypatch.delenv(record.HOME)
    arguments = [*ARGUMENTS, "trainer.max_epochs=60", "checkpoint_minutes=0", "hydra.sweeper.n_trials=1"]
    line = [sys.executable, "-m", "src.train", *arguments]
    with subprocess.Popen(line, cwd=tmp_path, env=environment(), stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and not list(tmp_path.glob("outputs/*/previous.ckpt")):
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
    result = command("src.train", *arguments, cwd=tmp_path)
    assert result.returncode == 0 and "resumes in epoch" in result.stdout, result.stderr
    [name] = optuna.get_all_study_names(storage := f"sqlite:///{tmp_path}/outputs/studies.db")
    [trial] = optuna.load_study(study_name=name, storage=storage).trials
    assert trial.state.name == "COMPLETE" and trial.last_step == 57  # every 60 / 20 epochs, but not at the end
    [folder] = tmp_path.glob("outputs/sas-*")
    assert len(files.read_json(folder / "record.json")["starts"]) == 2


def test_a_search_of_validation_data_needs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(record.HOME)
    result = command("src.train", *ARGUMENTS, "search.metric=rmse", cwd=tmp_path)
    assert result.returncode == 1 and not (tmp_path / "outputs").exists()
    assert "search.metric=rmse is a score of held-out training data, because the test data choose" in result.stderr
