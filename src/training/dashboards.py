"""Dashboards that show a run while it trains; the record itself is `history.csv`, whatever is shown elsewhere."""

import os
import ssl
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.error import HTTPError
from urllib.request import urlopen

from omegaconf import OmegaConf
from pytorch_lightning import Callback, LightningModule, Trainer

from src.runs.identity import Config
from src.runs.record import log
from src.runs.specs import Spec, make
from src.training.callbacks import History

if TYPE_CHECKING:
    import wandb

Row = dict[str, float]

ANSWER_SECONDS = 3  # what a dead network costs
INIT_SECONDS = 20  # what a server costs that answers but does not serve
UPLOAD_SECONDS = 30  # what a network costs that died during the training; what is not sent stays on disk


class About(NamedTuple):
    """What a dashboard says of a run."""

    name: str
    id: str  # the same for a run and what continues it
    group: str | None  # the name of its sweep
    model: str
    tags: list[str]
    config: Config


class Dashboard(ABC):
    """Takes the rows of the history that it does not have yet, pictures, and the final metrics."""

    sent = 0  # rows it has

    @abstractmethod
    def open(self, folder: Path, about: About, epochs: int) -> None:
        """Begin, or go on after so many epochs."""

    @abstractmethod
    def show_row(self, row: Row) -> None:
        """The means of one epoch."""

    @abstractmethod
    def show_pictures(self, pictures: list[Path], epoch: int) -> None:
        """PNG files, as they are after this epoch."""

    @abstractmethod
    def show_metrics(self, metrics: dict[str, float]) -> None:
        """What the run ends with."""

    @abstractmethod
    def close(self, failed: bool) -> None:
        """Leave nothing waiting."""

    def catch_up(self, rows: list[Row]) -> None:
        """Show the rows that are new here: the last, or all where the run's first part was shown elsewhere."""
        for row in rows[self.sent :]:
            self.show_row(row)
        self.sent = max(self.sent, len(rows))


class TensorBoard(Dashboard):
    """Event files in `tensorboard/`."""

    def open(self, folder: Path, about: About, epochs: int) -> None:
        """A further event file; what an interrupted run wrote after its checkpoint is hidden."""
        from torch.utils.tensorboard import SummaryWriter

        self.writer = SummaryWriter(folder / "tensorboard", purge_step=epochs or None)
        self.writer.add_text("config", f"```yaml\n{OmegaConf.to_yaml(about.config)}```")
        self.config = about.config
        self.sent = epochs

    def show_row(self, row: Row) -> None:
        """A curve each."""
        for name, value in row.items():
            self.writer.add_scalar(name, value, int(row["epoch"]))

    def show_pictures(self, pictures: list[Path], epoch: int) -> None:
        """Without their transparency, which TensorBoard shows as black."""
        from matplotlib.image import imread

        for picture in pictures:
            self.writer.add_image(f"figures/{picture.stem}", imread(picture)[..., :3], epoch, dataformats="HWC")

    def show_metrics(self, metrics: dict[str, float]) -> None:
        """In the table of hyperparameters, beside the whole config."""
        self.writer.add_hparams(flat(self.config), {f"test/{k}": v for k, v in metrics.items()}, run_name=".")

    def close(self, failed: bool) -> None:
        """Write what is waiting."""
        self.writer.close()


class Wandb(Dashboard):
    """One run of Weights & Biases, in `wandb/`."""

    run: "wandb.Run"

    def __init__(self, project: str, entity: str | None) -> None:
        self.project, self.entity = project, entity

    def open(self, folder: Path, about: About, epochs: int) -> None:
        """Online if that is possible, and after an interruption from where the server stands; else offline, anew."""
        mode, reason = wandb_mode()
        import wandb

        settings = wandb.Settings(
            silent=True, init_timeout=INIT_SECONDS, finish_timeout=UPLOAD_SECONDS, finish_timeout_raises=True
        )
        where = partial(wandb.init, dir=folder, project=self.project, entity=self.entity, settings=settings)
        begin = partial(where, id=about.id, name=about.name, group=about.group, job_type=about.model, tags=about.tags)
        # Offline runs cannot be continued: each part holds all rows from the first, and the last replaces all.
        resume: Literal["allow"] | None = "allow" if mode == "online" and epochs else None
        try:
            self.run = begin(config=about.config, mode=mode, resume=resume)
        except wandb.Error as error:
            wandb.teardown()  # its service still holds the run
            mode, reason = "offline", f"the server does not take this run: {str(error).splitlines()[0]}"
            self.run = begin(config=about.config, mode="offline")
        self.sent = self.run.step
        notice(f"wandb: {self.run.url}" if mode == "online" else f"wandb: {mode}" + (f" ({reason})" if reason else ""))

    def show_row(self, row: Row) -> None:
        """One step an epoch."""
        self.run.log(row, step=int(row["epoch"]))

    def show_pictures(self, pictures: list[Path], epoch: int) -> None:
        """Beside the epoch's row."""
        import wandb

        images = {f"figures/{picture.stem}": wandb.Image(str(picture)) for picture in pictures}
        self.run.log(images, step=epoch)

    def show_metrics(self, metrics: dict[str, float]) -> None:
        """In the run's summary."""
        self.run.summary.update(metrics)

    def close(self, failed: bool) -> None:
        """Finish the run, and say how one is uploaded that is not, or not whole, on the server."""
        is_there = not self.run.offline
        try:
            self.run.finish(exit_code=int(failed))
        except TimeoutError:
            is_there = False
        if not is_there:
            notice(f"wandb: to upload this run: wandb sync {Path(self.run.dir).parent}")


class Dashboards(Callback):
    """Feeds the chosen dashboards once an epoch from the history's means, and closes them whatever happens."""

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
        """Tell every dashboard; one that breaks is left out from there on, since no run is worth less without it."""
        for board in list(self.boards):
            try:
                show(board)
            except Exception as error:
                self.boards.remove(board)
                log(self.folder, traceback.format_exc())
                notice(f"{type(board).__name__} is left out from here on: {error}")

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Open, now that a checkpoint's rows are back; in one process only."""
        self.boards = self.chosen if trainer.is_global_zero else []
        self.each(lambda board: board.open(self.folder, self.about, len(self.history.rows)))
        self.each(lambda board: board.catch_up(self.history.rows))

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """The epoch's means and, now and then, the figures; the last ones come with the metrics."""
        self.each(lambda board: board.catch_up(self.history.rows))
        epochs = trainer.current_epoch + 1
        if self.boards and self.media_every and epochs % self.media_every == 0 and epochs != trainer.max_epochs:
            pl_module.eval()
            self.draw()
            pl_module.train()
            self.show_pictures()

    def show_pictures(self) -> None:
        """The figures as they are on disk."""
        pictures = sorted((self.folder / "figures").glob("*.png"))
        self.each(lambda board: board.show_pictures(pictures, len(self.history.rows) - 1))

    def finish(self, metrics: dict[str, float]) -> None:
        """The final figures and the metrics."""
        self.show_pictures()
        self.each(lambda board: board.show_metrics(metrics))


def wandb_mode() -> tuple[Any, str | None]:
    """`online` where wandb has a key and its server answers, else `offline` and why; a mode the user chose is kept."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # its reports on itself hold up a process without a network
    import wandb

    settings = wandb.setup(wandb.Settings(silent=True)).settings
    if settings.mode != "online":
        return settings.mode, None
    try:
        if not wandb.login(prompt=False, verify=False):
            return "offline", "no API key: `wandb login` once"
    except wandb.Error as error:
        return "offline", str(error)
    if not answers(settings.base_url):
        return "offline", f"no answer from {settings.base_url}"
    return "online", None


def answers(url: str) -> bool:
    """Whether a server says anything; asked in a thread, since looking up its name knows no time limit."""
    heard = []

    def ask() -> None:
        try:
            urlopen(url, timeout=ANSWER_SECONDS).close()
        except HTTPError as error:
            if error.code >= 500:  # a gateway's word for nobody there
                return
        except OSError as error:
            if not isinstance(getattr(error, "reason", None), ssl.SSLError):  # its certificate is for wandb to judge
                return
        heard.append(url)

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return bool(heard)


def flat(config: Config, prefix: str = "") -> dict[str, Any]:
    """The leaves of a nested config by their dotted names, as TensorBoard takes them."""
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
