"""Show a sweep before it starts and while it runs: `python -m src.plan +sweep=table1 [--watch | --cancel]`."""

import argparse
import csv
import sys
import time
from collections import Counter
from statistics import mean
from typing import Any

from hydra._internal.utils import run_and_report

from src.launch.cli import with_hints
from src.launch.sweeps import Cell, cells
from src.runs import record as runs

SIGNS = {"done": "+", "running": ">", "interrupted": "~", "failed": "x", "missing": "."}
REFRESH = 2  # seconds


def main() -> None:
    """Compose and check every cell, and say how each stands."""
    parser = argparse.ArgumentParser(
        prog="python -m src.plan",
        description="Compose every cell of a sweep and show how it stands, before it starts or while it runs.",
    )
    parser.add_argument("overrides", nargs="*", help="the sweep as it is started: +sweep=table1, or model=sas,vae ...")
    parser.add_argument("--watch", action="store_true", help="keep the table live until every cell is done or failed")
    parser.add_argument(
        "--cancel", action="store_true", help="stop its cells that run or wait; they can be continued afterwards"
    )
    options = parser.parse_args()
    every: list[Cell] = run_and_report(lambda: cells(options.overrides))
    if options.cancel:
        cancel(every)
    elif options.watch:
        watch(every)
    else:
        print(table(every))


def table(every: list[Cell]) -> str:
    """A line a cell, and what is left to do."""
    states = [cell.status for cell in every]
    lines = [line(cell, state) for cell, state in zip(every, states, strict=True)]
    counts = ", ".join(f"{count} {state}" for state, count in Counter(states).most_common())
    return "\n".join([*lines, "", f"{len(every)} cells: {counts}{time_left(every, states)}"])


def line(cell: Cell, state: str) -> str:
    """How a cell stands: its time, its reason, or how far it is."""
    return f"{SIGNS[state]} {state:<12} {cell.folder.name:<48} {detail(cell, state)}".rstrip()


def detail(cell: Cell, state: str) -> str:
    """What to know of a cell in its state."""
    if state == "missing":
        return ""
    record = runs.read_json(cell.folder / "record.json")
    if state == "done":
        return duration(record["seconds"]) if "seconds" in record else ""
    where = f"on {record['host']}, process {record['pid']}" if state == "running" else record.get("error", "")
    return f"{progress(cell)}  {where}".strip()


def progress(cell: Cell) -> str:
    """The last finished epoch and its values."""
    path = cell.folder / "history.csv"
    rows = list(csv.DictReader(path.read_text().splitlines())) if path.exists() else []
    if not rows:
        return ""
    named = {name: value for name, value in rows[-1].items() if name not in ("epoch", "step", "seconds", "jitter")}
    values = " ".join(f"{name} {float(value):.4g}" for name, value in named.items())
    return f"epoch {len(rows)}/{cell.config['trainer']['max_epochs']} {values}"


def time_left(every: list[Cell], states: list[str]) -> str:
    """The time that the other cells will take if they are like the finished ones of the same model, or of any."""
    done = [cell for cell, state in zip(every, states, strict=True) if state == "done"]
    left = [cell for cell, state in zip(every, states, strict=True) if state != "done"]
    taken = [(cell, seconds(cell)) for cell in done]
    if not left or not taken:
        return ""
    return f"; about {duration(sum(expected(cell, taken) for cell in left))} of computing left"


def expected(cell: Cell, taken: list[tuple[Cell, float]]) -> float:
    """The mean time of finished cells: those like it in model and dataset, or in model, or all."""
    alike = [[s for other, s in taken if key(other) == key(cell)] for key in (model_and_dataset, model)]
    return mean(next(filter(None, alike), [s for _, s in taken]))


def model_and_dataset(cell: Cell) -> Any:
    """What decides most of a cell's time."""
    return cell.model, cell.dataset


def model(cell: Cell) -> Any:
    """What decides some of it."""
    return cell.model


def seconds(cell: Cell) -> float:
    """How long a finished cell took."""
    return float(runs.read_json(cell.folder / "record.json").get("seconds", 0))


def duration(seconds: float) -> str:
    """Hours, minutes or seconds."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def watch(every: list[Cell]) -> None:
    """The table, again and again."""
    clear = "\x1b[H\x1b[J" if sys.stdout.isatty() else ""
    while True:
        print(clear + table(every), flush=True)
        if all(cell.status in ("done", "failed") for cell in every):
            return
        time.sleep(REFRESH)


def cancel(every: list[Cell]) -> None:
    """Ask every cell that is not finished to stop, or not to begin."""
    unfinished = [cell for cell in every if cell.status in ("running", "missing", "interrupted")]
    for cell in unfinished:
        runs.ask_to_stop(cell.folder)
    running = sum(cell.status == "running" for cell in unfinished)
    print(f"{running} running cells will stop at their next step, {len(unfinished) - running} others will not begin")


if __name__ == "__main__":
    try:
        with_hints(main)
    except KeyboardInterrupt:
        sys.exit(130)
