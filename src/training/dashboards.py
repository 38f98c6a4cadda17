"""Dashboards that show a run while it trains. The record itself is `history.csv`; dashboards are optional."""

import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from omegaconf import OmegaConf
from pytorch_lightning import Callback, LightningModule, Trainer

from src.runs.identity import Config
from src.runs.record import log
from src.runs.specs import Spec, make
from src.training.history import History

Row = dict[str, float]


class About(NamedTuple):
    """What a dashboard says about a run."""

    name: str
    id: str  # the same after a resume
    group: str | None  # the name of its sweep
    model: str
    tags: list[str]
    config: Config


class Dashboard(ABC):
    """Shows new rows of the history, pictures, and the final metrics."""

    sent = 0  # how many rows it has shown

    @abstractmethod
    def open(self, folder: Path, about: About, epochs: int) -> None:
        """Begin, or resume after that many epochs."""

    @abstractmethod
    def show_row(self, row: Row) -> None:
        """Show the means of one epoch."""

    @abstractmethod
    def show_pictures(self, pictures: list[Path], epoch: int) -> None:
        """Show PNG files, as they are after this epoch."""

    @abstractmethod
    def show_metrics(self, metrics: dict[str, float]) -> None:
        """Show the final metrics of the run."""

    @abstractmethod
    def close(self, failed: bool) -> None:
        """Send or write everything that is waiting."""

    def catch_up(self, rows: list[Row]) -> None:
        """Show the rows that are new: the last one, or all if the first part of the run was shown elsewhere."""
        for row in rows[self.sent :]:
            self.show_row(row)
        self.sent = max(self.sent, len(rows))


class TensorBoard(Dashboard):
    """Event files in `tensorboard/`."""

    def open(self, folder: Path, about: About, epochs: int) -> None:
        """Begin another event file; rows that an interrupted run wrote after its checkpoint are hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder / "tensorboard", purge_step=epochs or None)
        self.writer.add_text("config", f"```yaml\n{OmegaConf.to_yaml(about.config)}```")
        self.config = about.config
        self.sent = epochs

    def show_row(self, row: Row) -> None:
        """Add a point to each curve."""
        for name, value in row.items():
            self.writer.add_scalar(name, value, int(row["epoch"]))

    def show_pictures(self, pictures: list[Path], epoch: int) -> None:
        """Show pictures without their transparency, which TensorBoard would show as black."""
        from matplotlib.image import imread

        for picture in pictures:
            self.writer.add_image(f"figures/{picture.stem}", imread(picture)[..., :3], epoch, dataformats="HWC")

    def show_metrics(self, metrics: dict[str, float]) -> None:
        """Show the metrics in the table of hyperparameters, beside the whole config."""
        self.writer.add_hparams(flat(self.config), {f"test/{k}": v for k, v in metrics.items()}, run_name=".")

    def close(self, failed: bool) -> None:
        """Write the event file to its end."""
        self.writer.close()


class Dashboards(Callback):
    """Feeds the chosen dashboards once per epoch from the history, and closes them whatever happens."""

    def __init__(self, spec: Spec, history: History, folder: Path, about: About, draw: Callable[[], None]) -> None:
        specs = dict(spec)
        self.media_every = specs.pop("media_every", None)
        self.chosen: list[Dashboard] = [make(board) for board in specs.values()]
        self.history, self.folder, self.about, self.draw = history, folder, about, draw
        self.boards: list[Dashboard] = []

    def __enter__(self) -> "Dashboards":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: Any) -> None:
        self.each(lambda board: board.close(failed=kind is not None))

    def each(self, show: Callable[[Dashboard], None]) -> None:
        """Call every dashboard. A failing dashboard is disabled; training continues."""
        for board in list(self.boards):
            try:
                show(board)
            except Exception as error:
                self.boards.remove(board)
                log(self.folder, traceback.format_exc())
                notice(f"{type(board).__name__} failed and is disabled: {error}")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open the dashboards, in one process only, once the rows of the checkpoint are restored."""
        self.boards = self.chosen if trainer.is_global_zero else []
        self.each(lambda board: board.open(self.folder, self.about, len(self.history.rows)))
        self.each(lambda board: board.catch_up(self.history.rows))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Show the row of this epoch and, every `media_every` epochs, the figures, except the last ones."""
        self.each(lambda board: board.catch_up(self.history.rows))
        epochs = trainer.current_epoch + 1
        if self.boards and self.media_every and epochs % self.media_every == 0 and epochs != trainer.max_epochs:
            pl_module.eval()
            self.draw()
            pl_module.train()
            self.show_pictures()

    def show_pictures(self) -> None:
        """Show the figures as they are on disk."""
        pictures = sorted((self.folder / "figures").glob("*.png"))
        self.each(lambda board: board.show_pictures(pictures, len(self.history.rows) - 1))

    def finish(self, metrics: dict[str, float]) -> None:
        """Show the final figures and the metrics."""
        self.show_pictures()
        self.each(lambda board: board.show_metrics(metrics))


def flat(config: Config, prefix: str = "") -> dict[str, Any]:
    """The leaves of a nested config by their dotted names, in the types that TensorBoard takes."""
    leaves: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, dict):
            leaves |= flat(value, f"{prefix}{key}.")
        else:
            leaves[prefix + key] = value if isinstance(value, bool | int | float) else str(value)
    return leaves


def notice(text: str) -> None:
    """One line for the person at the terminal or in the job's log."""
    print(text.rstrip(), file=sys.stderr, flush=True)
