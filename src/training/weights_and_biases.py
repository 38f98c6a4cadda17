"""Weights & Biases as a dashboard: online if it is possible, otherwise offline, and never in the way of a run."""

import os
import ssl
from functools import partial
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any, Literal
from urllib.error import HTTPError
from urllib.request import urlopen

from src.training.dashboards import About, Dashboard, Row, notice

if TYPE_CHECKING:
    import wandb

ANSWER_SECONDS = 3  # the longest wait for a dead network
INIT_SECONDS = 20  # the longest wait for a server that answers but does not accept the run
UPLOAD_SECONDS = 30  # the longest wait for a network that died during the training; what is not sent stays on disk


class Wandb(Dashboard):
    """One run of Weights & Biases, in `wandb/`."""

    run: "wandb.Run"

    def __init__(self, project: str, entity: str | None) -> None:
        self.project, self.entity = project, entity

    def open(self, folder: Path, about: About, epochs: int) -> None:
        """Go online if possible, after an interruption from the last row on the server; otherwise start offline."""
        mode, reason = wandb_mode()
        import wandb

        settings = wandb.Settings(
            silent=True, init_timeout=INIT_SECONDS, finish_timeout=UPLOAD_SECONDS, finish_timeout_raises=True
        )
        where = partial(wandb.init, dir=folder, project=self.project, entity=self.entity, settings=settings)
        begin = partial(where, id=about.id, name=about.name, group=about.group, job_type=about.model, tags=about.tags)
        # Offline runs cannot be resumed: each part holds all rows from the first, and the last part replaces all.
        resume: Literal["allow"] | None = "allow" if mode == "online" and epochs else None
        try:
            self.run = begin(config=about.config, mode=mode, resume=resume)
        except wandb.Error as error:
            wandb.teardown()  # otherwise its service keeps the run
            mode, reason = "offline", f"the server does not take this run: {str(error).splitlines()[0]}"
            self.run = begin(config=about.config, mode="offline")
        self.sent = self.run.step
        notice(f"wandb: {self.run.url}" if mode == "online" else f"wandb: {mode}" + (f" ({reason})" if reason else ""))

    def show_row(self, row: Row) -> None:
        """Log one step per epoch."""
        self.run.log(row, step=int(row["epoch"]))

    def show_pictures(self, pictures: list[Path], epoch: int) -> None:
        """Log pictures beside the row of the epoch."""
        import wandb

        images = {f"figures/{picture.stem}": wandb.Image(str(picture)) for picture in pictures}
        self.run.log(images, step=epoch)

    def show_metrics(self, metrics: dict[str, float]) -> None:
        """Show the metrics in the summary of the run."""
        self.run.summary.update(metrics)

    def close(self, failed: bool) -> None:
        """Finish the run; if the server does not have all of it, say how to upload it."""
        is_there = not self.run.offline
        try:
            self.run.finish(exit_code=int(failed))
        except TimeoutError:
            is_there = False
        if not is_there:
            notice(f"wandb: to upload this run: wandb sync {Path(self.run.dir).parent}")


def wandb_mode() -> tuple[Any, str | None]:
    """`online` if wandb has a key and its server answers, otherwise `offline` and why; the user's own choice wins."""
    os.environ.setdefault("WANDB_ERROR_REPORTING", "false")  # its crash reports delay a process without a network
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
    """Whether a server answers; asked in a thread, because the look-up of its name has no time limit."""
    heard = []

    def ask() -> None:
        try:
            urlopen(url, timeout=ANSWER_SECONDS).close()
        except HTTPError as error:
            if error.code >= 500:  # a gateway that reaches no server
                return
        except OSError as error:
            if not isinstance(getattr(error, "reason", None), ssl.SSLError):  # wandb judges the certificate itself
                return
        heard.append(url)

    thread = Thread(target=ask, daemon=True)
    thread.start()
    thread.join(ANSWER_SECONDS)
    return bool(heard)
