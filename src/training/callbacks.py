"""What a run shows and keeps while it trains."""

import csv
import io
import math
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint, ProgressBar
from tqdm import tqdm

from src.runs.errors import Interrupted
from src.runs.files import whole, write_whole
from src.runs.record import CHECKPOINTS, is_asked_to_stop

SIGTERM = "SIGTERM"


class History(Callback):
    """The curves: the means over every epoch, one row an epoch in `history.csv`.

    The rows travel in the checkpoint, so a resumed run has them all. Sums are kept here because Lightning's own logging
    costs more than a small model's step.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, float]] = []
        self.sums: dict[str, Any] = {}  # of this epoch
        self.seconds = 0.0  # of this epoch, before the checkpoint that it went on from

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the clock: an epoch that goes on has no other start."""
        self.started = time.perf_counter()

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the sums and the clock of this epoch."""
        self.sums, self.seconds, self.started = {}, 0.0, time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any) -> None:
        """Add up, on the device: nothing waits for the numbers."""
        self.sums = {name: value + self.sums.get(name, 0) for name, value in outputs.items()}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add the epoch's means, and write the file whole."""
        means = [float(total) / trainer.num_training_batches for total in self.sums.values()]
        self.means = dict(zip(self.sums, over_processes(trainer, means), strict=True))
        where = {"epoch": trainer.current_epoch, "step": trainer.global_step, "seconds": self.elapsed()}
        self.rows.append({**where, **self.means})
        text = io.StringIO()
        writer = csv.DictWriter(text, self.rows[0])
        writer.writeheader()
        writer.writerows(self.rows)
        if trainer.is_global_zero:
            write_whole(self.path, text.getvalue())

    def elapsed(self) -> float:
        """The seconds of this epoch so far."""
        return self.seconds + time.perf_counter() - self.started

    def state_dict(self) -> dict[str, Any]:
        """The rows and the sums of a part of an epoch, for the checkpoint."""
        return {"rows": self.rows, "sums": self.sums, "seconds": self.elapsed()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on where the checkpoint was written."""
        self.rows, self.sums, self.seconds = (state_dict[name] for name in ("rows", "sums", "seconds"))


def over_processes(trainer: Trainer, values: list[float]) -> list[float]:
    """The means of values over all processes that train together."""
    if trainer.world_size == 1:
        return values
    means = trainer.strategy.reduce(torch.tensor(values, device=trainer.strategy.root_device), reduce_op="mean")
    assert isinstance(means, torch.Tensor)
    return means.tolist()


class Checkpoints(Checkpoint):
    """`last.ckpt` after every epoch and, in long epochs, every few minutes; the one before stays as `previous.ckpt`.

    Where writing would take more than half a hundredth of the time, short epochs go without; the last one does not.
    A run stops here too, after a checkpoint: when its time is over, when it was asked to, and at SIGTERM.
    """

    def __init__(self, folder: Path, minutes: float, max_time: float | None = None) -> None:
        self.folder, self.seconds, self.writing = folder, 60 * minutes, 0.0
        self.saved = self.looked = time.monotonic()
        self.deadline = math.inf if max_time is None else time.monotonic() + max_time

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """The last batch is left to the end of the epoch."""
        if not trainer.is_last_batch:
            self.save_or_stop(trainer, self.reason_to_stop(trainer), every=self.seconds)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lightning calls checkpoints last, so that the epoch's row of the history is in it."""
        if trainer.current_epoch + 1 == trainer.max_epochs:
            self.save(trainer)
        else:
            self.save_or_stop(trainer, self.reason_to_stop(trainer), every=min(self.seconds, 200 * self.writing))

    def save_or_stop(self, trainer: Trainer, reason: str | None, every: float) -> None:
        """Save where there is a reason to stop, and then do, or where the last checkpoint is so many seconds old."""
        if self.agreed(trainer, reason is not None or time.monotonic() >= self.saved + every):
            self.save(trainer)
            self.stop_for(self.agreed(trainer, reason))

    def agreed(self, trainer: Trainer, decision: Any) -> Any:
        """What the first of several processes decided: all save and stop together, or none."""
        return trainer.strategy.broadcast(decision)

    def reason_to_stop(self, trainer: Trainer) -> str | None:
        """Why to stop, if at all; the file system is asked once a second."""
        now = time.monotonic()
        if trainer.received_sigterm:
            return SIGTERM
        if now > self.deadline:
            return "the time of trainer.max_time is over"
        if now > self.looked + 1:
            self.looked = now
            if is_asked_to_stop(self.folder):
                return "it was cancelled"
        return None

    def stop_for(self, reason: str | None) -> None:
        """Stop where there is a reason; SIGTERM ends a whole sweep, the others this run."""
        if reason == SIGTERM:
            raise SystemExit(143)
        if reason is not None:
            raise Interrupted(f"{self.folder} stopped, {reason}; the same command continues it")

    def save(self, trainer: Trainer) -> None:
        """Write the checkpoint whole."""
        started = time.monotonic()
        last, previous = (self.folder / name for name in CHECKPOINTS)
        with written_by_first(trainer, last) as unfinished:
            trainer.save_checkpoint(unfinished)
            if trainer.is_global_zero and last.exists():
                last.replace(previous)
        self.saved = time.monotonic()
        self.writing = self.saved - started


def written_by_first(trainer: Trainer, path: Path) -> AbstractContextManager[Path]:
    """Where to save a checkpoint, whole: all processes take part, of which the first writes."""
    return whole(path) if trainer.is_global_zero else nullcontext(path)


class Progress(ProgressBar):
    """One bar for the whole training; where there is no terminal, a plain line an epoch."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history
        self.form = "bar" if sys.stderr.isatty() else "lines"

    def disable(self) -> None:
        """Of several processes only the first shows anything."""
        self.form = "nothing"

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar where the run stands."""
        total = (trainer.max_epochs or 0) * int(trainer.num_training_batches)
        shape = "{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"  # the values of four parts fit 80 columns
        self.bar = tqdm(total=total, initial=trainer.global_step, bar_format=shape, disable=self.form != "bar")
        self.first_step, self.first_started = trainer.global_step, time.perf_counter()
        self.samples, self.started = 0, self.first_started

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Count anew: pictures between the epochs do not count."""
        self.samples, self.started = 0, time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Count."""
        self.samples += len(batch.x)
        self.bar.update()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the objective and its parts, how fast it goes and, beside the bar's own, the time left."""
        throughput = self.samples / (time.perf_counter() - self.started)
        shown = {name: value for name, value in self.history.means.items() if name != "jitter" or value}
        values = " ".join(f"{name} {value:.3g}" for name, value in shown.items())
        self.bar.set_postfix_str(f"{tqdm.format_sizeof(throughput)}/s {values}", refresh=False)
        if self.form == "lines":
            values = "  ".join(f"{name} {value:.4g}" for name, value in shown.items())
            line = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  {values}  {throughput:,.0f} samples/s"
            print(f"{line}  {tqdm.format_interval(self.seconds_left(trainer))} left", file=sys.stderr, flush=True)

    def seconds_left(self, trainer: Trainer) -> float:
        """At the pace of this process so far."""
        seconds_a_step = (time.perf_counter() - self.first_started) / (trainer.global_step - self.first_step)
        total = (trainer.max_epochs or 0) * int(trainer.num_training_batches)
        return seconds_a_step * (total - trainer.global_step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the finished bar on the screen."""
        self.bar.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the bar where it stopped."""
        if hasattr(self, "bar"):
            self.bar.close()
