"""What a training took, from hand-made rows of its history."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from src.data.batch import split_of
from src.evaluation import cost
from src.evaluation.cost import Cost, peak_memory
from tests.evaluation.subjects import Known, MadeUp, subject

UNTRAINED = subject(Known, MadeUp(split_of(torch.zeros(4, 3))))
ROWS = [{"loss": 3.0, "seconds": 9.0}, {"loss": -1.0, "seconds": 1.0}, {"loss": -2.5, "seconds": 2.0}]


def test_the_last_objective_and_the_median_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first epoch is often slow: the median does not mind."""
    monkeypatch.setattr(cost, "peak_memory", lambda: 123.0)
    assert Cost().scores(replace(UNTRAINED, history=ROWS)) == {
        "objective": 2.5,
        "seconds_per_epoch": 2.0,
        "peak_memory_mb": 123.0,
        "epochs": 3,
    }


def test_a_model_that_was_not_just_trained_has_no_cost() -> None:
    assert Cost().scores(UNTRAINED) == {}


def test_every_model_has_a_cost() -> None:
    assert Cost().fits(object(), UNTRAINED.data)


@pytest.mark.skipif(sys.platform != "linux", reason="the memory is read from /proc")
def test_the_peak_of_the_memory_is_in_megabytes() -> None:
    """At least what is used now, which the kernel counts in pages, up to its rounding."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    now = pages * os.sysconf("SC_PAGE_SIZE") / 2**20
    assert 0.99 * now < peak_memory() < 100 * now


def test_the_memory_of_a_gpu_counts_if_it_was_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 3 * 2**20)
    assert peak_memory() == 3
