"""The record of a run: status, lock, log, and what a new start keeps of an old one."""

import json
from pathlib import Path

import pytest
from filelock import FileLock

from src.runs import files, record
from src.runs.errors import UserError

CHECKPOINTS = ("last.ckpt", "previous.ckpt", ".last.1234.ckpt")


def test_checkpoints_are_forgotten_with_what_a_kill_left_of_one_but_not_the_model(tmp_path: Path) -> None:
    for name in (*CHECKPOINTS, "model.ckpt"):
        (tmp_path / name).touch()
    record.forget_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.ckpt"]


@pytest.mark.parametrize(("status", "kept"), [("failed", set()), ("interrupted", set(CHECKPOINTS))])
def test_a_failed_run_starts_from_the_beginning_and_an_interrupted_one_resumes(
    status: str, kept: set[str], tmp_path: Path
) -> None:
    files.write_json(tmp_path / "record.json", {"status": status})
    for name in CHECKPOINTS:
        (tmp_path / name).touch()
    record.make_way(tmp_path)
    assert {path.name for path in tmp_path.glob("*.ckpt")} == kept


def test_the_time_of_a_run_includes_what_it_took_before_it_was_resumed(tmp_path: Path) -> None:
    files.write_json(tmp_path / "record.json", {"status": "interrupted", "seconds": 100.0})
    with record.keep(tmp_path, {"seed": 1}):
        pass
    assert 100 <= files.read_json(tmp_path / "record.json")["seconds"] < 110


def test_a_finished_run_is_moved_aside_whole(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    with record.keep(folder, {"seed": 1}):
        files.write_json(folder / "metrics.json", {"rmse": 0.1})
    record.make_way(folder)
    (aside,) = tmp_path.iterdir()
    assert aside.name.startswith("run.20") and ":" not in aside.name
    assert {"config.yaml", "record.json", "metrics.json"} <= {path.name for path in aside.iterdir()}


def test_one_process_at_a_time_and_the_other_is_told_who(tmp_path: Path) -> None:
    first, second = record.keep(tmp_path / "run", {}), record.keep(tmp_path / "run", {})
    with first, pytest.raises(UserError, match=r"is being worked on by process \d+ on"), second:
        pass
    assert files.read_json(tmp_path / "run" / "record.json")["status"] == "done"
    lock = FileLock(tmp_path / "run" / ".lock")
    lock.acquire(timeout=0)
    lock.release()


def test_the_record_says_how_it_ended_and_keeps_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a-secret")
    with pytest.raises(ZeroDivisionError), record.keep(tmp_path / "run", {"seed": 1}):
        raise ZeroDivisionError("on purpose")
    kept = json.loads((tmp_path / "run" / "record.json").read_text())
    assert kept["status"] == "failed" and kept["ended"] >= kept["started"]
    assert "on purpose" in (tmp_path / "run" / "log.txt").read_text()
    assert not any("a-secret" in path.read_text() for path in (tmp_path / "run").iterdir())


def test_a_request_to_stop_can_be_withdrawn(tmp_path: Path) -> None:
    record.ask_to_stop(tmp_path / "run")
    assert record.is_asked_to_stop(tmp_path / "run")
    record.withdraw_stop(tmp_path / "run")
    assert not record.is_asked_to_stop(tmp_path / "run")


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (OSError("no space left on device"), "interrupted"),
        (KeyboardInterrupt(), "interrupted"),
        (SystemExit(143), "interrupted"),
        (ZeroDivisionError(), "failed"),
        (UserError("a wrong option"), "failed"),
    ],
)
def test_a_stopped_run_or_a_full_disk_can_resume_and_a_mistake_cannot(error: BaseException, status: str) -> None:
    assert record.status_after(error) == status
