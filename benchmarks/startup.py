"""How long a person waits: for an answer of the command line, and for the first step of a training."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, sleep

from benchmarks.rows import Row
from benchmarks.scale import ROOT

ANSWERS = {
    "--help": ["src.train", "--help"],
    "--cfg job": ["src.train", "--cfg", "job"],
    "a typo": ["src.train", "model=sass"],
    "src.plan of 54 cells": ["src.plan", "+sweep=table1", "seed=0,1,2"],
}
REPEATS = 3


def startup() -> Iterator[Row]:
    """With warm caches: the first of several is not counted."""
    for name, command in ANSWERS.items():
        taken = median([answer_seconds(command) for _ in range(1 + REPEATS)][1:])
        yield Row(name, "two seconds", taken, 2, taken / 2, 1.0, unit="s")
    taken = median([first_step_seconds() for _ in range(1 + REPEATS)][1:])
    yield Row("from the command to a first step on MNIST", "twelve seconds", taken, 12, taken / 12, 1.0, unit="s")


def answer_seconds(command: list[str]) -> float:
    """Until the process ends, whatever it answers."""
    start = perf_counter()
    subprocess.run([sys.executable, "-m", *command], capture_output=True, check=False)
    return perf_counter() - start


def first_step_seconds() -> float:
    """Until the first row of the history is there, of an epoch with one step."""
    overrides = ["model=sas", "dataset=mnist", "+trainer.limit_train_batches=1", f"paths.data={ROOT.absolute()}"]
    with TemporaryDirectory() as outputs:
        start = perf_counter()
        command = [sys.executable, "-m", "src.train", *overrides, f"paths.outputs={outputs}"]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while not any(Path(outputs).glob("*/history.csv")):
                if process.poll() is not None:
                    raise RuntimeError(f"{' '.join(command)} ended before its first step")
                sleep(0.01)
            taken = perf_counter() - start
            process.kill()
    return taken
