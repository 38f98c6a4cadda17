"""Processes that start with torch and Lightning loaded, but with nothing of `src`: a test in one costs no import."""

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

PRELOADED = ["torch", "gpytorch", "pytorch_lightning", "hydra", "scipy.stats", "sklearn.decomposition"]


def exit_code(function: Callable[..., None], *arguments: Any, seconds: float, output: Path | None = None) -> int | None:
    """Run a function in a process of its own, and return its exit code; None if it took too long."""
    processes: Any = multiprocessing.get_context("forkserver")
    processes.set_forkserver_preload(PRELOADED)
    process = processes.Process(target=run_quietly, args=(function, arguments, str(output or os.devnull)))
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        return None
    code: int | None = process.exitcode
    return code


def run_quietly(function: Callable[..., None], arguments: tuple[Any, ...], output: str) -> None:
    """Send all that is printed to a file."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT)
    os.dup2(file, 1)
    os.dup2(file, 2)
    function(*arguments)
