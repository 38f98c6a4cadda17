"""MLflow: runs on a real server and in a database, interrupted and resumed, and never in the way of a run."""

import csv
import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from src.runs import files, record
from src.training import experiment
from src.training.dashboards import About
from src.training.mlflow_tracking import (
    FILE,
    URI,
    MLflow,
    artifacts_of,
    connected,
    credentials,
    tracking_uri,
    without_password,
)
from tests.configs import composed
from tests.launch.commands import TINY, command
from tests.training.test_experiment import SAME, interrupted, small_run

ABOUT = About("sas-digits", "0123abcd", "three", "sas", ["digits", "a20"], {"seed": 0})
ROWS = [{"epoch": epoch, "loss": 1.0 / (epoch + 1)} for epoch in range(7)]
FIGURES = {f"figures/{name}.png" for name in ("decoded_grid", "latent_map", "reconstructions")}
SERVER = "GP_DECODERS_MLFLOW"  # environment variable: the command of a whole MLflow, set by `make test-mlflow`
START_SECONDS = 120


@contextmanager
def server_in(folder: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A server on this machine with a database and files of its own."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    stores = ["--backend-store-uri", f"sqlite:///{folder}/server.db", "--artifacts-destination", str(folder / "files")]
    line = [os.environ[SERVER], "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1", *stores]
    url, log = f"http://127.0.0.1:{port}", folder / "server.log"
    environment = {name: value for name, value in os.environ.items() if name != URI}
    with (
        log.open("w") as output,
        subprocess.Popen(
            line, cwd=folder, env=environment, stdout=output, stderr=output, start_new_session=True
        ) as process,
    ):
        try:
            wait_for(f"{url}/health", process, log)
            yield url, process
        finally:
            with suppress(ProcessLookupError):  # a test has ended it
                os.killpg(process.pid, signal.SIGTERM)


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    for _ in range(10 * START_SECONDS):
        try:
            return urlopen(url, timeout=5).close()
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.1)
    raise AssertionError(log.read_text())


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "*")
        with server_in(tmp_path_factory.mktemp("server")) as (address, _):
            yield address


@pytest.fixture
def server(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A client of the server that runs use."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv(URI, url)
    return connected(url, tmp_path)


def run_id(folder: Path) -> str:
    return str(files.read_json(folder / FILE)["run_id"])


def steps(client: Any, run: str, name: str = "loss") -> list[int]:
    return [point.step for point in client.get_metric_history(run, name)]


def artifacts(client: Any, run: str, path: str | None = None) -> set[str]:
    found = client.list_artifacts(run, path)
    return {name for item in found for name in (artifacts(client, run, item.path) if item.is_dir else {item.path})}


@pytest.mark.mlflow
def test_a_server_has_everything_and_no_number_changes(server: Any, tmp_path: Path) -> None:
    plain = files.read_json(small_run(tmp_path / "plain") / "metrics.json")
    folder = small_run(tmp_path / "shown", "logger=mlflow", "logger.media_every=1", "group=three")
    metrics = files.read_json(folder / "metrics.json")
    assert {key: plain.get(key) for key in SAME} == {key: metrics.get(key) for key in SAME}
    run = server.get_run(run_id(folder))
    assert run.info.status == "FINISHED" and run.info.run_name == folder.name
    assert run.data.tags.items() >= {"model": "sas", "dataset": "digits", "group": "three"}.items()
    assert run.data.params.items() >= {"model.latent_dim": "2", "seed": "0", "dataset.max_train": "200"}.items()
    assert run.data.metrics.items() >= metrics.items()
    rows = list(csv.DictReader((folder / "history.csv").read_text().splitlines()))
    for name in rows[0]:
        points = server.get_metric_history(run.info.run_id, name)
        assert [(point.step, point.value) for point in points] == [(int(r["epoch"]), float(r[name])) for r in rows]
    assert artifacts(server, run.info.run_id) == {"config.yaml", "model.ckpt", *FIGURES}
    copy = server.download_artifacts(run.info.run_id, "model.ckpt", str(tmp_path))
    assert Path(copy).read_bytes() == (folder / "model.ckpt").read_bytes()


@pytest.mark.mlflow
def test_an_interrupted_run_resumes_by_its_id(server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(experiment, "evaluate", interrupted)
        small_run(tmp_path, "logger=mlflow")
    [folder] = tmp_path.glob("sas-*")
    first = run_id(folder)
    assert server.get_run(first).info.status == "FAILED"
    (folder / "last.ckpt").unlink()  # as if killed after the row of the last epoch and before its checkpoint
    small_run(tmp_path, "logger=mlflow")
    assert run_id(folder) == first and server.get_run(first).info.status == "FINISHED"
    assert steps(server, first) == [0, 1, 2]


@pytest.mark.mlflow
def test_a_run_from_the_beginning_is_another_one_and_the_dead_one_is_closed(server: Any, tmp_path: Path) -> None:
    ids = []
    for _ in range(2):
        board = MLflow("again")
        board.open(tmp_path, ABOUT, 0)
        board.catch_up(ROWS[:2])
        ids.append(board.run_id)
    board.close(failed=False)
    assert [server.get_run(run).info.status for run in ids] == ["KILLED", "FINISHED"]
    assert [steps(server, run) for run in ids] == [[0, 1], [0, 1]]


@pytest.mark.mlflow
def test_a_deleted_run_and_one_of_another_server_begin_anew_with_all_rows(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    board = MLflow("deleted")
    board.open(tmp_path, ABOUT, 0)
    board.catch_up(ROWS[:3])
    server.delete_run(board.run_id)
    deleted, board = board.run_id, MLflow("deleted")
    board.open(tmp_path, ABOUT, 3)
    board.catch_up(ROWS)
    assert board.run_id != deleted and steps(server, board.run_id) == list(range(7))
    monkeypatch.setenv(URI, f"sqlite:///{tmp_path}/other.db")
    other = MLflow("deleted")
    other.open(tmp_path, ABOUT, 3)
    other.catch_up(ROWS)
    assert steps(other.client, other.run_id) == list(range(7))


@pytest.mark.mlflow
def test_long_and_many_settings_are_taken(server: Any, tmp_path: Path) -> None:
    config = {f"option_{number}": number for number in range(250)} | {"long": "x" * 7000}
    board = MLflow("many")
    board.open(tmp_path, ABOUT._replace(config=config), 0)
    params = server.get_run(board.run_id).data.params
    assert len(params) == 251 and params["option_249"] == "249" and len(params["long"]) == 6000


@pytest.mark.mlflow
def test_a_password_is_neither_shown_nor_stored(
    server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"):
        monkeypatch.setenv(name, "")  # so that it is as it was, after the test
        os.environ.pop(name)
    monkeypatch.setenv(URI, os.environ[URI].replace("//", "//me:secret%2F@"))
    folder = small_run(tmp_path, "logger=mlflow")
    assert server.get_run(run_id(folder)).info.status == "FINISHED"
    shown = capsys.readouterr()
    assert re.search(rf"mlflow: http://127\.0\.0\.1:\d+/#/experiments/\d+/runs/{run_id(folder)}\n", shown.err)
    assert (os.environ["MLFLOW_TRACKING_USERNAME"], os.environ["MLFLOW_TRACKING_PASSWORD"]) == ("me", "secret/")
    assert "secret" not in shown.err + shown.out
    assert not any(b"secret" in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.mlflow
def test_a_server_that_dies_costs_a_run_its_dashboard_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    evaluate = experiment.evaluate
    with server_in(tmp_path) as (address, process):
        monkeypatch.setenv(URI, address)

        def after_the_death(*arguments: Any) -> Any:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return evaluate(*arguments)

        monkeypatch.setattr(experiment, "evaluate", after_the_death)
        started = time.monotonic()
        folder = small_run(tmp_path / "runs", "logger=mlflow")
    assert record.status(folder) == "done" and time.monotonic() - started < 90
    assert "MLflow failed and is disabled" in capsys.readouterr().err


@pytest.mark.mlflow
def test_without_a_server_a_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(URI, "http://127.0.0.1:9")
    assert record.status(small_run(tmp_path, "logger=mlflow")) == "done"
    assert "MLflow failed and is disabled: no answer from http://127.0.0.1:9" in capsys.readouterr().err


@pytest.mark.mlflow
def test_parallel_runs_share_a_new_database_beside_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(URI, raising=False)
    arguments = ["seed=0,1", "hydra/launcher=parallel", "logger=mlflow", "paths.outputs=outputs", *TINY]
    result = command("src.train", "-m", *arguments, cwd=tmp_path)
    assert result.returncode == 0 and "disabled" not in result.stderr, result.stderr
    assert "Warning" not in result.stderr
    client = connected(f"sqlite:///{tmp_path}/outputs/mlflow.db", tmp_path / "outputs")
    experiment: Any = client.get_experiment_by_name("gp-decoders")
    runs = client.search_runs([experiment.experiment_id])
    assert {run.data.params["seed"] for run in runs} == {"0", "1"}
    assert {run.info.status for run in runs} == {"FINISHED"}
    assert all("model.ckpt" in artifacts(client, run.info.run_id) for run in runs)
    assert {path.name for path in tmp_path.iterdir()} == {"outputs"}


def test_runs_are_tracked_beside_their_folders_unless_the_environment_says_otherwise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(URI, raising=False)
    assert tracking_uri(tmp_path / "outputs" / "run") == f"sqlite:///{tmp_path}/outputs/mlflow.db"
    assert artifacts_of("sqlite:///x.db", tmp_path / "outputs" / "run") == f"file://{tmp_path}/outputs/.mlflow"
    monkeypatch.setenv(URI, "http://host:5000")
    assert tracking_uri(tmp_path / "outputs" / "run") == "http://host:5000"
    assert artifacts_of("http://host:5000", tmp_path) is None


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://me:secret@host:5000/a@b", "https://host:5000/a@b"),
        ("postgresql://me:secret@host/db", "postgresql://host/db"),
        ("sqlite:////tmp/mlflow.db", "sqlite:////tmp/mlflow.db"),
    ],
)
def test_addresses_are_shown_without_passwords(address: str, shown: str) -> None:
    assert without_password(address) == shown


def test_names_and_passwords_are_given_as_mlflow_reads_them() -> None:
    found = credentials("https://me:se%40cret@host:5000")
    assert found == {"MLFLOW_TRACKING_USERNAME": "me", "MLFLOW_TRACKING_PASSWORD": "se@cret"}
    assert credentials("https://host:5000") == credentials("postgresql://me:secret@host/db") == {}


def test_all_dashboards_can_be_had_at_once() -> None:
    config = composed("logger=[tensorboard,wandb,mlflow]")
    assert list(config["logger"]) == ["media_every", "tensorboard", "wandb", "mlflow"]
