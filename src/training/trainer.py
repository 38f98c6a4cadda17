"""Lightning's trainer with our callbacks, and a training that resumes from its checkpoint."""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from pytorch_lightning import Callback, Trainer
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.callbacks import Timer
from pytorch_lightning.utilities.exceptions import MisconfigurationException, SIGTERMException

from src.data.module import DataModule
from src.models.base import Model
from src.models.lean import Unprofiled
from src.runs import record
from src.runs.errors import UserError
from src.runs.identity import Config
from src.runs.specs import make
from src.training import cluster
from src.training.checkpoints import SIGTERM_EXIT, Checkpoints, written_by_first
from src.training.history import History
from src.training.mixed_precision import keep_to_layers
from src.training.progress import Progress

logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)  # it announces every checkpoint


def make_trainer(config: Config, history: History, folder: Path, *callbacks: Callback) -> Trainer:
    """Lightning's trainer with our history, progress bar and checkpoints."""
    spec = dict(config["trainer"])
    checkpoints = Checkpoints(folder, config["checkpoint_minutes"], seconds(spec.pop("max_time")))
    trainer = lightning_trainer(spec, history, *callbacks, checkpoints)
    if trainer.world_size > 1 and record.HOME in os.environ and not cluster.starts_processes():
        raise UserError(
            "a sweep cannot train one run in several processes here, because Lightning would start each of them with "
            "the whole command: set trainer.devices=1, or use hydra/launcher=slurm with hydra.launcher.tasks_per_node"
        )
    cores = os.cpu_count() or 1
    if isinstance(trainer.accelerator, CPUAccelerator) and trainer.num_devices > cores:
        raise UserError(
            f"trainer.devices={trainer.num_devices} would start as many processes on {cores} cores: "
            "set trainer.devices=1, which uses all of them"
        )
    return trainer


def lightning_trainer(spec: Config, history: History, *callbacks: Callback, **options: Any) -> Trainer:
    """Lightning's trainer with our history and progress bar."""
    bar = [Progress(history)] if spec["enable_progress_bar"] else []
    options |= {"logger": False, "use_distributed_sampler": False, "plugins": [cluster.environment()]}
    trainer: Trainer = make({"profiler": Unprofiled(), **spec}, callbacks=[history, *bar, *callbacks], **options)
    keep_to_layers(trainer)
    return trainer


def seconds(max_time: str | dict[str, int] | None) -> float | None:
    """The seconds of a time budget. Lightning's own timer would also count the time before a resume."""
    try:
        return Timer(max_time).time_remaining()
    except (MisconfigurationException, TypeError) as error:
        raise UserError(f"trainer.max_time={max_time} is not of the form days:hours:minutes:seconds") from error


def fit(trainer: Trainer, model: Model, data: DataModule, folder: Path) -> None:
    """Train, from the last checkpoint if there is one, and save the trained model as `model.ckpt`."""
    checkpoint = newest_intact(folder)
    if trainer.is_global_zero:
        print(f"{folder}: {beginning(checkpoint)}", flush=True)
    model.train()  # all GPyTorch kernels share a module, which an earlier model may have set to eval mode
    with stops_at_a_checkpoint():
        try:
            trainer.fit(model, datamodule=data, ckpt_path=checkpoint, weights_only=True)
        except SIGTERMException as stop:  # Lightning noticed the signal first, and would exit with 0
            raise SystemExit(SIGTERM_EXIT) from stop
    model.to(trainer.strategy.root_device).eval()  # Lightning leaves it on the CPU
    with written_by_first(trainer, folder / "model.ckpt") as unfinished:
        trainer.save_checkpoint(unfinished, weights_only=True)


def beginning(checkpoint: Path | None) -> str:
    """Where a training begins; reads no weights."""
    if checkpoint is None:
        return "a new run"
    state = torch.load(checkpoint, map_location="cpu", weights_only=True, mmap=True)
    return f"resumes in epoch {state['epoch'] + 1}, after {state['global_step']} steps"


@contextmanager
def stops_at_a_checkpoint() -> Iterator[None]:
    """Let Lightning take note of SIGTERM, so that `Checkpoints` can stop the training after a step."""
    ours = signal.getsignal(signal.SIGTERM) == record.end_process
    if ours:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, record.end_process)


def newest_intact(folder: Path) -> Path | None:
    """The checkpoint to resume from: the last one, or the one before if the last is damaged or missing."""
    for path in (folder / name for name in record.CHECKPOINTS if (folder / name).exists()):
        try:
            torch.load(path, map_location="cpu", weights_only=True)
            return path
        except (OSError, EOFError, RuntimeError, UnpicklingError) as error:
            record.log(folder, f"{path.name} is damaged and ignored: {error}")
    return None
