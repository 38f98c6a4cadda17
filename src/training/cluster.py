"""What Lightning must know about the processes of a Slurm job."""

import os

from lightning_fabric.plugins import ClusterEnvironment
from lightning_fabric.plugins.environments import LightningEnvironment, SLURMEnvironment


def environment() -> ClusterEnvironment:
    """Processes started by Slurm if its step has several tasks, otherwise by Lightning; submitit requeues jobs."""
    return SLURMEnvironment(auto_requeue=False) if starts_processes() else LightningEnvironment()


def starts_processes() -> bool:
    """Whether this process is one of several that Slurm started for one run."""
    return int(os.environ.get("SLURM_STEP_NUM_TASKS", 1)) > 1
