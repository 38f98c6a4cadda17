"""A sweep on a real Slurm: a cell that fails, one that is killed, and one whose node is taken away."""

import csv
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from src.runs.files import read_json
from tests.slurm.cluster import output, wait_until

pytestmark = pytest.mark.slurm

ROOT = Path(__file__).parents[2]
FINE, KILLED, PREEMPTED, FAILS, CANCELLED = "0.001", "0.002", "0.003", "1000000.0", "0.004"  # learning rates: the cells
EPOCHS = 30
EVALUATION = ["dataset.max_test=50", "evaluation.active_sets=1", "evaluation.condition_on=100"]  # quick


@contextmanager
def sweep(outputs: Path, *rates: str) -> Iterator[subprocess.Popen[str]]:
    """Type the command of a sweep; the tests end it where it does not end itself."""
    launcher = ["hydra/launcher=slurm", "hydra.launcher.cpus_per_task=1"]
    training = [f"trainer.max_epochs={EPOCHS}", "checkpoint_minutes=0"]  # so short epochs would not have one each
    cells = ["dataset=digits", "dataset.batch_size=64", "active_set=a50", *training, *EVALUATION]
    places = [f"optimizer.lr={','.join(rates)}", f"paths.outputs={outputs}"]
    command = [sys.executable, "-m", "src.train", "-m", *launcher, *cells, *places]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def run_folder(outputs: Path, rate: str) -> Path | None:
    """The folder of a cell that has begun."""
    records = outputs.glob("*/record.json")
    return next((path.parent for path in records if f"optimizer.lr={rate} " in read_json(path)["command"] + " "), None)


def record(outputs: Path, rate: str) -> dict[str, Any]:
    """The record of a cell; empty where it has not begun."""
    folder = run_folder(outputs, rate)
    return read_json(folder / "record.json") if folder else {}


def history(outputs: Path, rate: str) -> list[dict[str, str]]:
    """The epochs of a cell so far, with the seconds that each took."""
    folder = run_folder(outputs, rate)
    file = folder / "history.csv" if folder else Path("missing")
    return list(csv.DictReader(file.read_text().splitlines())) if file.exists() else []


def wait_for_training(outputs: Path, rate: str, beyond: int = 2) -> None:
    """Wait until a cell is amid its training."""

    def trains() -> bool:
        return record(outputs, rate).get("status") == "running" and len(history(outputs, rate)) > beyond

    wait_until(trains, f"the cell with rate {rate} does not train", seconds=150)
    assert len(history(outputs, rate)) < EPOCHS


def slurm_job(outputs: Path, rate: str) -> str:
    """Slurm's id of the job that works on a cell."""
    environment = Path(f"/proc/{record(outputs, rate)['pid']}/environ").read_text().split("\0")
    values = dict(line.partition("=")[::2] for line in environment)
    array = "{SLURM_ARRAY_JOB_ID}_{SLURM_ARRAY_TASK_ID}"
    return (array if "SLURM_ARRAY_JOB_ID" in values else "{SLURM_JOB_ID}").format(**values)


@dataclass(frozen=True)
class Start:
    """How the first start of the sweep went."""

    outputs: Path
    code: int
    said: str
    job: str  # the pre-empted one, as Slurm knows it
    before: list[dict[str, str]]  # its history when its node was taken away

    def folder(self, rate: str) -> Path:
        """The folder of a cell."""
        found = run_folder(self.outputs, rate)
        assert found, self.said
        return found

    def line(self, *words: str) -> str:
        """The line of the summary that begins with these words."""
        lines = [line for line in self.said.splitlines() if line.split()[: len(words)] == list(words)]
        assert lines, self.said
        return lines[0]


@pytest.fixture(scope="module")
def first(slurm: Path, tmp_path_factory: pytest.TempPathFactory) -> Start:
    """A sweep of which one cell fails, one is killed, and one gives way to an urgent job."""
    outputs = tmp_path_factory.mktemp("sweep") / "outputs"
    with sweep(outputs, FINE, KILLED, PREEMPTED, FAILS) as process:
        wait_for_training(outputs, KILLED)
        wait_for_training(outputs, PREEMPTED)
        os.kill(record(outputs, KILLED)["pid"], signal.SIGKILL)
        job, before = slurm_job(outputs, PREEMPTED), history(outputs, PREEMPTED)
        urgent = ["sbatch", "--quiet", "--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 1"]
        subprocess.check_call(urgent)
        said, _ = process.communicate(timeout=240)
    return Start(outputs, process.returncode, said, job, before)


def test_the_summary_names_what_is_not_done(first: Start) -> None:
    assert first.code == 1
    assert "4 cells: 2 done, " in first.said
    assert record(first.outputs, FINE)["status"] == "done", first.said
    log = first.folder(FAILS) / "log.txt"
    assert "NumericalError" in log.read_text()
    assert first.line("failed", log.parent.name, "NumericalError:").endswith(str(log))
    assert first.line("interrupted", first.folder(KILLED).name)


def test_a_pre_empted_cell_goes_on_where_it_was(first: Start) -> None:
    assert "REQUEUED" in output("sacct", "-nXD", "-o", "State", "-j", first.job)
    assert record(first.outputs, PREEMPTED)["status"] == "done", first.said
    assert len(history(first.outputs, PREEMPTED)) == EPOCHS
    assert history(first.outputs, PREEMPTED)[: len(first.before)] == first.before  # with the seconds that each took


def test_the_same_command_finishes_what_is_missing_even_at_a_time_limit(first: Start) -> None:
    outputs, done = first.outputs, [record(first.outputs, rate) for rate in (FINE, PREEMPTED)]
    begun = len(history(outputs, KILLED))
    with sweep(outputs, FINE, KILLED, PREEMPTED, FAILS, CANCELLED) as process:
        wait_for_training(outputs, KILLED, beyond=begun)
        before = history(outputs, KILLED)
        subprocess.check_call(["scancel", "--signal=USR2", slurm_job(outputs, KILLED)])  # what a time limit sends
        wait_for_training(outputs, CANCELLED)
        cancelled = slurm_job(outputs, CANCELLED)
        subprocess.check_call(["scancel", cancelled])
        said, _ = process.communicate(timeout=240)

    assert process.returncode == 1, said
    assert "5 cells: 3 done, " in said
    assert history(outputs, KILLED)[: len(before)] == before
    assert [record(outputs, rate) for rate in (FINE, PREEMPTED)] == done
    assert record(outputs, CANCELLED)["status"] == "interrupted"
    assert output("sacct", "-nXD", "-o", "State", "-j", cancelled).startswith("CANCELLED")  # and not requeued


def test_a_finished_sweep_sends_nothing(first: Start) -> None:
    with sweep(first.outputs, FINE, KILLED, PREEMPTED) as process:
        said, _ = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert "3 cells, 0 of them to do" in said
