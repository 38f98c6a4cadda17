"""What to do with jobs of Slurm: requeue one whose node is taken away, wait for all of a launch."""

import os
import subprocess
from pathlib import Path


def requeue_if_preempted() -> None:
    """Send this job back to the queue where Slurm is about to take its node away.

    Slurm warns with SIGTERM and requeues a job at the end of its grace time, but not one that has ended by then. A job
    that a person cancelled, or that is in the queue already, is not running for Slurm any more and is left alone.
    """
    if os.environ.get("SUBMITIT_EXECUTOR") != "slurm":
        return
    job = job_id()
    state = subprocess.run(["squeue", "-h", "-j", job, "-o", "%T"], capture_output=True, text=True).stdout.strip()
    if state == "RUNNING":
        subprocess.run(["scontrol", "requeue", job], check=True)


def job_id() -> str:
    """This job's name for Slurm's commands: of an array only this one, since one of its jobs bears the array's id."""
    array = os.environ.get("SLURM_ARRAY_JOB_ID")
    return f"{array}_{os.environ['SLURM_ARRAY_TASK_ID']}" if array else os.environ["SLURM_JOB_ID"]


def wait_for_jobs(launch: Path) -> None:
    """Wait until every job of a launch has ended; submitit's own wait ends with the first one that was killed."""
    folders = [path for path in (launch / ".submitit").glob("*") if list(path.glob("*_submitted.pkl"))]
    if folders:
        from submitit import SlurmJob

        for folder in folders:
            SlurmJob(folder=folder, job_id=folder.name).wait()
