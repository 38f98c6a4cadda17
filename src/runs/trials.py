"""Trials of a search: a file in a run's folder says to which study the run reports, wherever it was launched."""

from dataclasses import asdict, dataclass
from pathlib import Path

from src.runs.files import read_json, write_json

FILE = "trial.json"


@dataclass(frozen=True)
class Trial:
    """One trial of a stored study, and when its run may be stopped early."""

    storage: str
    study: str
    number: int
    startup_trials: int  # the first trials of a study run to their ends
    warmup_epochs: int | None  # a run is not judged before this epoch; None: before a quarter of its epochs
    every: int | None  # epochs between two reports; None: a twentieth of the run


def assign(folder: Path, trial: Trial) -> None:
    """Let the run in a folder report to a study."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / FILE, asdict(trial))


def assigned(folder: Path) -> Trial | None:
    """The trial that a run belongs to, or None."""
    content = read_json(folder / FILE)
    return Trial(**content) if content else None


def release(folder: Path) -> None:
    """Let the run in a folder be a run like any other: its trial has ended."""
    (folder / FILE).unlink(missing_ok=True)
