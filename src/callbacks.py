"""What a run shows and keeps while it trains."""

import csv
import io
import sys
import time
from pathlib import Path
from typing import Any

from pytorch_lightning import Callback, LightningModule, Trainer
from pytorch_lightning.callbacks import Checkpoint, ProgressBar
from tqdm import tqdm

from src.files import whole, write_whole
from src.runs import CHECKPOINTS


class History(Callback):
    """The curves: the means over every epoch, one row an epoch in `history.csv`.

    The rows travel in the checkpoint, so a resumed run has them all. Sums are kept here because Lightning's own logging
    costs more than a small model's step.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: list[dict[str, float]] = []

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start the sums and the clock of this epoch."""
        self.sums: dict[str, Any] = {}
        self.started = time.perf_counter()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, outputs: Any, *_: Any) -> None:
        """Add up, on the device: nothing waits for the numbers."""
        self.sums = {name: value + self.sums.get(name, 0) for name, value in outputs.items()}

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Add the epoch's means, and write the file whole."""
        seconds = time.perf_counter() - self.started
        self.means = {name: float(total) / trainer.num_training_batches for name, total in self.sums.items()}
        self.rows.append(
            {"epoch": trainer.current_epoch, "step": trainer.global_step, "seconds": seconds, **self.means}
        )
        text = io.StringIO()
        writer = csv.DictWriter(text, self.rows[0])
        writer.writeheader()
        writer.writerows(self.rows)
        write_whole(self.path, text.getvalue())

    def state_dict(self) -> dict[str, Any]:
        """The rows, for the checkpoint."""
        return {"rows": self.rows}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on after the checkpoint's last row."""
        self.rows = state_dict["rows"]


class LastCheckpoints(Checkpoint):
    """`last.ckpt` after every epoch, written whole; the one before stays as `previous.ckpt`."""

    def __init__(self, folder: Path) -> None:
        self.last, self.previous = (folder / name for name in CHECKPOINTS)

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lightning calls checkpoints last, so that the epoch's row of the history is in it."""
        with whole(self.last) as unfinished:
            trainer.save_checkpoint(unfinished)
            if self.last.exists():
                self.last.replace(self.previous)


class Progress(ProgressBar):
    """One bar for the whole training; where there is no terminal, a plain line an epoch."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history
        self.terminal = sys.stderr.isatty()

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar where the run stands."""
        total = (trainer.max_epochs or 0) * int(trainer.num_training_batches)
        self.bar = tqdm(None, "training", total, initial=trainer.global_step, unit="step", disable=not self.terminal)
        self.samples, self.started = 0, time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Count."""
        self.samples += len(batch.x)
        self.bar.update()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the objective and its parts, and how fast it goes."""
        throughput = self.samples / (time.perf_counter() - self.started)
        shown = {name: f"{value:.4g}" for name, value in self.history.means.items() if name != "jitter" or value}
        self.bar.set_postfix(epoch=trainer.current_epoch + 1, **shown, refresh=False)
        if not self.terminal:
            values = "  ".join(f"{name} {value}" for name, value in shown.items())
            line = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  {values}  {throughput:,.0f} samples/s"
            print(line, file=sys.stderr, flush=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the finished bar on the screen."""
        self.bar.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the bar where it stopped."""
        if hasattr(self, "bar"):
            self.bar.close()
