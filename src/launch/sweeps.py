"""Sweeps: what is left to do, how it is launched, and how it ended."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from src.data import prepare
from src.launch import cells, choices, slurm, values
from src.launch.freeze import CODE, continue_frozen
from src.launch.heavy import heavy
from src.launch.hydra_private import config_loader, make_launcher
from src.runs import files, record, request
from src.runs.errors import Interrupted, UserError
from src.runs.request import RunRequest

Conclusion = Callable[[list[RunRequest]], None]  # what a command says of all cells at the end
STOP = "stop"  # a file in the folder of a sweep's launch: no further cell starts


def start(arguments: list[str], conclude: Conclusion | None = None) -> None:
    """Compose every cell, run those that are left, conclude, and exit with 1 if any cell is not done."""
    home = Path(os.environ.get(record.HOME, Path.cwd()))
    os.chdir(home)
    sweep = cells.read(arguments)
    every = sweep.cells
    if record.HOME not in os.environ:
        values.check(every)
    rejected = values.impossible_pairs(every)
    todo = [cell for cell in every if cell.folder not in rejected and cell.is_to_do]
    outputs = Path(every[0].config["paths"]["outputs"]).absolute()
    if record.HOME not in os.environ:
        if rejected and every[0].config["fail_fast"]:
            raise UserError(next(iter(rejected.values())))
        remarks = choices.pair_remarks(every), choices.file_remarks(every)
        for line in [*choices.check_sweep(sweep), *chain(*remarks)]:
            print(line, flush=True)
        if todo:
            record.check_writable(outputs)
            fetch_data(todo)
            continue_frozen(outputs)
    print(f"{len(every)} cells, {len(todo)} of them to do", flush=True)
    for cell in todo:
        record.withdraw_stop(cell.folder)
    launch_all(todo, [text for text in arguments if text.lstrip("+~").startswith("hydra")], outputs)
    code = report(every, rejected)
    if conclude is not None:
        conclude(every)
    sys.exit(code)


def fetch_data(todo: list[RunRequest]) -> None:
    """Fetch the files that the cells need once, before they start: their nodes may have no network."""
    with_files = [cell for cell in todo if cell.dataset in prepare.FILES_OF]
    for name, root in sorted({(prepare.FILES_OF[cell.dataset], cell.config["dataset"]["root"]) for cell in with_files}):
        print(prepare.prepare(name, Path(root)), flush=True)


def launch_all(todo: list[RunRequest], hydra_overrides: list[str], outputs: Path) -> None:
    """Launch the cells, and launch those that never started again as long as their number shrinks."""
    while todo and not launch(todo, hydra_overrides, outputs):
        before, todo = todo, [cell for cell in todo if cell.status == "missing"]
        if todo == before:
            return


def launch(todo: list[RunRequest], hydra_overrides: list[str], outputs: Path) -> bool:
    """Launch the cells with Hydra's launcher, from the folder of the code, so that other processes import it too.

    Returns False if the launcher gave up: one killed worker of joblib takes all others with it.
    """
    os.chdir(CODE)
    with config_loader() as loader:
        launcher, folder = make_launcher(job, [*hydra_overrides, f"paths.outputs={outputs}"], loader)
        try:
            launcher.launch([cell.overrides for cell in todo], initial_job_idx=0)
            return True
        except Exception as error:  # the process of a cell was killed; the records tell which
            print(f"The launcher gave up: {record.one_line(error)}", file=sys.stderr)
            slurm.wait_for_jobs(folder)
            return False
        finally:
            os.chdir(os.environ[record.HOME])


def job(config: DictConfig) -> None:
    """Run one cell, wherever it was launched. A failure is recorded and does not stop the other cells."""
    os.chdir(os.environ[record.HOME])
    cell = request.of_this_process(config)
    stop = Path(HydraConfig.get().sweep.dir) / STOP
    if stop.exists() or record.is_asked_to_stop(cell.folder):
        return
    print(f"\n{cell.folder.name}", flush=True)
    try:
        heavy("src.training.experiment").run(cell.config, cell.model, cell.dataset)
    except SystemExit:
        slurm.requeue_if_preempted()
        raise
    except Exception as error:
        print(f"{cell.folder.name}: {record.one_line(error)}", file=sys.stderr, flush=True)
        if isinstance(error, UserError) and not record.is_owned(cell.folder):
            record.record_rejection(cell.folder, cell.config, error)
        if cell.config["fail_fast"] and not isinstance(error, Interrupted):
            stop.touch()


def report(every: list[RunRequest], rejected: Mapping[Path, str]) -> int:
    """Print the status of the cells, with the reason for each cell that is not done; returns the exit code."""
    states = {cell.folder: "rejected" if cell.folder in rejected else cell.status for cell in every}
    counts = Counter(states.values())
    print(f"\n{len(every)} cells: " + ", ".join(f"{count} {state}" for state, count in counts.most_common()))
    for folder, state in states.items():
        if state != "done":
            error = files.read_json(folder / "record.json").get("error", "")
            reason = rejected.get(folder) or (f"{error}  {folder / 'log.txt'}" if error else "")
            print(f"  {state:<12} {folder.name}  {reason}".rstrip())
    return 0 if counts["done"] == len(every) else 1
