"""When a run writes its checkpoints, and when it stops at one."""

import math
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint

from src.runs.errors import Interrupted
from src.runs.files import whole
from src.runs.record import CHECKPOINTS, is_asked_to_stop

SIGTERM = "SIGTERM"
SIGTERM_EXIT = 143  # the exit code that shells give a process that SIGTERM ended
SHARE = 200  # between two checkpoints passes at least so many times the time that one takes to write


class Checkpoints(Checkpoint):
    """Writes `last.ckpt` after every epoch and every few minutes of a long one; the one before is `previous.ckpt`.

    Short epochs skip the checkpoint if saving would exceed 0.5 % of the training time; the last epoch always saves.
    A run also stops here, after a checkpoint: when its time budget is used up, when it is cancelled, and at SIGTERM.
    """

    def __init__(self, folder: Path, minutes: float, max_time: float | None = None) -> None:
        self.folder, self.seconds, self.writing = folder, 60 * minutes, 0.0
        self.saved = self.looked = time.monotonic()
        self.deadline = math.inf if max_time is None else time.monotonic() + max_time

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        """Save or stop within an epoch; its last batch is left to the end of the epoch."""
        if not trainer.is_last_batch:
            self.save_or_stop(trainer, self.reason_to_stop(trainer), every=self.seconds)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save or stop after an epoch. Lightning calls checkpoints last, so the epoch's row of the history is saved."""
        if trainer.current_epoch + 1 == trainer.max_epochs:
            self.save(trainer)
        else:
            self.save_or_stop(trainer, self.reason_to_stop(trainer), every=min(self.seconds, SHARE * self.writing))

    def save_or_stop(self, trainer: Trainer, reason: str | None, every: float) -> None:
        """Save if the last checkpoint is `every` seconds old; if there is a reason to stop, save and stop."""
        if self.agreed(trainer, reason is not None or time.monotonic() >= self.saved + every):
            self.save(trainer)
            self.stop_for(self.agreed(trainer, reason or self.reason_to_stop(trainer)))  # it may have come meanwhile

    def agreed(self, trainer: Trainer, decision: Any) -> Any:
        """The decision of the first process: all save and stop together, or none."""
        return trainer.strategy.broadcast(decision)

    def reason_to_stop(self, trainer: Trainer) -> str | None:
        """Why to stop, or None; the file system is asked at most once per second."""
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
        """Stop if there is a reason. SIGTERM ends a whole sweep, the other reasons end this run."""
        if reason == SIGTERM:
            raise SystemExit(SIGTERM_EXIT)
        if reason is not None:
            raise Interrupted(f"{self.folder} stopped, {reason}; the same command continues it")

    def save(self, trainer: Trainer) -> None:
        """Write the checkpoint; a kill at any moment leaves a whole one."""
        started = time.monotonic()
        last, previous = (self.folder / name for name in CHECKPOINTS)
        with written_by_first(trainer, last) as unfinished:
            trainer.save_checkpoint(unfinished)
            if trainer.is_global_zero and last.exists():
                last.replace(previous)
        self.saved = time.monotonic()
        self.writing = self.saved - started


def written_by_first(trainer: Trainer, path: Path) -> AbstractContextManager[Path]:
    """Where to save a checkpoint: all processes take part, and the first one writes the file."""
    return whole(path) if trainer.is_global_zero else nullcontext(path)
