"""Record of a run on disk: its status, its lock, its log, and requests to stop it."""

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
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import Any, Literal

from filelock import FileLock, Timeout
from hydra.core.hydra_config import HydraConfig
from omegaconf import OmegaConf

from src.runs import code
from src.runs.errors import Interrupted, UserError
from src.runs.files import read_json, write_json, write_whole
from src.runs.identity import Config

Status = Literal["running", "done", "failed", "interrupted"]

CHECKPOINTS = ("last.ckpt", "previous.ckpt")  # newest first
STOP = "stop"  # a file in the folder of a run that asks the run to stop
HOME = "GP_DECODERS_HOME"  # environment variable: the folder in which a sweep was started
REVISION = "GP_DECODERS_REVISION"  # environment variable: the revision of the frozen code that a sweep runs
PACKAGES = ("torch", "pytorch-lightning", "gpytorch", "hydra-core", "numpy", "scikit-learn")


def status(folder: Path) -> Status | None:
    """Status of a run, or None if it does not exist. A run whose process died is interrupted, whatever it recorded."""
    recorded: Status | None = read_json(folder / "record.json").get("status")
    if recorded == "running" and not is_owned(folder):
        return "interrupted"
    if recorded == "done" and not (folder / "metrics.json").exists():
        return "interrupted"
    return recorded


def is_owned(folder: Path) -> bool:
    """Whether a living process works on a run: the system releases the lock of a process that died."""
    try:
        with FileLock(folder / ".lock", timeout=0):
            return False
    except Timeout:
        return True


def check_writable(outputs: Path) -> None:
    """Check, before any work, that results can be written."""
    try:
        outputs.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=outputs):
            pass
    except OSError as error:
        raise UserError(f"cannot write to paths.outputs={outputs}: {error.strerror}") from error


def make_way(folder: Path) -> None:
    """Prepare the folder for a new start: move a finished run aside, delete the checkpoints of a failed one."""
    if status(folder) == "done":
        started = read_json(folder / "record.json")["started"].replace(":", "")
        folder.rename(folder.with_name(f"{folder.name}.{started}"))
    elif status(folder) == "failed":
        forget_checkpoints(folder)


def forget_checkpoints(folder: Path) -> None:
    """Delete the checkpoints to resume from: a finished run needs none, a failed run starts from the beginning."""
    for path in folder.glob("*.ckpt"):  # also the unfinished checkpoint of a killed process
        if path.name in CHECKPOINTS or path.name.startswith("."):
            path.unlink(missing_ok=True)


@contextmanager
def keep(folder: Path, config: Config, threads: int | None = None) -> Iterator[dict[str, Any]]:
    """Keep the record of a run while the body works, which may add to it; one process at a time.

    It lists every start: when, on which host, and how many threads computed. Afterwards the status is `done`, or
    `failed` or `interrupted` with the traceback in `log.txt`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder), sigterm_ends_the_process():
        before, began = read_json(folder / "record.json"), time.monotonic()
        record = {**new_record(), "threads": threads}
        record["starts"] = [*before.get("starts", []), {key: record[key] for key in ("started", "host", "threads")}]
        write_whole(folder / "config.yaml", OmegaConf.to_yaml(config))
        write_json(folder / "record.json", record)
        try:
            yield record
            record["status"] = "done"
        except BaseException as error:
            record.update(status=status_after(error), error=one_line(error))
            with suppress(OSError):  # the disk may be full, which may be the error itself
                log(folder, traceback.format_exc())
            raise
        finally:
            with suppress(OSError):
                seconds = round(before.get("seconds", 0) + time.monotonic() - began, 1)
                write_json(folder / "record.json", {**record, "ended": now(), "seconds": seconds})


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a run; if another process holds it, say which."""
    lock = FileLock(folder / ".lock")
    try:
        lock.acquire(timeout=1)  # `is_owned` may hold it for a moment
    except Timeout:
        owner = read_json(folder / "record.json")
        raise UserError(f"{folder} is being worked on by process {owner.get('pid')} on {owner.get('host')}") from None
    with lock:
        yield


def status_after(error: BaseException) -> Status:
    """`interrupted` if the run can resume from its checkpoint (it was stopped, or the disk failed), else `failed`."""
    timed_out = type(error).__name__ == "UncompletedJobError"  # submitit's, if a Slurm job may not be requeued
    can_resume = timed_out or isinstance(error, Interrupted | OSError) or not isinstance(error, Exception)
    return "interrupted" if can_resume else "failed"


def record_rejection(folder: Path, config: Config, error: Exception) -> None:
    """Record why a cell of a sweep could not start."""
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "config.yaml", OmegaConf.to_yaml(config))
    write_json(folder / "record.json", {**new_record(), "status": "failed", "error": one_line(error), "ended": now()})
    log(folder, "".join(traceback.format_exception(error)))


def one_line(error: BaseException) -> str:
    """Type of an error and the first line of its message."""
    text = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


@contextmanager
def sigterm_ends_the_process() -> Iterator[None]:
    """Let SIGTERM raise SystemExit, so that open files are closed, unless another handler is installed."""
    mine = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if mine:
        signal.signal(signal.SIGTERM, end_process)
    try:
        yield
    finally:
        if mine:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def end_process(signum: int, frame: FrameType | None) -> None:
    """Handle SIGTERM: exit with the code that shells use for it."""
    raise SystemExit(128 + signum)


def ask_to_stop(folder: Path) -> None:
    """Ask a run to stop: a training run stops after a checkpoint, a waiting cell of a sweep does not start."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / STOP).touch()


def is_asked_to_stop(folder: Path) -> bool:
    """Whether the run was asked to stop."""
    return (folder / STOP).exists()


def withdraw_stop(folder: Path) -> None:
    """Withdraw the request to stop a run."""
    (folder / STOP).unlink(missing_ok=True)


def log(folder: Path, text: str) -> None:
    """Append to the run's log."""
    with (folder / "log.txt").open("a") as file:
        file.write(f"{now()}\n{text}\n")


def new_record() -> dict[str, Any]:
    """Who runs this, where, and with which versions."""
    return {
        "status": "running",
        "command": command(),
        "host": platform.node(),
        "pid": os.getpid(),
        "started": now(),
        "git": git_revision(),
        "code": code.digest(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
    }


def command() -> str:
    """The command that repeats this run alone, also if it is a cell of a sweep."""
    if not HydraConfig.initialized():
        return shlex.join(["python", *sys.orig_argv[1:]])
    return shlex.join(["python", "-m", "src.train", *HydraConfig.get().overrides.task])


def git_revision() -> str | None:
    """Revision of the code, with `-dirty` if files were edited; None outside a checkout of it."""
    if REVISION in os.environ:
        return os.environ[REVISION] or None
    if not (code.ROOT / ".git").exists():  # installed, perhaps inside the checkout of another project
        return None
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.check_output(command, cwd=Path(__file__).parent, text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def now() -> str:
    """Current time in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
