"""Where a run is a job of Slurm: what Lightning must know about its processes."""

import os

from lightning_fabric.plugins import ClusterEnvironment
from lightning_fabric.plugins.environments import LightningEnvironment, SLURMEnvironment


def environment() -> ClusterEnvironment:
    """Lightning's processes: those of a Slurm step of several tasks, else its own; requeueing is submitit's affair."""
    return SLURMEnvironment(auto_requeue=False) if starts_processes() else LightningEnvironment()


def starts_processes() -> bool:
    """Whether this process is one of several that Slurm started for one run."""
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1
