"""Runs on disk: what identifies one, its record, and files that are written whole or not at all."""

import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

from filelock import FileLock, Timeout
from omegaconf import DictConfig, OmegaConf

from src.errors import UserError
from src.files import write_whole

Config = dict[str, Any]

CANNOT_CHANGE_NUMBERS = (
    *("paths", "rerun", "dataset.root", "trainer.enable_progress_bar", "trainer.enable_model_summary"),
    *("active_set", "kernel", "encoder", "optimizer"),  # a model that has any of these holds it in `model`
)
CHECKPOINTS = ("last.ckpt", "previous.ckpt")  # the newest first
PACKAGES = ("torch", "pytorch-lightning", "gpytorch", "hydra-core", "numpy", "scikit-learn")


def plain(config: DictConfig) -> Config:
    """A composed config as nested dicts of plain values, with all its references resolved."""
    return cast("Config", OmegaConf.to_container(config, resolve=True))


def fingerprint(config: Config) -> str:
    """Eight hex digits that differ whenever any value differs that can change a run's numbers."""
    config = deepcopy(config)
    for path in CANNOT_CHANGE_NUMBERS:
        *parents, leaf = path.split(".")
        node = config
        for parent in parents:
            node = node.get(parent, {})
        node.pop(leaf, None)
    text = json.dumps(config, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def folder_name(config: Config, model: str, dataset: str) -> str:
    """`sas-mnist-a400-s0-3f2a91c4`: readable, and one folder a fingerprint."""
    size = config["model"].get("active_set")
    active = [] if size is None else [size if isinstance(size, str) else f"a{size}"]
    return "-".join([model, dataset, *active, f"s{config['seed']}", fingerprint(config)])


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A JSON file, written whole."""
    write_whole(path, json.dumps(content, indent=2) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file, empty where there is none."""
    return json.loads(path.read_text()) if path.exists() else {}


def status(folder: Path) -> str | None:
    """`running`, `done`, `failed` or `interrupted`; None where there is no run."""
    return read_json(folder / "record.json").get("status")


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
        lock.acquire(timeout=0)
    except Timeout:
        owner = read_json(folder / "record.json")
        raise UserError(f"{folder} is being worked on by process {owner.get('pid')} on {owner.get('host')}") from None
    with lock:
        record = new_record()
        write_whole(folder / "config.yaml", OmegaConf.to_yaml(config))
        write_json(folder / "record.json", record)
        try:
            yield
            record["status"] = "done"
        except BaseException as error:
            record["status"] = "failed" if isinstance(error, Exception) else "interrupted"
            log(folder, traceback.format_exc())
            raise
        finally:
            write_json(folder / "record.json", {**record, "ended": now()})


def log(folder: Path, text: str) -> None:
    """Add to the run's own log."""
    with (folder / "log.txt").open("a") as file:
        file.write(f"{now()}\n{text}\n")


def new_record() -> dict[str, Any]:
    """Who does this run, where, and with what."""
    return {
        "status": "running",
        "command": " ".join([Path(sys.executable).name, *sys.orig_argv[1:]]),
        "host": platform.node(),
        "pid": os.getpid(),
        "started": now(),
        "git": git_revision(),
        "python": platform.python_version(),
        "versions": {package: version(package) for package in PACKAGES},
    }


def git_revision() -> str | None:
    """The revision of the code, with `-dirty` where files differ from it; None outside a checkout."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        return subprocess.check_output(command, cwd=Path(__file__).parent, text=True, stderr=subprocess.DEVNULL).strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")
