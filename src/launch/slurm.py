"""Jobs of Slurm: requeue a pre-empted job, wait for all jobs of a launch."""

import os
import subprocess
from pathlib import Path


def requeue_if_preempted() -> None:
    """Put this job back into the queue if Slurm is about to take its node away.

    Slurm warns with SIGTERM and requeues the job at the end of the grace time, but only if it still runs then. A job
    that was cancelled, or is in the queue already, is no longer running for Slurm and is left alone.
    """
    if os.environ.get("SUBMITIT_EXECUTOR") != "slurm":
        return
    job = job_id()
    state = subprocess.run(["squeue", "-h", "-j", job, "-o", "%T"], capture_output=True, text=True).stdout.strip()
    if state == "RUNNING":
        subprocess.run(["scontrol", "requeue", job], check=True)


def job_id() -> str:
    """Id of this job for Slurm's commands; inside an array, the id of this task only."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]


def wait_for_jobs(launch: Path) -> None:
    """Wait until every job of a launch has ended; submitit stops waiting when the first job is killed."""
    folders = [path for path in (launch / ".submitit").glob("*") if list(path.glob("*_submitted.pkl"))]
    if folders:
        from submitit import SlurmJob

        for folder in folders:
            SlurmJob(folder=folder, job_id=folder.name).wait()
