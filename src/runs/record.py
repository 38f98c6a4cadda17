"""Runs on disk: what identifies one, its record, and files that are written whole or not at all."""

import hashlib
import json
import os
import platform
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from copy import deepcopy
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, Literal, cast

from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from src.runs.errors import Interrupted, UserError
from src.runs.files import write_whole

Config = dict[str, Any]
Status = Literal["running", "done", "failed", "interrupted"]

CANNOT_CHANGE_NUMBERS = (
    *("paths", "rerun", "group", "logger", "fail_fast", "checkpoint_minutes", "dataset.root"),
    *("evaluation.exact_evidence", "evaluation.evidence_points", "evaluation.evidence_precision"),  # add metrics only
    *("trainer.enable_progress_bar", "trainer.enable_model_summary", "trainer.max_time"),
    *("active_set", "kernel", "encoder", "optimizer"),  # a model that has any of these holds it in `model`
)
CHECKPOINTS = ("last.ckpt", "previous.ckpt")  # the newest first
STOP = "stop"  # a file that asks a run to stop
HOME = "GP_DECODERS_HOME"  # in the environment: the folder that a sweep was started in
REVISION = "GP_DECODERS_REVISION"  # in the environment: the revision of the frozen code that a sweep's cells run
PACKAGES = ("torch", "pytorch-lightning", "gpytorch", "hydra-core", "numpy", "scikit-learn")


def plain(config: DictConfig) -> Config:
    """A composed config as nested dicts of plain values, with all its references resolved."""
    return cast("Config", OmegaConf.to_container(config, resolve=True))


def fingerprint(config: Config) -> str:
    """Eight hex digits that differ whenever any value differs that can change a run's numbers."""
    text = json.dumps(without_what_cannot_change_numbers(config), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def without_what_cannot_change_numbers(config: Config) -> Config:
    """A copy of a config with only what the numbers depend on."""
    config = deepcopy(config)
    for path in CANNOT_CHANGE_NUMBERS:
        *parents, leaf = path.split(".")
        node = config
        for parent in parents:
            node = node.get(parent) or {}
        node.pop(leaf, None)
    return config


def folder_name(config: Config, model: str, dataset: str) -> str:
    """`sas-mnist-a400-s0-3f2a91c4`: readable, and one folder a fingerprint."""
    return "-".join([model, dataset, *active_set(config), f"s{config['seed']}", fingerprint(config)])


def active_set(config: Config) -> list[str]:
    """`[a400]` or `[random]`; nothing for models that have none."""
    size = config["model"].get("active_set")
    return [] if size is None else [size if isinstance(size, str) else f"a{size}"]


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A JSON file, written whole."""
    write_whole(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file, empty where there is none."""
    try:
        content: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON ({error}): mend it, or remove the folder") from error
    return content


def status(folder: Path) -> Status | None:
    """How a run stands; None where there is none. One whose process died is interrupted, whatever its record says."""
    recorded: Status | None = read_json(folder / "record.json").get("status")
    if recorded == "running" and not is_owned(folder):
        return "interrupted"
    if recorded == "done" and not (folder / "metrics.json").exists():
        return "interrupted"
    return recorded


def is_owned(folder: Path) -> bool:
    """Whether a living process works on a run: the system releases the lock of one that died."""
    try:
        with FileLock(folder / ".lock", timeout=0):
            return False
    except Timeout:
        return True


def check_writable(outputs: Path) -> None:
    """Refuse a place for results that cannot take any, before any work."""
    try:
        outputs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=outputs):
            pass
    except OSError as error:
        raise UserError(f"cannot write to paths.outputs={outputs}: {error.strerror}") from error


def make_way(folder: Path) -> None:
    """Let a run begin anew: a finished one is moved aside, whole; of a failed one the checkpoint is forgotten."""
    if status(folder) == "done":
        started = read_json(folder / "record.json")["started"].replace(":", "")
        folder.rename(folder.with_name(f"{folder.name}.{started}"))
    elif status(folder) == "failed":
        forget_checkpoints(folder)


def forget_checkpoints(folder: Path) -> None:
    """Leave no place to go on from: a finished run needs none, a failed one begins anew."""
    for path in folder.glob("*.ckpt"):  # also what a kill left of an unfinished one
        if path.name in CHECKPOINTS or path.name.startswith("."):
            path.unlink(missing_ok=True)


@contextmanager
def recorded(folder: Path, config: Config) -> Iterator[None]:
    """Keep the record of a run while the body does its work; one process at a time.

    Afterwards its status is `done`, or `failed` or `interrupted` with the traceback in `log.txt`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=1)  # `is_owned` may hold it for a moment
    except Timeout:
        owner = read_json(folder / "record.json")
        raise UserError(f"{folder} is being worked on by process {owner.get('pid')} on {owner.get('host')}") from None
    with lock, sigterm_ends_the_process():
        before, began = read_json(folder / "record.json").get("seconds", 0), time.monotonic()
        record = new_record()
        write_whole(folder / "config.yaml", OmegaConf.to_yaml(config))
        write_json(folder / "record.json", record)
        try:
            yield
            record["status"] = "done"
        except BaseException as error:
            record["status"] = status_after(error)
            record["error"] = one_line(error)
            with suppress(OSError):  # of a full disk, which may be what went wrong
                log(folder, traceback.format_exc())
            raise
        finally:
            with suppress(OSError):
                seconds = round(before + time.monotonic() - began, 1)
                write_json(folder / "record.json", {**record, "ended": now(), "seconds": seconds})


def status_after(error: BaseException) -> Status:
    """A run that was stopped, or had no place to write to, can go on from its checkpoint; any other begins anew."""
    timed_out = type(error).__name__ == "UncompletedJobError"  # submitit's, of a Slurm job that may not go on
    can_go_on = timed_out or isinstance(error, Interrupted | OSError) or not isinstance(error, Exception)
    return "interrupted" if can_go_on else "failed"


def record_refusal(folder: Path, config: Config, error: Exception) -> None:
    """Leave the reason why a cell of a sweep did not even begin."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "config.yaml", OmegaConf.to_yaml(config))
    write_json(folder / "record.json", {**new_record(), "status": "failed", "error": one_line(error), "ended": now()})
    log(folder, "".join(traceback.format_exception(error)))


def one_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def sigterm_ends_the_process() -> Iterator[None]:
    """Let SIGTERM raise SystemExit, so that what is open is closed; where nobody else listens to it already."""
    mine = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if mine:
        signal.signal(signal.SIGTERM, end_process)
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_process(signum: int, frame: FrameType | None) -> None:
    """What SIGTERM does, with the exit code that shells give it."""
    raise SystemExit(128 + signum)


def ask_to_stop(folder: Path) -> None:
    """Ask a run to stop: one that trains does so after a checkpoint, one that waits in a sweep does not begin."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STOP).touch()


def is_asked_to_stop(folder: Path) -> bool:
    """Whether somebody asked."""
    return (folder / STOP).exists()


def let_go_on(folder: Path) -> None:
    """Forget that a run was asked to stop."""
    (folder / STOP).unlink(missing_ok=True)


def log(folder: Path, text: str) -> None:
    """Add to the run's own log."""
    with (folder / "log.txt").open("a") as file:
        file.write(f"{now()}\n{text}\n")


def new_record() -> dict[str, Any]:
    """Who does this run, where, and with what."""
    return {
        "status": "running",
        "command": command(),
        "host": platform.node(),
        "pid": os.getpid(),
        "started": now(),
        "git": git_revision(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
    }


def command() -> str:
    """What to type to do this run, and no other cell of its sweep, again."""
    if not HydraConfig.initialized():
        return shlex.join(["python", *sys.orig_argv[1:]])
    return shlex.join(["python", "-m", "src.train", *HydraConfig.get().overrides.task])


def git_revision() -> str | None:
    """The revision of the code, with `-dirty` where files differ from it; None outside a checkout."""
    if REVISION in os.environ:
        return os.environ[REVISION] or None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.check_output(command, cwd=Path(__file__).parent, text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
