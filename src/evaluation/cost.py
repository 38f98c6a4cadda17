"""What the training took, and the objective that it reached."""

import re
import resource
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch

from src.evaluation.task import Metric, Scores, Subject, Task


class Cost(Task):
    """Objective, time and memory of a training that has just ended."""

    name = "cost"
    order = 90
    metrics = {  # noqa: RUF012
        "objective": Metric("objective", "higher"),
        "seconds_per_epoch": Metric("s per epoch", digits=2),
        "peak_memory_mb": Metric("peak memory, MB", digits=0),
        "epochs": Metric("epochs", "neither", 0),
    }

    def fits(self, model: Any, data: Any) -> bool:
        """Every model."""
        return True

    def scores(self, subject: Subject) -> Scores:
        """From the rows of the history, if there are any."""
        rows = subject.history
        if not rows:
            return {}
        return {
            "objective": -rows[-1]["loss"],
            "seconds_per_epoch": median(row["seconds"] for row in rows),
            "peak_memory_mb": peak_memory(),
            "epochs": len(rows),
        }


def peak_memory() -> float:
    """The most memory used so far, in MB: the GPU's if there is one, else the process's."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    status = Path("/proc/self/status")
    if status.exists():  # Linux; getrusage would count the process that started this one, if that had more
        peak = re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text(), re.MULTILINE)
        if peak:
            return int(peak[1]) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
