"""The time and memory of the training, and its final objective."""

import re
import resource
import sys
from pathlib import Path
from statistics import median
from typing import Any

import torch

from src.evaluation.task import Metric, Scores, Subject, Task


class Cost(Task):
    """Objective, time and memory of the training that has just ended."""

    name = "cost"
    order = 90
    metrics = {  # noqa: RUF012
        "objective": Metric("objective", "higher"),
        "seconds_per_epoch": Metric("s per epoch", digits=2),
        "peak_memory_mb": Metric("peak memory, MB", digits=0),
        "epochs": Metric("epochs", "neither", 0),
    }

    def fits(self, model: Any, data: Any) -> bool:
        """All models."""
        return True

    def scores(self, subject: Subject) -> Scores:
        """From the rows of the history; nothing without them."""
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
    """The peak memory so far, in MB: that of the GPU if one was used, else that of the process."""
    if torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    status = Path("/proc/self/status")
    if status.exists():  # Linux; getrusage would report the parent process if it used more
        peak = re.search(r"^VmHWM:\s*(\d+) kB$", status.read_text(), re.MULTILINE)
        if peak:
            return int(peak[1]) / 2**10
    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
