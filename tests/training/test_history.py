"""The rows of the history are the means over the steps of their own epoch."""

import csv
from pathlib import Path
from typing import Any

import pytest
from pytorch_lightning import Callback, Trainer

from src.training.experiment import make_data, make_model
from src.training.history import History, as_csv
from src.training.trainer import make_trainer
from tests.configs import composed

SMALL = ["model=bayesian_sas", "dataset.max_train=200", "dataset.max_test=50", "active_set.size=20"]


class Losses(Callback):
    """The loss of every step."""

    def __init__(self) -> None:
        self.seen: list[float] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, outputs: Any, *_: Any) -> None:
        self.seen.append(float(outputs["loss"]))


@pytest.mark.parametrize("batch_size", ["full", "100", "50"])
def test_a_row_is_the_mean_over_the_steps_of_its_epoch(batch_size: str, tmp_path: Path) -> None:
    """With one full batch per epoch, it is the loss of that step."""
    config = composed(*SMALL, f"dataset.batch_size={batch_size}", "trainer.max_epochs=3")
    data = make_data(config)
    model = make_model(config, data).train()
    model.initialise(data)
    history, losses = History(tmp_path / "history.csv"), Losses()
    make_trainer(config, history, tmp_path, losses).fit(model, datamodule=data)
    steps = len(data.train_dataloader())
    epochs = [losses.seen[start : start + steps] for start in range(0, 3 * steps, steps)]
    assert len(losses.seen) == 3 * steps
    assert [row["loss"] for row in history.rows] == pytest.approx([sum(e) / steps for e in epochs], rel=1e-6)
    written = list(csv.DictReader((tmp_path / "history.csv").read_text().splitlines()))
    assert [float(row["loss"]) for row in written] == [row["loss"] for row in history.rows]
    assert [int(row["step"]) for row in written] == [steps, 2 * steps, 3 * steps]


def test_what_is_watched_after_an_epoch_is_part_of_its_row(tmp_path: Path) -> None:
    config = composed(*SMALL, "dataset.batch_size=full", "trainer.max_epochs=3")
    data = make_data(config)
    model = make_model(config, data).train()
    model.initialise(data)
    history = History(tmp_path / "history.csv", lambda epoch: {"watched_error": 0.5} if epoch == 1 else {})
    make_trainer(config, history, tmp_path).fit(model, datamodule=data)
    assert [row.get("watched_error") for row in history.rows] == [None, 0.5, None]
    written = list(csv.DictReader((tmp_path / "history.csv").read_text().splitlines()))
    assert [row["watched_error"] for row in written] == ["nan", "0.5", "nan"]


def test_a_file_has_the_columns_of_all_rows() -> None:
    rows = [{"epoch": 0, "loss": 1.0, "kl": 2.0}, {"epoch": 1, "loss": 3.0, "fit": 4.0}]
    lines = as_csv(rows).split()
    assert lines == ["epoch,loss,kl,fit", "0,1.0,2.0,nan", "1,3.0,nan,4.0"]
