"""What a person sees while a run trains."""

import sys
import time
from typing import Any

from pytorch_lightning import LightningModule, Trainer
from pytorch_lightning.callbacks import ProgressBar
from tqdm import tqdm

from src.training.history import History

BAR = "{percentage:3.0f}%|{bar}| {elapsed}<{remaining}{postfix}"  # short, so that four values fit 80 columns


class Progress(ProgressBar):
    """One bar for the whole training in a terminal; otherwise one plain line per epoch."""

    def __init__(self, history: History) -> None:
        super().__init__()
        self.history = history
        self.form = "bar" if sys.stderr.isatty() else "lines"

    def disable(self) -> None:
        """Show nothing: Lightning calls this in all processes but the first."""
        self.form = "nothing"

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the bar at the step that the run starts or resumes from."""
        self.bar = tqdm(
            total=total_steps(trainer), initial=trainer.global_step, bar_format=BAR, disable=self.form != "bar"
        )
        self.first_step, self.first_started = trainer.global_step, time.perf_counter()
        self.samples, self.started = 0, self.first_started

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Start counting again: the time between epochs does not count."""
        self.samples, self.started = 0, time.perf_counter()

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        """Count the samples and move the bar."""
        self.samples += len(batch.x)
        self.bar.update()

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the loss and its parts, the throughput and the time left."""
        throughput = self.samples / (time.perf_counter() - self.started)
        shown = {name: value for name, value in self.history.means.items() if name != "jitter" or value}
        values = " ".join(f"{name} {value:.3g}" for name, value in shown.items())
        self.bar.set_postfix_str(f"{tqdm.format_sizeof(throughput)}/s {values}", refresh=False)
        if self.form == "lines":
            values = "  ".join(f"{name} {value:.4g}" for name, value in shown.items())
            line = f"epoch {trainer.current_epoch + 1}/{trainer.max_epochs}  {values}  {throughput:,.0f} samples/s"
            print(f"{line}  {tqdm.format_interval(self.seconds_left(trainer))} left", file=sys.stderr, flush=True)

    def seconds_left(self, trainer: Trainer) -> float:
        """The time left at the average pace of this process."""
        seconds_per_step = (time.perf_counter() - self.first_started) / (trainer.global_step - self.first_step)
        return seconds_per_step * (total_steps(trainer) - trainer.global_step)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Leave the finished bar on the screen."""
        self.bar.close()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        """Leave the bar where it stopped."""
        if hasattr(self, "bar"):
            self.bar.close()


def total_steps(trainer: Trainer) -> int:
    """The steps of the whole training."""
    return (trainer.max_epochs or 0) * int(trainer.num_training_batches)
