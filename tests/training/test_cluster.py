"""What Lightning is told about the processes of a run."""

import pytest
from lightning_fabric.plugins.environments import LightningEnvironment, SLURMEnvironment

from src.training import cluster


def test_lightning_starts_its_own_processes_but_in_a_step_of_several_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SLURM_NTASKS", "SLURM_NTASKS_PER_NODE"):
        monkeypatch.setenv(name, "2")
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "1")
    assert isinstance(cluster.environment(), LightningEnvironment)
    monkeypatch.setenv("SLURM_STEP_NUM_TASKS", "2")
    several = cluster.environment()
    assert isinstance(several, SLURMEnvironment) and not several.auto_requeue
