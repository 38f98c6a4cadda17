"""The identity of a run, and its record."""

import json
from copy import deepcopy
from pathlib import Path

import pytest
from filelock import FileLock

from src.runs import record as runs
from src.runs.errors import UserError
from src.runs.files import whole, write_whole
from src.runs.record import Config, fingerprint, folder_name, recorded
from tests.configs import composed


def leaves(config: Config, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The place of every value."""
    found = []
    for key, value in config.items():
        found += leaves(value, (*path, key)) if isinstance(value, dict) else [(*path, key)]
    return found


def changed(config: Config, path: tuple[str, ...]) -> Config:
    """The config with another value in one place."""
    other = deepcopy(config)
    node = other
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = f"not {node[path[-1]]}"
    return other


def test_any_value_that_can_change_the_numbers_changes_the_fingerprint() -> None:
    config = composed("model=bayesian_sas", "dataset=mnist")
    for path in leaves(config):
        same = fingerprint(changed(config, path)) == fingerprint(config)
        excluded = path[0] in runs.CANNOT_CHANGE_NUMBERS or ".".join(path) in runs.CANNOT_CHANGE_NUMBERS
        assert same == excluded, path


def test_runs_from_before_the_exact_evidence_keep_their_folders() -> None:
    config = composed()
    older = {key: config["evaluation"][key] for key in ("active_sets", "condition_on")}
    assert fingerprint({**config, "evaluation": older}) == fingerprint(config)


def test_the_name_is_readable_and_carries_the_fingerprint() -> None:
    config = composed("model=sas", "dataset=mnist", "active_set=a400")
    assert folder_name(config, "sas", "mnist") == f"sas-mnist-a400-s0-{fingerprint(config)}"
    config = composed("model=vae", "dataset=digits", "seed=3")
    assert folder_name(config, "vae", "digits") == f"vae-digits-s3-{fingerprint(config)}"


def test_files_are_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file.json"
    write_whole(path, "old")
    with pytest.raises(ZeroDivisionError), whole(path) as unfinished:
        unfinished.write_text("half of the ne")
        raise ZeroDivisionError
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]


def test_checkpoints_are_forgotten_with_what_a_kill_left_of_one_but_not_the_model(tmp_path: Path) -> None:
    for name in ("last.ckpt", "previous.ckpt", ".last.1234.ckpt", "model.ckpt"):
        (tmp_path / name).touch()
    runs.forget_checkpoints(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["model.ckpt"]


def test_one_process_at_a_time_and_the_other_is_told_who(tmp_path: Path) -> None:
    first, second = recorded(tmp_path / "run", {}), recorded(tmp_path / "run", {})
    with first, pytest.raises(UserError, match=r"is being worked on by process \d+ on"), second:
        pass
    assert runs.read_json(tmp_path / "run" / "record.json")["status"] == "done"
    lock = FileLock(tmp_path / "run" / ".lock")
    lock.acquire(timeout=0)
    lock.release()


def test_the_record_says_how_it_ended_and_keeps_no_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "a-secret")
    with pytest.raises(ZeroDivisionError), recorded(tmp_path / "run", {"seed": 1}):
        raise ZeroDivisionError("on purpose")
    record = json.loads((tmp_path / "run" / "record.json").read_text())
    assert record["status"] == "failed" and record["ended"] >= record["started"]
    assert "on purpose" in (tmp_path / "run" / "log.txt").read_text()
    assert not any("a-secret" in path.read_text() for path in (tmp_path / "run").iterdir())
