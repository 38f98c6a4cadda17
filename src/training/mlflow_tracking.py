"""MLflow as a dashboard: a tracking server, or a database in the folder of outputs; never in the way of a run."""

import logging
import os
import re
import time
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from filelock import FileLock

from src.runs.files import read_json, write_json
from src.training.dashboards import About, Dashboard, Row, flat, notice
from src.training.weights_and_biases import answers

if TYPE_CHECKING:
    from mlflow import MlflowClient

URI = "MLFLOW_TRACKING_URI"  # environment variable: where to track runs
FILE = "mlflow.json"  # in the run's folder: where MLflow tracks it, and under which id
LONGEST = 6000  # characters that a parameter may have
MOST = 100  # parameters that a request may have
UNLESS_SET = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",  # we say where a run is when it begins
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1",  # seven retries, its default, hold a run for minutes if the server dies
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",  # seconds
}


class MLflow(Dashboard):
    """One run of MLflow: config, curves, figures, final metrics and the checkpoint."""

    client: "MlflowClient"
    run_id: str

    def __init__(self, experiment: str) -> None:
        self.experiment = experiment

    def open(self, folder: Path, about: About, epochs: int) -> None:
        """Resume a run after its last row that MLflow has; a run that starts from the beginning is another one."""
        self.folder, uri = folder, tracking_uri(folder)
        self.client = connected(uri, folder.parent)
        before, shown = read_json(folder / FILE), without_password(uri)
        known = before.get("run_id") if before.get("uri") == shown else None
        if not (known and epochs and self.resume(known)):
            self.abandon(known)
            self.begin(about, uri)
        write_json(folder / FILE, {"uri": shown, "run_id": self.run_id})
        notice(f"mlflow: {self.place(shown)}")

    def place(self, uri: str) -> str:
        """Where to see the run: its page on a server, or its name in a database."""
        experiment = self.client.get_run(self.run_id).info.experiment_id
        return (
            f"{uri}/#/experiments/{experiment}/runs/{self.run_id}"
            if uri.startswith("http")
            else f"{uri}, run {self.run_id}"
        )

    def resume(self, run_id: str) -> bool:
        """Continue a run; False if MLflow has it no more."""
        from mlflow.exceptions import MlflowException

        try:
            self.client.update_run(run_id, status="RUNNING")
            rows = self.client.get_metric_history(run_id, "epoch")
        except MlflowException:
            return False
        self.run_id, self.sent = run_id, 1 + max((point.step for point in rows), default=-1)
        return True

    def abandon(self, run_id: str | None) -> None:
        """Close a run that a killed process left open, so that it does not seem to run for ever."""
        from mlflow.exceptions import MlflowException

        try:
            if run_id is not None and self.client.get_run(run_id).info.status == "RUNNING":
                self.client.set_terminated(run_id, "KILLED")
        except MlflowException as error:
            notice(f"mlflow: {without_password(str(error))}")

    def begin(self, about: About, uri: str) -> None:
        """Begin a run, with its config as parameters and as a file."""
        from mlflow.entities import Param

        tags = {"model": about.model, "dataset": about.tags[0], "fingerprint": about.id, "group": about.group or ""}
        experiment = self.experiment_id(artifacts_of(uri, self.folder))
        self.run_id = self.client.create_run(experiment, run_name=about.name, tags=tags).info.run_id
        params = [Param(key, str(value)[:LONGEST]) for key, value in flat(about.config).items()]
        for first in range(0, len(params), MOST):
            self.client.log_batch(self.run_id, params=params[first : first + MOST])
        self.client.log_dict(self.run_id, about.config, "config.yaml")

    def experiment_id(self, artifacts: str | None) -> str:
        """The experiment of our runs, which the first of them creates."""
        from mlflow.exceptions import MlflowException

        if found := self.client.get_experiment_by_name(self.experiment):
            return str(found.experiment_id)
        try:
            return str(self.client.create_experiment(self.experiment, artifacts))
        except MlflowException:  # another run was faster
            if found := self.client.get_experiment_by_name(self.experiment):
                return str(found.experiment_id)
            raise

    def show_row(self, row: Row) -> None:
        """Add a point to each curve."""
        self.log(row, int(row["epoch"]))

    def log(self, values: Mapping[str, float], step: int) -> None:
        """Log values in one request."""
        from mlflow.entities import Metric

        now = int(time.time() * 1000)  # milliseconds
        self.client.log_batch(self.run_id, [Metric(name, value, now, step) for name, value in values.items()])

    def show_pictures(self, pictures: list[Path], epoch: int) -> None:
        """Replace the pictures by new ones."""
        for picture in pictures:
            self.client.log_artifact(self.run_id, str(picture), "figures")

    def show_metrics(self, metrics: dict[str, float]) -> None:
        """Log the final metrics, and the trained model as a file."""
        self.log(metrics, max(self.sent - 1, 0))
        self.client.log_artifact(self.run_id, str(self.folder / "model.ckpt"))

    def close(self, failed: bool) -> None:
        """End the run; it has everything already."""
        self.client.set_terminated(self.run_id, "FAILED" if failed else "FINISHED")


def tracking_uri(folder: Path) -> str:
    """The user's choice, or a database beside the folder of the run: MLflow takes no folder of files any more."""
    return os.environ.get(URI) or f"sqlite:///{folder.parent.absolute() / 'mlflow.db'}"


def artifacts_of(uri: str, folder: Path) -> str | None:
    """Where files go: a server knows a place, a database of ours gets a folder beside it."""
    return (folder.parent.absolute() / ".mlflow").as_uri() if uri.startswith("sqlite:") else None


def connected(uri: str, outputs: Path) -> "MlflowClient":
    """A client of a server that answers, or of a database. Of several runs, one makes the database."""
    for name, value in {**UNLESS_SET, **credentials(uri)}.items():
        os.environ.setdefault(name, value)
    if uri.startswith("http") and not answers(uri := without_password(uri)):  # messages of MLflow show the address
        raise ConnectionError(f"no answer from {uri}")
    with FileLock(outputs / ".mlflow.lock"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of its use of SQLAlchemy
        from mlflow import MlflowClient

        for name in ("alembic", "mlflow.store.db.utils"):  # they list every step in which they make a database
            logging.getLogger(name).setLevel(logging.WARNING)
        return MlflowClient(uri)


def credentials(uri: str) -> dict[str, str]:
    """Name and password in the address of a server, as the environment variables that MLflow reads them from."""
    parts = urlsplit(uri)
    if not uri.startswith("http") or parts.username is None:
        return {}
    values = unquote(parts.username), unquote(parts.password or "")
    return dict(zip(("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"), values, strict=True))


def without_password(text: str) -> str:
    """An address as it may be shown and stored."""
    return re.sub(r"//[^/@\s]+@", "//", text)
