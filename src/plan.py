"""Show a sweep before it starts or while it runs: `python -m src.plan +sweep=table1 [--watch | --cancel]`."""

import argparse
import csv
import sys
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import Any

from src.launch import cells, choices, values
from src.launch.cli import answer
from src.runs import files, record
from src.runs.request import RunRequest

SIGNS = {"done": "+", "running": ">", "interrupted": "~", "failed": "x", "missing": ".", "rejected": "!"}
REFRESH = 2  # seconds
NO_PROBLEMS: Mapping[Path, str] = MappingProxyType({})


def main() -> None:
    """Compose and check every cell, and show its status."""
    parser = argparse.ArgumentParser(
        prog="python -m src.plan",
        description="Compose every cell of a sweep and show its status, before the sweep starts or while it runs.",
    )
    parser.add_argument("overrides", nargs="*", help="the sweep, as for src.train: +sweep=table1, or model=sas,vae ...")
    parser.add_argument("-m", "--multirun", action="store_true", help="accepted as for src.train; a plan is of a sweep")
    parser.add_argument("--watch", action="store_true", help="refresh the table until every cell is done or failed")
    parser.add_argument(
        "--cancel", action="store_true", help="stop all cells that run or wait; the same sweep resumes them"
    )
    options = parser.parse_intermixed_args()
    every, problems, remarks = answer(lambda: checked(options.overrides))
    if options.cancel:
        cancel(every)
    elif options.watch:
        watch(every)
    else:
        print("\n".join([table(every, problems), *remarks]))
        sys.exit(1 if problems else 0)


def checked(overrides: list[str]) -> tuple[list[RunRequest], dict[Path, str], list[str]]:
    """The cells of a sweep, what is wrong with the values of some, and what to know about its choices."""
    sweep = cells.read(overrides)
    remarks = [*choices.check_sweep(sweep), *choices.pair_remarks(sweep.cells), *choices.file_remarks(sweep.cells)]
    problems = values.first_problems(sweep.cells)
    impossible = values.impossible_pairs(cell for cell in sweep.cells if cell.folder not in problems)
    return sweep.cells, {**problems, **impossible}, remarks


def table(every: list[RunRequest], problems: Mapping[Path, str] = NO_PROBLEMS) -> str:
    """One line per cell, and what is left to do."""
    states = ["rejected" if cell.folder in problems else cell.status for cell in every]
    lines = [line(cell, state, problems) for cell, state in zip(every, states, strict=True)]
    counts = ", ".join(f"{count} {state}" for state, count in Counter(states).most_common())
    return "\n".join([*lines, "", f"{len(every)} cells: {counts}{time_left(every, states)}"])


def line(cell: RunRequest, state: str, problems: Mapping[Path, str]) -> str:
    """Status of a cell, with its time, its error or its progress."""
    told = problems.get(cell.folder) or detail(cell, state)
    return f"{SIGNS[state]} {state:<12} {cell.folder.name:<48} {told}".rstrip()


def detail(cell: RunRequest, state: str) -> str:
    """What to know about a cell in its state."""
    if state == "missing":
        return ""
    content = files.read_json(cell.folder / "record.json")
    if state == "done":
        return duration(content["seconds"]) if "seconds" in content else ""
    where = f"on {content['host']}, process {content['pid']}" if state == "running" else content.get("error", "")
    return f"{progress(cell)}  {where}".strip()


def progress(cell: RunRequest) -> str:
    """The last finished epoch and its values."""
    path = cell.folder / "history.csv"
    rows = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
    if not rows:
        return ""
    named = {name: value for name, value in rows[-1].items() if name not in ("epoch", "step", "seconds", "jitter")}
    values = " ".join(f"{name} {float(value):.4g}" for name, value in named.items())
    return f"epoch {len(rows)}/{cell.config['trainer']['max_epochs']} {values}"


def time_left(every: list[RunRequest], states: list[str]) -> str:
    """Estimated computing time of the other cells, from the finished ones."""
    done = [cell for cell, state in zip(every, states, strict=True) if state == "done"]
    left = [cell for cell, state in zip(every, states, strict=True) if state != "done"]
    taken = [(cell, seconds(cell)) for cell in done]
    if not left or not taken:
        return ""
    return f"; about {duration(sum(expected(cell, taken) for cell in left))} of computing left"


def expected(cell: RunRequest, taken: list[tuple[RunRequest, float]]) -> float:
    """Mean time of the finished cells with the same model and dataset, else the same model, else of all."""
    alike = [[s for other, s in taken if key(other) == key(cell)] for key in (model_and_dataset, model)]
    return mean(next(filter(None, alike), [s for _, s in taken]))


def model_and_dataset(cell: RunRequest) -> Any:
    """The options that decide most of a cell's time."""
    return cell.model, cell.dataset


def model(cell: RunRequest) -> Any:
    """The option that decides some of a cell's time."""
    return cell.model


def seconds(cell: RunRequest) -> float:
    """Seconds that a finished cell took."""
    return float(files.read_json(cell.folder / "record.json").get("seconds", 0))


def duration(seconds: float) -> str:
    """A time in hours, minutes or seconds."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def watch(every: list[RunRequest]) -> None:
    """Print the table until every cell is done or failed."""
    clear = "\x1b[H\x1b[J" if sys.stdout.isatty() else ""
    while True:
        print(clear + table(every), flush=True)
        if all(cell.status in ("done", "failed") for cell in every):
            return
        time.sleep(REFRESH)


def cancel(every: list[RunRequest]) -> None:
    """Ask every unfinished cell to stop, or not to start."""
    unfinished = [cell for cell in every if cell.status in ("running", "missing", "interrupted")]
    for cell in unfinished:
        record.ask_to_stop(cell.folder)
    running = sum(cell.status == "running" for cell in unfinished)
    print(f"{running} running cells will stop at their next step, {len(unfinished) - running} others will not start")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
