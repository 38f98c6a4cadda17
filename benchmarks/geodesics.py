"""How long the geodesics of a trained model take."""

from collections.abc import Iterator
from statistics import median

import torch

from benchmarks.examples import composed
from benchmarks.rows import Row, seconds
from src.evaluation.task import Subject
from src.gp.geodesics import geodesics as geodesics_between
from src.training.experiment import make_data, train_in_memory

PAIRS = 100


def geodesics() -> Iterator[Row]:
    """Between pairs of test images of MNIST, by a model of one epoch."""
    overrides = ["active_set=a200", "dataset.max_test=200", "trainer.max_epochs=1", "trainer.enable_progress_bar=false"]
    config = composed("model=bayesian_sas", "dataset=mnist", *overrides)
    data = make_data(config)
    model, _ = train_in_memory(config, data)
    with torch.no_grad():
        subject = Subject(model, data, config["evaluation"])
        start, end = subject.test_latents.double().split(PAIRS)
        (taken,) = seconds(lambda: geodesics_between(subject.metric, start, end), repeats=3, warm_up=1)
    found = median(taken)
    yield Row(f"{PAIRS} geodesics on MNIST, A=200", "ten seconds", found, 10, found / 10, 1.0, unit="s")
