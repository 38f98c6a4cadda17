"""Sweeps: what is left of them is done, and failures are named and stop nothing."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from src.launch import sweeps
from src.launch.cells import cells
from src.runs import files, record
from src.runs.errors import UserError
from tests.launch.commands import TINY, command, copied_code, environment


@pytest.mark.parametrize("module", ["src.plan", "src.train"])
def test_a_typo_in_one_cell_is_found_before_any_runs(module: str, tmp_path: Path) -> None:
    many = "seed=" + ",".join(map(str, range(36)))
    flag = ["-m"] if module == "src.train" else []
    result = command(module, *flag, "dataset=digits,mnits", many, cwd=tmp_path)
    assert result.returncode == 1 and "Did you mean dataset=mnist" in result.stderr
    assert "Traceback" not in result.stderr and not list(tmp_path.iterdir())


def test_three_failures_of_four_cells_are_named_and_only_they_run_again(tmp_path: Path) -> None:
    """Three broken data files, each in its own way; mended, the same command does what is missing."""
    random = np.random.default_rng(0)
    good = [random.normal(size=(140, 5)).astype(np.float32) for _ in range(4)]
    for number, array in enumerate(good):
        np.save(tmp_path / f"{number}.npy", array)
    (tmp_path / "1.npy").unlink()
    (tmp_path / "2.npy").write_bytes(b"not an array")
    np.save(tmp_path / "3.npy", good[3] * np.float32(1e30))
    arrays = "dataset.train=" + ",".join(f"{number}.npy" for number in range(4))
    arguments = ["-m", "dataset=array", arrays, *TINY]
    first = command("src.train", *arguments, cwd=tmp_path)
    assert first.returncode == 1, first.stderr
    assert "4 cells: 2 failed, 1 done, 1 rejected" in first.stdout, first.stdout
    assert "dataset.train=1.npy does not exist" in first.stdout
    failures = [line.split() for line in first.stdout.splitlines() if line.startswith("  failed")]
    logs = [Path(tmp_path / words[-1]).read_text() for words in failures]
    assert len(failures) == 2 and all("Traceback" in log for log in logs)
    assert "2.npy" in logs[0] and "errors.NumericalError: " in logs[1]
    for number in (1, 2, 3):
        np.save(tmp_path / f"{number}.npy", good[number])
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("outputs/*/metrics.json")}
    second = command("src.train", *arguments, cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert "4 cells, 3 of them to do" in second.stdout and second.stdout.count("run folder:") == 3
    assert len(times) == 1 and all(path.stat().st_mtime_ns == before for path, before in times.items())
    kept = files.read_json(next(tmp_path.glob("outputs/*/record.json")))
    assert kept["command"].startswith("python -m src.train dataset=array dataset.train=")
    assert kept["git"] == record.git_revision()


def test_fail_fast_begins_no_further_cell(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(140, 5)).astype(np.float32))
    (tmp_path / "none.npy").write_bytes(b"not an array")
    arguments = ["-m", "dataset=array", "dataset.train=x.npy,none.npy", "seed=0,1", "fail_fast=true", *TINY]
    result = command("src.train", *arguments, cwd=tmp_path)
    assert result.returncode == 1 and "4 cells: 2 done, 1 failed, 1 missing" in result.stdout, result.stdout


def test_an_impossible_cell_stops_a_sweep_that_is_to_stop_at_failures(tmp_path: Path) -> None:
    arguments = ["-m", "model=sas,sas_regression", "fail_fast=true", *TINY]
    result = command("src.train", *arguments, cwd=tmp_path)
    assert result.returncode == 1 and "SASRegression predicts real numbers" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_is_frozen_and_can_be_cancelled_and_continued(tmp_path: Path) -> None:
    """Code that is broken while the first cell runs does not reach the second; a cancelled cell goes on."""
    code = copied_code(tmp_path)
    arguments = ["-m", "seed=0,1", *TINY, "trainer.max_epochs=100000"]
    running = subprocess.Popen(
        [sys.executable, "-m", "src.train", *arguments],
        cwd=tmp_path,
        env=environment(code),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    wait_for(lambda: len(list(tmp_path.glob("outputs/*/history.csv"))) == 1)
    (code / "conf" / "config.yaml").write_text("defaults: [nothing]")
    (code / "src" / "training" / "experiment.py").write_text("broken")
    assert stop_first(tmp_path) == 0
    wait_for(lambda: len(list(tmp_path.glob("outputs/*/history.csv"))) == 2)
    cancel = command("src.plan", "--cancel", *arguments[1:], cwd=tmp_path)
    assert "1 running cells will stop" in cancel.stdout, cancel.stderr
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 1 and "2 cells: 2 interrupted" in output
    assert output.count("it was cancelled; the same command continues it") == 2


def test_a_cancelled_run_that_is_typed_again_is_not_asked_to_stop_any_more(tmp_path: Path) -> None:
    (cell,) = cells(TINY)
    record.ask_to_stop(tmp_path / cell.folder)
    assert command("src.train", *TINY, cwd=tmp_path).returncode == 0
    assert record.status(tmp_path / cell.folder) == "done" and not record.is_asked_to_stop(tmp_path / cell.folder)


def stop_first(folder: Path) -> int:
    """Ask the cell that runs to stop."""
    (run,) = (path.parent for path in folder.glob("outputs/*/history.csv"))
    record.ask_to_stop(run)
    return 0


def wait_for(condition: Callable[[], bool], seconds: int = 120) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_sigterm_ends_a_whole_sweep_which_can_be_continued(tmp_path: Path) -> None:
    arguments = [sys.executable, "-m", "src.train", "-m", "seed=0,1", *TINY, "trainer.max_epochs=100000"]
    process = subprocess.Popen(arguments, cwd=tmp_path, env=environment(), stderr=subprocess.DEVNULL)
    wait_for(lambda: len(list(tmp_path.glob("outputs/*/history.csv"))) == 1)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 143
    (folder,) = tmp_path.glob("outputs/sas*")
    assert record.status(folder) == "interrupted" and (folder / "last.ckpt").exists()


def test_missing_data_are_said_before_any_cell_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps.prepare, "prepare", lambda name, root: refuse(name))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no mnist"):
        sweeps.start(["dataset=mnist,rotated_mnist"])
    assert not list(tmp_path.glob("outputs/*"))


def refuse(name: str) -> str:
    raise UserError(f"no {name}")
