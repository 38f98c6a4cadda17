"""Sweeps: which cells there are, that the rest of them is done, and that failures are named and stop nothing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from src import plan
from src.launch import sweeps
from src.runs import record as runs
from src.runs.errors import UserError
from tests.configs import composed

ROOT = Path(__file__).parents[1]
TINY = [
    "dataset.max_train=120",
    "dataset.max_test=10",
    "dataset.batch_size=60",
    "active_set.size=10",
    "evaluation.active_sets=1",
    "evaluation.condition_on=20",
    "trainer.max_epochs=1",
]


def command(module: str, *arguments: str, cwd: Path, code: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", module, *arguments], cwd=cwd, env=environment(code), capture_output=True, text=True
    )


def environment(code: Path = ROOT) -> dict[str, str]:
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(code)}


SWEEPS = sorted(path.stem for path in (ROOT / "sweeps" / "sweep").glob("*.yaml"))


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_composes_and_says_how_to_start_it(name: str) -> None:
    found = sweeps.cells([f"+sweep={name}"])
    assert len({cell.folder for cell in found}) == len(found) > 1
    header = (ROOT / "sweeps" / "sweep" / f"{name}.yaml").read_text().partition("hydra:")[0]
    assert f"python -m src.train +sweep={name}" in header and re.search(r"CPU", header)
    told = re.search(r"^# (\d+) cells", header, re.MULTILINE)
    assert told is None or int(told[1]) == len(found)


def test_the_paper_s_table_is_all_of_its_cells() -> None:
    found = {(cell.model, cell.dataset, cell.config["model"]["active_set"], cell.config["seed"]) for cell in table1()}
    sizes, seeds = (100, 200, 400), (0, 1, 2)
    assert found == {
        (model, dataset, size, seed)
        for model in ("sas", "bayesian_sas")
        for dataset in ("mnist", "fmnist", "cifar10")
        for size in sizes
        for seed in seeds
    }


def table1() -> list[sweeps.Cell]:
    return sweeps.cells(["+sweep=table1"])


@pytest.mark.parametrize("arguments", [["+sweep=table2", "seed=0"], ["model=sas,vae", "kernel=rbf_ard,rbf", "seed=1"]])
def test_a_cell_is_what_hydra_composes_of_its_overrides(arguments: list[str]) -> None:
    for cell in sweeps.cells(arguments):
        assert cell.config == composed(*cell.overrides)


def test_the_command_line_replaces_values_of_the_file() -> None:
    found = sweeps.cells(["+sweep=table1", "dataset=mnist", "seed=7", "trainer.max_epochs=2"])
    assert len(found) == 6 and {cell.config["trainer"]["max_epochs"] for cell in found} == {2}
    assert {(cell.dataset, cell.config["seed"], cell.config["group"]) for cell in found} == {("mnist", 7, "table1")}


def test_cells_that_are_the_same_run_are_one() -> None:
    found = sweeps.cells(["model=vae,sas", "active_set=a50,a100"])
    assert [(cell.model, cell.config["active_set"]["size"]) for cell in found] == [
        ("vae", 50),
        ("sas", 50),
        ("sas", 100),
    ]


def test_a_changed_default_is_another_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = copied_code(tmp_path)
    before = command("src.plan", "model=sas,vae", cwd=tmp_path, code=copy).stdout
    config = copy / "conf" / "model" / "sas.yaml"
    config.write_text(config.read_text().replace("noise: 0.1", "noise: 0.2"))
    after = command("src.plan", "model=sas,vae", cwd=tmp_path, code=copy).stdout
    assert before.splitlines()[0] != after.splitlines()[0] and before.splitlines()[1] == after.splitlines()[1]


def copied_code(folder: Path) -> Path:
    for package in sweeps.PACKAGES:
        shutil.copytree(ROOT / package, folder / "code" / package, ignore=shutil.ignore_patterns("__pycache__"))
    return folder / "code"


def test_a_plan_shows_states_times_and_what_is_left(tmp_path: Path) -> None:
    arguments = ["+sweep=smoke", f"paths.outputs={tmp_path}"]
    sas, *_, vae, svgp_vae = sweeps.cells(arguments)
    put(sas, {"status": "done", "seconds": 120.0})
    (sas.folder / "metrics.json").write_text("{}")
    put(vae, {"status": "failed", "error": "ZeroDivisionError: on purpose"})
    put(svgp_vae, {"status": "running", "host": "node7", "pid": 1})
    (svgp_vae.folder / "history.csv").write_text("epoch,step,seconds,loss\n0,2,1.0,0.51234\n")
    text = plan.table(sweeps.cells(arguments))
    assert re.search(rf"done +{sas.folder.name} +2 min", text)
    assert re.search(rf"failed +{vae.folder.name} +ZeroDivisionError: on purpose", text)
    assert re.search(rf"interrupted +{svgp_vae.folder.name} +epoch 1/2 loss 0.5123", text)  # its owner is dead
    assert "9 cells: 6 missing" in text and "about 16 min of computing left" in text
    with runs.recorded(svgp_vae.folder, {}):
        assert f"running      {svgp_vae.folder.name}" in plan.table([svgp_vae])


def put(cell: sweeps.Cell, record: dict[str, object]) -> None:
    cell.folder.mkdir(parents=True)
    (cell.folder / "record.json").write_text(json.dumps(record))


@pytest.mark.parametrize("module", ["src.plan", "src.train"])
def test_a_typo_in_one_cell_is_found_before_any_runs(module: str, tmp_path: Path) -> None:
    many = "seed=" + ",".join(map(str, range(36)))
    flag = ["-m"] if module == "src.train" else []
    result = command(module, *flag, "dataset=digits,mnits", many, cwd=tmp_path)
    assert result.returncode == 1 and "Did you mean dataset=mnist" in result.stderr
    assert "Traceback" not in result.stderr and not list(tmp_path.iterdir())


def test_three_failures_of_eight_cells_are_named_and_only_they_run_again(tmp_path: Path) -> None:
    """Three broken data files, each in its own way; mended, the same command does what is missing."""
    random = np.random.default_rng(0)
    good = [random.normal(size=(140, 5)).astype(np.float32) for _ in range(8)]
    for number, array in enumerate(good):
        np.save(tmp_path / f"{number}.npy", array)
    (tmp_path / "1.npy").unlink()
    (tmp_path / "3.npy").write_bytes(b"not an array")
    np.save(tmp_path / "6.npy", good[6] * np.float32(1e30))
    files = "dataset.train=" + ",".join(f"{number}.npy" for number in range(8))
    arguments = ["-m", "dataset=array", files, *TINY]
    first = command("src.train", *arguments, cwd=tmp_path)
    assert first.returncode == 1, first.stderr
    assert "8 cells: 5 done, 3 failed" in first.stdout
    failures = [line.split() for line in first.stdout.splitlines() if line.startswith("  failed")]
    logs = [Path(tmp_path / words[-1]).read_text() for words in failures]
    assert len(failures) == 3 and all("Traceback" in log for log in logs)
    assert "1.npy" in logs[0] and "3.npy" in logs[1] and "errors.NumericalError: " in logs[2]
    for number in (1, 3, 6):
        np.save(tmp_path / f"{number}.npy", good[number])
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("outputs/*/metrics.json")}
    second = command("src.train", *arguments, cwd=tmp_path)
    assert second.returncode == 0, second.stderr
    assert "8 cells, 3 of them to do" in second.stdout and second.stdout.count("run folder:") == 3
    assert len(times) == 5 and all(path.stat().st_mtime_ns == before for path, before in times.items())
    record = runs.read_json(next(tmp_path.glob("outputs/*/record.json")))
    assert record["command"].startswith("python -m src.train dataset=array dataset.train=")
    assert record["git"] == runs.git_revision()


def test_fail_fast_begins_no_further_cell(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(140, 5)).astype(np.float32))
    arguments = ["-m", "dataset=array", "dataset.train=x.npy,none.npy", "seed=0,1", "fail_fast=true", *TINY]
    result = command("src.train", *arguments, cwd=tmp_path)
    assert result.returncode == 1 and "4 cells: 2 done, 1 failed, 1 missing" in result.stdout, result.stdout


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
    (code / "src" / "experiment.py").write_text("broken")
    assert stop_first(tmp_path) == 0
    wait_for(lambda: len(list(tmp_path.glob("outputs/*/history.csv"))) == 2)
    cancel = command("src.plan", "--cancel", *arguments[1:], cwd=tmp_path)
    assert "1 running cells will stop" in cancel.stdout, cancel.stderr
    output, _ = running.communicate(timeout=60)
    assert running.returncode == 1 and "2 cells: 2 interrupted" in output
    assert output.count("it was cancelled; the same command continues it") == 2


def test_a_cancelled_run_that_is_typed_again_is_not_asked_to_stop_any_more(tmp_path: Path) -> None:
    (cell,) = sweeps.cells(TINY)
    runs.ask_to_stop(tmp_path / cell.folder)
    assert command("src.train", *TINY, cwd=tmp_path).returncode == 0
    assert runs.status(tmp_path / cell.folder) == "done" and not runs.is_asked_to_stop(tmp_path / cell.folder)


def stop_first(folder: Path) -> int:
    """Ask the cell that runs to stop."""
    (run,) = (path.parent for path in folder.glob("outputs/*/history.csv"))
    runs.ask_to_stop(run)
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
    assert runs.status(folder) == "interrupted" and (folder / "last.ckpt").exists()


def test_missing_data_are_said_before_any_cell_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeps.prepare, "prepare", lambda name, root: refuse(name))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="no mnist"):
        sweeps.start(["dataset=mnist,rotated_mnist"])
    assert not list(tmp_path.glob("outputs/*"))


def refuse(name: str) -> str:
    raise UserError(f"no {name}")
