"""A million observations in a memory-mapped file: what a step, a whole run's memory and the nearest neighbours cost."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import torch

from benchmarks.examples import BATCH, example, training_step
from benchmarks.rows import Row, seconds, slower
from src.data import sources
from src.data.batch import Batch
from src.data.mnist_million import MNISTMillion
from src.evaluation.neighbours import accuracy_1nn
from src.runs.files import read_json

ROOT = Path(os.environ.get("GP_DECODERS_DATA") or "data")
SMALL, LARGE = 60_000, 1_000_000


def scale() -> Iterator[Row]:
    """A million digits that the data folder has not are generated in a temporary folder."""
    with images_folder() as root:
        small, large = (training_step(example("model=sas")[0], batches(root, size)) for size in (SMALL, LARGE))
        ours, other = seconds(large, small, repeats=40)
        yield slower(f"sas step with its batch, N = {LARGE:,}", f"N = {SMALL:,}", ours, other, 1.1)
        peak = peak_megabytes(root, f"dataset.size={LARGE}", "trainer.max_epochs=1")
        yield Row("peak of a run with evaluation, mapped file in", "1.5 GB", peak, 1500, peak / 1500, 1.0, unit="MB")
    taken = neighbour_seconds()
    yield Row(f"1-NN of 10,000 points among {LARGE:,}", "ten seconds", taken, 10, taken / 10, 1.0, unit="s")


@contextmanager
def images_folder() -> Iterator[Path]:
    """A temporary data folder with links to MNIST and to the generated images that exist, so that 784 MB do not stay.

    `python -m src.prepare mnist_million` keeps them in the data folder.
    """
    sources.obtain(sources.MNIST, ROOT)
    generated = sorted((ROOT / "mnist_million").glob("*_*.npy"))
    with TemporaryDirectory(prefix="gp-decoders-") as folder:
        for existing in (ROOT / sources.MNIST.folder, *generated):
            link = Path(folder) / existing.relative_to(ROOT)
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(existing.absolute())
        yield Path(folder)


def batches(root: Path, size: int) -> Callable[[], Batch]:
    """The shuffled batches of so many digits, one per call, after a pass over all, as the mean of the data takes."""
    data = MNISTMillion(root, size, batch_size=BATCH)
    data.setup()
    for _ in data.train.chunks(4096):
        pass
    endless = (batch for epoch in repeat(data.train_dataloader()) for batch in epoch)
    return lambda: next(endless)


def peak_megabytes(root: Path, *overrides: str) -> float:
    """What a run in a process of its own had in memory at most, the touched pages of the mapped file included."""
    with TemporaryDirectory() as outputs:
        places = [f"paths.outputs={outputs}", f"paths.data={root.absolute()}"]
        command = [sys.executable, "-m", "src.train", "dataset=mnist_million", *overrides, *places]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (metrics,) = Path(outputs).glob("*/metrics.json")
        return float(read_json(metrics)["peak_memory_mb"])


def neighbour_seconds() -> float:
    """Of random points in the plane, the tree included."""
    generator = torch.Generator().manual_seed(0)
    known, z = (torch.randn(size, 2, generator=generator) for size in (LARGE, 10_000))
    labels, own = (torch.arange(len(points)) % 10 for points in (known, z))
    start = perf_counter()
    accuracy_1nn(known, labels, z, own)
    return perf_counter() - start
