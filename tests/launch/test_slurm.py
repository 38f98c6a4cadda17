"""Jobs of Slurm, without one: tests/slurm runs a sweep on a real Slurm."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from src.launch import slurm


def test_inside_an_array_a_job_names_its_own_task(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    assert slurm.job_id() == "12"
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "10")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    assert slurm.job_id() == "10_2"


@pytest.mark.parametrize(("executor", "state", "requeued"), [("slurm", "RUNNING", 1), ("slurm", "", 0), ("", "", 0)])
def test_only_a_running_job_of_slurm_is_requeued(
    executor: str, state: str, requeued: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        calls.append(command)
        return subprocess.CompletedProcess(command, 0, stdout=f"{state}\n")

    monkeypatch.setattr(slurm.subprocess, "run", run)
    monkeypatch.setenv("SUBMITIT_EXECUTOR", executor)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.delenv("SLURM_ARRAY_JOB_ID", raising=False)
    slurm.requeue_if_preempted()
    assert calls.count(["scontrol", "requeue", "12"]) == requeued


def test_a_launch_without_jobs_of_slurm_is_not_waited_for(tmp_path: Path) -> None:
    slurm.wait_for_jobs(tmp_path)
