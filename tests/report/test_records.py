"""Complete runs are read; others are listed with the reason and skipped."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from src.report import records
from src.runs.errors import UserError
from tests.report.handmade import write_run

BREAK: dict[str, tuple[Callable[[Path], object], str]] = {
    "no record": (lambda run: (run / "record.json").unlink(), "no record.json"),
    "half a record": (
        lambda run: (run / "record.json").write_text('{"status": "do'),
        "record.json is missing or",
    ),
    "a record of nothing": (lambda run: (run / "record.json").write_text("[]"), "record.json is missing or"),
    "an unknown status": (lambda run: (run / "record.json").write_text('{"status": "odd"}'), "the status odd"),
    "no config": (lambda run: (run / "config.yaml").unlink(), "no config.yaml"),
    "half a config": (lambda run: (run / "config.yaml").write_text("model:\n  a: [1, "), "expected"),
    "an empty config": (lambda run: (run / "config.yaml").write_text(""), "config.yaml is empty"),
    "a config of something else": (lambda run: (run / "config.yaml").write_text("a: 1"), "no model or no seed"),
    "half the metrics": (
        lambda run: (run / "metrics.json").write_text('{"rmse": 0.'),
        "metrics.json is missing or damaged",
    ),
    "bytes that are no text": (lambda run: (run / "config.yaml").write_bytes(b"\xff\xfe\x00"), "decode"),
}


@pytest.mark.parametrize("case", BREAK)
def test_incomplete_runs_are_listed_and_skipped(case: str, tmp_path: Path) -> None:
    whole, broken = write_run(tmp_path, seed=0), write_run(tmp_path, seed=1)
    damage, reason = BREAK[case]
    damage(broken)
    found = records.read(tmp_path)
    assert [run.folder for run in found.runs] == [whole]
    assert list(found.skipped) == [broken.name] and reason in found.skipped[broken.name]


def test_foreign_folders_are_named_and_our_own_are_not(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    for name in ("notebooks", ".multirun", ".code", "report", f"{run.name}.2026-01-01T000000+0000"):
        (tmp_path / name).mkdir()
    (tmp_path / "notes.txt").write_text("a file")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    found = records.read(tmp_path)
    assert len(found.runs) == 1
    assert found.skipped == {
        "notebooks": "not the folder of a run",
        f"{run.name}.2026-01-01T000000+0000": "an earlier run, moved aside by rerun=true",
    }


def test_a_run_without_metrics_or_process_is_interrupted_whatever_its_record_says(tmp_path: Path) -> None:
    (write_run(tmp_path, seed=0) / "metrics.json").unlink()
    write_run(tmp_path, seed=1, status="running")
    write_run(tmp_path, seed=2, status="failed")
    assert [run.status for run in records.read(tmp_path).runs] == ["interrupted", "interrupted", "failed"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_folder_is_named(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    (run / "config.yaml").chmod(0)
    assert "Permission denied" in records.read(tmp_path).skipped[run.name]


def test_the_name_and_the_config_say_what_a_run_is(tmp_path: Path) -> None:
    write_run(tmp_path, model="vae", dataset="rotated_mnist", active_set=None, seed=3, loss=[2.0, 1.5])
    (run,) = records.read(tmp_path).runs
    assert (run.model, run.dataset, run.active_set, run.seed, run.status) == ("vae", "rotated_mnist", None, 3, "done")
    assert [row["loss"] for row in run.history] == [2.0, 1.5]


def test_a_history_that_is_not_whole_is_none(tmp_path: Path) -> None:
    folder = write_run(tmp_path, loss=[1.0, 0.5])
    (folder / "history.csv").write_text("epoch,step,seconds,loss\n0,58,2.0\n")
    assert records.read(tmp_path).runs[0].history == []


@pytest.mark.parametrize("text", ["", "epoch,step\n0,58\n", "loss,seconds\na,1\n"])
def test_a_foreign_history_is_none(text: str, tmp_path: Path) -> None:
    (write_run(tmp_path) / "history.csv").write_text(text)
    assert records.read(tmp_path).runs[0].history == []


def test_the_density_that_runs_on_bits_once_recorded_is_left_out(tmp_path: Path) -> None:
    """It was that of a clamped Normal; that of a Gaussian, and the new one of bits, are kept."""
    old = {"nlpd": -2.4, "nlpd_sd": 0.1, "nlpd_c2000_mixture": -2.5, "nlp": 0.1, "rmse": 0.2}
    write_run(tmp_path, "gp_vae", active_set=None, metrics=old, likelihood="bernoulli")
    write_run(tmp_path, "svgp_vae", active_set=None, metrics=old, likelihood="gaussian")
    bits, reals = records.read(tmp_path).runs
    assert bits.metrics == {"nlp": 0.1, "rmse": 0.2} and reals.metrics == old


def test_seeds_and_paths_make_no_other_group_but_settings_do(tmp_path: Path) -> None:
    for seed in (0, 1):
        write_run(tmp_path, seed=seed)
    write_run(tmp_path, seed=0, epochs=30)
    write_run(tmp_path, seed=0, noise=0.2)
    runs = records.read(tmp_path).runs
    assert len({run.group for run in runs}) == 3
    assert records.differing(runs) == ["model.noise", "trainer.max_epochs"]


def test_settings_in_which_only_models_differ_are_not_columns(tmp_path: Path) -> None:
    write_run(tmp_path, model="sas", noise=0.1)
    write_run(tmp_path, model="vae", active_set=None, decoder="mlp")
    write_run(tmp_path, model="sas", noise=0.1, active_set=100)
    assert records.differing(records.read(tmp_path).runs) == []


def test_runs_are_found_by_path_name_or_fingerprint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, _ = write_run(tmp_path, seed=0), write_run(tmp_path, seed=1)
    monkeypatch.chdir(tmp_path.parent)
    for wanted in (str(folder), folder.name, folder.name[-8:], f"{tmp_path.name}/{folder.name}/"):
        assert records.find(tmp_path, wanted).name == folder.name
    with pytest.raises(UserError, match="0 folders"):
        records.find(tmp_path, "elsewhere")
    with pytest.raises(UserError, match="0 folders"):
        records.find(tmp_path, "")
    (folder / "config.yaml").unlink()
    with pytest.raises(UserError, match=r"no config\.yaml"):
        records.find(tmp_path, folder.name)


def test_maps_are_of_finished_runs_with_the_most_epochs_the_largest_active_set_and_the_lowest_seed(
    tmp_path: Path,
) -> None:
    for seed in (0, 1):
        for size in (100, 400):
            write_run(tmp_path, seed=seed, active_set=size)
    write_run(tmp_path, seed=0, active_set=800, status="failed")
    write_run(tmp_path, model="vae", active_set=None, seed=0, epochs=3)
    write_run(tmp_path, model="vae", active_set=None, seed=2, epochs=30)
    chosen = records.representatives(records.read(tmp_path).runs)
    assert [(run.model, run.seed, run.active_set) for run in chosen] == [("bayesian_sas", 0, 400), ("vae", 2, None)]


def test_a_sweep_is_its_cells_whether_they_ran_or_not(tmp_path: Path) -> None:
    cells = records.of_sweep([], ["+sweep=smoke", "model=sas,vae"])
    assert {run.status for run in cells} == {"missing"}
    assert sorted((run.model, run.active_set) for run in cells) == [("sas", 50), ("sas", 100), ("vae", None)]
    ran = next(run for run in cells if run.model == "vae")
    folder = tmp_path / ran.name
    write_run(tmp_path, model="vae", dataset="digits", folder=ran.name)
    other = write_run(tmp_path, model="vae", dataset="mnist")
    (folder / "record.json").write_text(json.dumps({"status": "failed"}))
    again = records.of_sweep(records.read(tmp_path).runs, ["+sweep=smoke", "model=sas,vae"])
    assert [run.status for run in again if run.model == "vae"] == ["failed"]
    assert other.name not in {run.name for run in again}


def test_a_later_evaluation_with_the_own_settings_adds_metrics_and_changes_none(tmp_path: Path) -> None:
    folder = write_run(tmp_path, metrics={"rmse": 0.2})
    (folder / "evaluations").mkdir()
    own = folder.name.rpartition("-")[2]
    for name, metrics in ((f"{own}-refined", {"rmse": 0.3, "amortisation_gap_test": 2.0}), ("00000000", {"mae": 0.1})):
        (folder / "evaluations" / f"{name}.json").write_text(json.dumps({"metrics": metrics}))
    (run,) = records.read(tmp_path).runs
    assert run.metrics == {"rmse": 0.2, "amortisation_gap_test": 2.0} and len(run.evaluations) == 2
    unfinished = write_run(tmp_path, seed=1, status="failed")
    shutil.copytree(folder / "evaluations", unfinished / "evaluations")
    assert records.read_run(unfinished).metrics == {}
