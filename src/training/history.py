"""The curves of a run: one row per epoch in `history.csv`."""

import csv
import io
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer

from src.models.base import Model
from src.runs.files import write_whole

MISSING = "nan"  # a part that another phase has and this one has not; readers take every cell as a number


class History(Callback):
    """The means of the loss and its parts over every epoch.

    The rows are kept in the checkpoint, so a resumed run has them all. Sums are kept here because Lightning's own
    logging costs more than a step of a small model. `watch` tells what else there is to say after an epoch, such as
    scores; its time does not count. Without a path, the rows stay in memory.
    """

    def __init__(
        self, path: Path | None = None, watch: Callable[[int], Mapping[str, float]] = lambda epoch: {}
    ) -> None:
        self.path, self.watch = path, watch
        self.rows: list[dict[str, float]] = []
        self.sums: dict[str, Any] = {}  # over the steps of this epoch
        self.seconds = 0.0  # of this epoch, before the checkpoint that it was resumed from

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock: an epoch that is resumed has no start of its own."""
        self.started = time.perf_counter()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the sums and the clock of this epoch."""
        self.sums, self.seconds, self.started = {}, 0.0, time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Add the step's values, on the device, without waiting for them."""
        assert isinstance(pl_module, Model)
        self.sums = {name: value + self.sums.get(name, 0) for name, value in pl_module.step_values.items()}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add the row of this epoch and write the file."""
        assert isinstance(pl_module, Model)
        means = [float(total) / trainer.num_training_batches for total in self.sums.values()]
        self.means = dict(zip(self.sums, over_processes(trainer, means), strict=True))
        where = {"epoch": trainer.current_epoch, "step": trainer.global_step, "seconds": self.elapsed()}
        if len(pl_module.phases) > 1:
            where["phase"] = pl_module.phase_number
        self.rows.append({**where, **self.means, **self.watch(trainer.current_epoch)})
        if trainer.is_global_zero and self.path is not None:
            write_whole(self.path, as_csv(self.rows))

    def elapsed(self) -> float:
        """The seconds of this epoch so far."""
        return self.seconds + time.perf_counter() - self.started

    def state_dict(self) -> dict[str, Any]:
        """The rows, and the sums of an epoch that has not ended, for the checkpoint."""
        return {"rows": self.rows, "sums": self.sums, "seconds": self.elapsed()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from a checkpoint."""
        self.rows, self.sums, self.seconds = (state_dict[name] for name in ("rows", "sums", "seconds"))


def as_csv(rows: list[dict[str, float]]) -> str:
    """Rows as CSV, with the columns of all of them: the parts of the loss differ between phases."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval=MISSING)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def over_processes(trainer: Trainer, values: list[float]) -> list[float]:
    """The means of values over all processes that train together."""
    if trainer.world_size == 1:
        return values
    means = trainer.strategy.reduce(torch.tensor(values, device=trainer.strategy.root_device), reduce_op="mean")
    assert isinstance(means, torch.Tensor)
    return means.tolist()
