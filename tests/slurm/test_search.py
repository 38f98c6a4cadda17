"""A search on a real Slurm: two trials at a time, one of which is pruned on its node."""

import subprocess
import sys
from pathlib import Path

import pytest

from src.runs.files import read_json
from tests.slurm.test_sweep import EVALUATION, ROOT

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("slurm")]

RATES = "optimizer.lr=tag(log,interval(1e-6,1e-1))"
GOOD, BAD = 1e-2, 1e-6


def test_trials_run_as_jobs_and_are_pruned_there(tmp_path: Path) -> None:
    import optuna

    storage = f"sqlite:///{tmp_path}/studies.db"
    study = optuna.create_study(storage=storage, study_name="rates")
    for rate in (GOOD, GOOD / 2, BAD, GOOD / 4):
        study.enqueue_trial({"optimizer.lr": rate})
    options = {"study_name": "rates", "n_trials": 4, "n_jobs": 2, "startup_trials": 1, "warmup_epochs": 0}
    launcher = ["hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1"]
    cells = ["dataset=digits", "dataset.batch_size=64", "active_set=a50", "trainer.max_epochs=6", *EVALUATION, RATES]
    search = ["hydra/sweeper=optuna_study", *(f"hydra.sweeper.{name}={value}" for name, value in options.items())]
    command = [sys.executable, "-m", "src.train", *search, *launcher, *cells, f"paths.outputs={tmp_path}"]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert [trial.state.name for trial in study.trials[:3]] == ["COMPLETE", "COMPLETE", "PRUNED"]
    assert len(list(tmp_path.glob(".multirun/*/.submitit/*/*_submitted.pkl"))) == 4
    statuses = [read_json(path)["status"] for path in tmp_path.glob("*/record.json")]
    assert statuses.count("interrupted") == sum(trial.state.name == "PRUNED" for trial in study.trials)
