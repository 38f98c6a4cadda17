"""When checkpoints are written, and that the one before the last is kept."""

import time
from pathlib import Path

import pytest
import torch
from pytorch_lightning import Trainer

from src.runs import files
from src.training import experiment
from src.training.checkpoints import Checkpoints
from src.training.trainer import newest_intact
from tests.training.test_experiment import SAME, interrupted, small_run


@pytest.mark.parametrize(
    ("seconds_to_write", "overrides", "expected"),
    [(0.0, (), [2, 4, 6, 8]), (60.0, (), [2, 8]), (60.0, ("checkpoint_minutes=0",), [1, 2, 3, 4, 5, 6, 7, 8])],
)
def test_short_epochs_skip_the_checkpoint_if_writing_takes_long(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seconds_to_write: float,
    overrides: tuple[str, ...],
    expected: list[int],
) -> None:
    """The first, which shows how long one takes, and the last are written; all of them if that was asked for."""
    steps = []

    def save(self: Checkpoints, trainer: Trainer) -> None:
        steps.append(trainer.global_step)
        self.saved, self.writing = time.monotonic(), seconds_to_write

    monkeypatch.setattr(Checkpoints, "save", save)
    small_run(tmp_path, "trainer.max_epochs=4", *overrides)
    assert steps == expected


def steps_of(folder: Path) -> dict[str, int]:
    """The step that each checkpoint of a run was written after."""
    return {path.name: torch.load(path, weights_only=True)["global_step"] for path in folder.glob("*.ckpt")}


@pytest.fixture
def unevaluated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run that was interrupted after its training, with all its checkpoints."""
    with monkeypatch.context() as patch:
        patch.setattr(experiment, "evaluate", interrupted)
        with pytest.raises(KeyboardInterrupt):
            small_run(tmp_path, "checkpoint_minutes=0")
    (folder,) = tmp_path.iterdir()
    return folder


def test_the_checkpoint_before_the_last_is_kept(unevaluated: Path) -> None:
    """Written after every step of 3 epochs with 2 steps each."""
    assert steps_of(unevaluated) == {"last.ckpt": 6, "previous.ckpt": 5, "model.ckpt": 6}
    assert newest_intact(unevaluated) == unevaluated / "last.ckpt"


def test_a_damaged_checkpoint_is_replaced_by_the_one_before(
    unevaluated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run resumes from it: only the steps after it are trained again."""
    last = (unevaluated / "last.ckpt").read_bytes()
    (unevaluated / "last.ckpt").write_bytes(last[: len(last) // 2])
    assert newest_intact(unevaluated) == unevaluated / "previous.ckpt"
    saved: list[int] = []
    save = Checkpoints.save

    def noted(self: Checkpoints, trainer: Trainer) -> None:
        saved.append(trainer.global_step)
        save(self, trainer)

    monkeypatch.setattr(Checkpoints, "save", noted)
    small_run(tmp_path, "checkpoint_minutes=0")
    assert saved == [6]
    assert "last.ckpt is damaged" in (unevaluated / "log.txt").read_text()
    whole = files.read_json(small_run(tmp_path / "whole") / "metrics.json")
    resumed = files.read_json(unevaluated / "metrics.json")
    assert {key: whole[key] for key in SAME} == {key: resumed[key] for key in SAME}
