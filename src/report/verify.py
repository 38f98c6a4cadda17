"""Run a stored run again by its own command, and compare the scores: `python -m src.report --verify FILE RUN`."""

import math
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from src.launch.cells import cells
from src.launch.cli import check_overrides
from src.report import archive, records
from src.report.comparison import columns, settings_that_differ
from src.report.records import Run
from src.runs import code
from src.runs.errors import UserError
from src.runs.request import RunRequest

OF_THE_MACHINE = ("seconds_per_epoch", "peak_memory_mb")
TOLERANCE = 0.02  # relative: training magnifies the rounding of other processors, versions and numbers of threads
SMALLEST = 0.002  # absolute, for scores near 0
COMMAND = ["python", "-m", "src.train"]


class Line(NamedTuple):
    """A score that was stored and what it is now; None if it is missing."""

    metric: str
    stored: float
    now: float | None
    verdict: str  # equal, close, DIFFERS or MISSING

    @property
    def agrees(self) -> bool:
        """Whether the score was reproduced."""
        return self.verdict in ("equal", "close")


def verify(stored_in: Path, wanted: str, folder: Path | None) -> bool:
    """Whether a run gives its stored scores again; prints them side by side.

    The run is trained in `folder`, where it stays and is resumed, or in a temporary one.
    """
    stored = find(stored_in, wanted)
    with runs_in(folder) as outputs:
        cell = cell_of(stored, outputs)
        print(f"{stored.name}: {shlex.join([*COMMAND, *cell.overrides])}", flush=True)
        train(cell)
        now = records.find(outputs, str(cell.folder))
    exact = is_same_machine(stored, now)
    found = lines(stored, now, exact)
    print("\n".join(["", *changed_settings(stored, now), text(found), "", conclusion(found, exact)]))
    return all(line.agrees for line in found)


def find(stored_in: Path, wanted: str) -> Run:
    """A finished run of a file or folder by its name or the end of its name, such as the fingerprint."""
    if stored_in.is_dir():
        run = records.find(stored_in, wanted)
    else:
        named = [run for run in archive.read(stored_in) if wanted and run.name.endswith(wanted)]
        if len(named) != 1:
            raise UserError(f"{wanted} is not a run: the names of {len(named)} runs in {stored_in} end with it")
        (run,) = named
    if run.status != "done":
        raise UserError(f"{run.name} is {run.status}: only a finished run has scores to compare")
    return run


@contextmanager
def runs_in(folder: Path | None) -> Iterator[Path]:
    """The folder of the run: the one that was named, or a temporary one."""
    if folder is not None:
        yield folder
        return
    with TemporaryDirectory(prefix="gp-decoders-") as temporary:
        yield Path(temporary)


def cell_of(stored: Run, outputs: Path) -> RunRequest:
    """What the stored command asks for today, composed and checked before any work."""
    words = shlex.split(stored.record.get("command", ""))
    if words[:3] != COMMAND:
        raise UserError(f"{stored.name} cannot be run again: its command is not one of {' '.join(COMMAND)}")
    overrides = [word for word in words[3:] if not word.startswith("paths.outputs=")]
    overrides.append(f"paths.outputs={outputs.resolve()}")
    check_overrides(overrides)
    (cell,) = cells(overrides)
    return cell


def train(cell: RunRequest) -> None:
    """Train with the code of this command, in a process of its own."""
    path = os.pathsep.join(filter(None, [str(code.ROOT), os.environ.get("PYTHONPATH")]))
    command = [sys.executable, *COMMAND[1:], *cell.overrides]
    if subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=False).returncode:
        raise UserError("the run did not finish, so there is nothing to compare")


def is_same_machine(stored: Run, now: Run) -> bool:
    """Whether code, packages, number of threads and host are the same, so that every number must be."""
    decisive = ("code", "versions", "python", "threads", "host")
    known = {**now.record, "host": platform.node()}
    return all(stored.record.get(key) is not None and stored.record[key] == known.get(key) for key in decisive)


def lines(stored: Run, now: Run, exact: bool) -> list[Line]:
    """The scores that the run itself computed; those that `src.evaluate` added later and timings are left out."""
    added = {name for later in stored.evaluations for name in later}
    names = [
        name for name in stored.metrics if name not in OF_THE_MACHINE and (name in now.metrics or name not in added)
    ]
    values = [(name, stored.metrics[name], now.metrics.get(name)) for name in names]
    return [Line(name, then, value, verdict(then, value, exact)) for name, then, value in values]


def verdict(stored: float, now: float | None, exact: bool) -> str:
    """What to say of one score."""
    if now is None:
        return "MISSING"
    if stored == now or (math.isnan(stored) and math.isnan(now)):
        return "equal"
    return "close" if not exact and abs(now - stored) <= max(TOLERANCE * abs(stored), SMALLEST) else "DIFFERS"


def changed_settings(stored: Run, now: Run) -> list[str]:
    """The settings that the command stands for today and did not then; those that are null count as absent."""
    rows = settings_that_differ(stored, now)
    return ["The command stands for other settings now:", columns([("", "stored", "now"), *rows]), ""] if rows else []


def text(found: list[Line]) -> str:
    """A plain table for a terminal."""
    rows = [("", "stored", "now", "difference", "")]
    for line in found:
        now, difference = ("-", "") if line.now is None else (f"{line.now:.6g}", f"{line.now - line.stored:+.2g}")
        rows.append((line.metric, f"{line.stored:.6g}", now, difference, line.verdict))
    return columns(list(rows))


def conclusion(found: list[Line], exact: bool) -> str:
    """Whether the run was reproduced, and what was asked for."""
    wrong = ", ".join(line.metric for line in found if not line.agrees)
    same = "the same machine, code, packages and threads, so numbers must be equal"
    other = f"another machine, code, package or number of threads, so numbers may differ by {TOLERANCE:.0%}"
    return f"{f'Not reproduced: {wrong}' if wrong else 'Reproduced'} ({same if exact else other})."
