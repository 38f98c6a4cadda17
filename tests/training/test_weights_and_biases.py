"""Weights & Biases: offline and online, interrupted and resumed, and never in the way of a run."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import cycle, islice
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from omegaconf import OmegaConf

from src.runs import files
from src.training import experiment, weights_and_biases
from src.training.dashboards import About
from src.training.weights_and_biases import Wandb, answers
from tests.configs import composed
from tests.training.test_dashboards import FIGURES
from tests.training.test_experiment import QUICK, SMALL, interrupted, small_run
from tests.wandb_files import OfflineRun, offline_runs
from tests.wandb_server import WandbServer

KEY = "f" * 40
ABOUT = About("sas-digits", "0123abcd", None, "sas", ["digits"], {"seed": 0})


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever keys the person has who runs the tests."""
    monkeypatch.setenv("WANDB_MODE", "offline")


@pytest.fixture
def deaf_server() -> Iterator[str]:
    """Takes connections and says nothing, as networks do that drop what they are sent."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def train(outputs: Path, *overrides: str, url: str) -> subprocess.Popen[str]:
    """The command line with a key and a server that is not there."""
    quick = [*overrides, *SMALL[:-1], *QUICK, f"paths.outputs={outputs}", "logger=wandb"]
    environment = {key: value for key, value in os.environ.items() if not key.startswith("WANDB")}
    environment |= {"OMP_NUM_THREADS": "1", "WANDB_API_KEY": KEY, "WANDB_BASE_URL": url, "NO_PROXY": "*"}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen([sys.executable, "-m", "src.train", *quick], env=environment, text=True, **pipes)


@pytest.mark.usefixtures("offline")
def test_a_wandb_run_that_ends_early_is_closed_and_keeps_its_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import wandb

    stops: list[tuple[Any, str, Any, type[BaseException]]] = [
        (experiment, "evaluate", interrupted, KeyboardInterrupt),
        (experiment.registry, "draw", lambda *_: 1 / 0, ZeroDivisionError),
    ]
    for where, name, broken, error in stops:
        with monkeypatch.context() as patch, pytest.raises(error):
            patch.setattr(where, name, broken)
            small_run(tmp_path, "logger=wandb")
        assert wandb.run is None
    folder = small_run(tmp_path, "logger=wandb")
    found = offline_runs(tmp_path)
    assert [run.exit_codes for run in found] == [[1], [1], [0]]
    assert {run.run.run_id for run in found} == {folder.name.rpartition("-")[2]}
    for run in found:
        assert [row["epoch"] for row in run.history] == [0, 1, 2]
    assert found[-1].summary.items() >= files.read_json(folder / "metrics.json").items()


def test_a_sweep_without_a_network_leaves_a_wandb_run_a_cell(tmp_path: Path) -> None:
    """A key is set, and nobody listens."""
    process = train(tmp_path, "-m", "seed=0,1,2", "group=three", "trainer.max_epochs=2", url="http://127.0.0.1:9")
    _, stderr = process.communicate()
    assert process.returncode == 0, stderr
    found = offline_runs(tmp_path)
    assert [run.config["seed"] for run in found] == [0, 1, 2]
    for run, folder in zip(found, sorted(tmp_path.glob("sas-*")), strict=True):
        assert run.config == OmegaConf.to_container(OmegaConf.load(folder / "config.yaml"))
        assert (run.run.run_id, run.run.display_name) == (folder.name.rpartition("-")[2], folder.name)
        assert (run.run.run_group, run.run.job_type, list(run.run.tags)) == ("three", "sas", ["digits", "a20"])
        assert [{f"{key}.path" in row for key in FIGURES} for row in run.history] == [{False}, {True}]
        assert run.summary.items() >= files.read_json(folder / "metrics.json").items()
        assert run.exit_codes == [0]
        assert f"wandb sync {run.folder}" in stderr
    assert stderr.count("wandb: offline (no answer from http://127.0.0.1:9)") == 3
    assert not any(KEY.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


@pytest.mark.usefixtures("offline")
def test_a_killed_run_goes_on_as_the_same_wandb_run(tmp_path: Path, deaf_server: str) -> None:
    """Its server takes connections and is silent, which costs a few seconds and not the two minutes of wandb."""
    process = train(tmp_path, "trainer.max_epochs=40", url=deaf_server)
    while process.poll() is None and not list(tmp_path.glob("*/previous.ckpt")):
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    _, stderr = process.communicate()
    assert process.returncode == -signal.SIGKILL, stderr
    assert f"wandb: offline (no answer from {deaf_server})" in stderr
    folder = small_run(tmp_path, "logger=wandb", "trainer.max_epochs=40")
    killed, last = sorted((folder / "wandb").glob("offline-run-*"))
    identity = folder.name.rpartition("-")[2]
    assert killed.name.endswith(identity) and last.name.endswith(identity)
    curve = [row["_step"] for row in OfflineRun(last).history]
    assert curve == list(range(40))  # all of it, so that only the last part is to be synced


@pytest.fixture
def wandb_server(monkeypatch: pytest.MonkeyPatch) -> Iterator[WandbServer]:
    """A server that takes runs, and a key for it; wandb reads the environment once, unless it is torn down."""
    import wandb

    with WandbServer() as server:
        Thread(target=server.serve_forever, daemon=True).start()
        wandb.teardown()
        with monkeypatch.context() as patch:
            patch.delenv("WANDB_MODE", raising=False)
            for name, value in {"WANDB_BASE_URL": server.url, "WANDB_API_KEY": KEY, "NO_PROXY": "*"}.items():
                patch.setenv(name, value)
            yield server
            wandb.teardown()
        server.shutdown()


def test_online_an_interrupted_run_goes_on_where_the_server_stands(
    wandb_server: WandbServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [{"epoch": epoch, "loss": 1.0 / (epoch + 1)} for epoch in range(7)]
    for epochs, all_epochs, failed in ((0, 5, True), (3, 7, False)):  # it had sent more than its checkpoint knows
        board = Wandb("gp-decoders", None)
        board.open(tmp_path, ABOUT, epochs)
        board.catch_up(rows[:epochs])
        board.catch_up(rows[:all_epochs])
        board.close(failed)
    assert wandb_server.steps == {"0123abcd": list(range(7))}
    assert board.sent == 7 and wandb_server.exit_codes == [1, 0]
    assert f"wandb: {wandb_server.url}/me/gp-decoders/runs/0123abcd" in capsys.readouterr().err


def test_a_network_that_dies_during_a_run_is_given_up_at_its_end(
    wandb_server: WandbServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(weights_and_biases, "UPLOAD_SECONDS", 2)
    board = Wandb("gp-decoders", None)
    board.open(tmp_path, ABOUT, 0)
    wandb_server.shutdown()
    wandb_server.server_close()
    board.catch_up([{"epoch": 0, "loss": 1.0}])
    started = time.monotonic()
    board.close(failed=False)
    assert time.monotonic() - started < 15
    [folder] = (tmp_path / "wandb").glob("run-*-0123abcd")
    assert f"wandb: to upload this run: wandb sync {folder}" in capsys.readouterr().err


def test_a_silent_server_is_given_up_in_seconds(deaf_server: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")
    started = time.monotonic()
    assert not answers(deaf_server)
    assert weights_and_biases.ANSWER_SECONDS <= time.monotonic() - started < weights_and_biases.ANSWER_SECONDS + 2
    assert not answers("http://127.0.0.1:9")


@pytest.mark.parametrize(("code", "is_there"), [(200, True), (404, True), (503, False)])
def test_a_server_that_answers(code: int, is_there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Says(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(code)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    monkeypatch.setenv("NO_PROXY", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Says) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        assert answers(f"http://127.0.0.1:{server.server_port}") == is_there
        server.shutdown()


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[2] / "sweeps" / "wandb").glob("*.yaml")), ids=str)
def test_every_command_of_a_wandb_sweep_composes(path: Path) -> None:
    """The commands of wandb's own agent, with the values of every list and both ends of a range."""
    from wandb.sdk.launch.sweeps.utils import create_sweep_command, create_sweep_command_args

    sweep: Any = OmegaConf.to_container(OmegaConf.load(path))
    values = [cycle(spec.get("values") or [spec["min"], spec["max"]]) for spec in sweep["parameters"].values()]
    for choice in islice(zip(*values, strict=True), 12):
        parameters = {name: {"value": value} for name, value in zip(sweep["parameters"], choice, strict=True)}
        words = {"env": ["/usr/bin/env"], "interpreter": ["python"], **create_sweep_command_args({"args": parameters})}
        command = [
            word
            for part in create_sweep_command(sweep["command"])
            for word in (words[part[2:-1]] if re.fullmatch(r"\${\w+}", part) else [part])
        ]
        assert command[:4] == ["/usr/bin/env", "python", "-m", "src.train"]
        config = composed(*command[4:])
        assert "wandb" in config["logger"] and config["logger"]["wandb"]["project"] == sweep["project"]
    assert sweep["metric"]["name"] == "loss"
