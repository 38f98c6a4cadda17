"""Runs, read from their folders. Incomplete or unrelated folders are listed and skipped."""

import csv
import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from zipfile import BadZipFile

import yaml

from src.runs import record
from src.runs.errors import UserError
from src.runs.files import read_json
from src.runs.identity import Config, Value
from src.runs.published import levels_of, settings_of
from src.runs.request import RunRequest

if TYPE_CHECKING:
    from src.evaluation.task import Arrays

REPORT = "report"  # the report's own folder among the runs
NAME = re.compile(r"(?P<model>[^-]+)-(?P<dataset>[^-]+)-(?:[^-]+-)?s\d+-[0-9a-f]{8}")
MOVED_ASIDE = re.compile(NAME.pattern + r"\.\d{4}-\d\d-\d\dT.*")  # a finished run after `rerun=true`
STATUSES = ("done", "running", "failed", "interrupted")
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times faster


@dataclass(frozen=True)
class Run:
    """One run: its settings, its status and, if it is finished, its metrics."""

    folder: Path
    model: str
    dataset: str
    status: str  # running, done, failed or interrupted; missing for a cell of a sweep that never ran
    config: Config = field(repr=False)
    record: dict[str, Any] = field(repr=False)
    metrics: dict[str, float] = field(repr=False)
    evaluations: list[dict[str, Any]] = field(default_factory=list, repr=False)  # metrics of later evaluations

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def seed(self) -> int:
        """The seed of everything random."""
        return int(self.config["seed"])

    @property
    def active_set(self) -> Value:
        """A, or `random`; None for models without an active set."""
        size: Value = self.config["model"].get("active_set")
        return size

    @property
    def epochs(self) -> int:
        """The epochs that were asked for."""
        return int((self.config.get("trainer") or {}).get("max_epochs") or 0)

    @cached_property
    def settings(self) -> dict[str, Value]:
        """Everything that can change the numbers, without the seed."""
        return settings_of(self.config)

    @cached_property
    def levels(self) -> dict[str, Value]:
        """The value of every level that tables may have, but the metric."""
        return levels_of(self.model, self.dataset, self.settings)

    @cached_property
    def group(self) -> str:
        """The same for runs that differ only in their seed."""
        return json.dumps([self.model, self.dataset, self.settings], sort_keys=True)

    @cached_property
    def history(self) -> list[dict[str, float]]:
        """Every value of every epoch, from `history.csv`; empty if it is not complete or has no loss or seconds."""
        try:
            with (self.folder / "history.csv").open(newline="") as file:
                head, *rows = csv.reader(file)
            if not {"loss", "seconds"} <= set(head):
                return []
            kept = [(name, at) for at, name in enumerate(head) if name not in ("epoch", "step")]
            return [{name: float(row[at]) for name, at in kept} for row in rows]
        except (OSError, ValueError, IndexError):
            return []

    @cached_property
    def arrays(self) -> "Arrays":
        """The arrays that the tasks left for figures and explorer; empty if there are none or the file is damaged."""
        import numpy as np

        try:
            with (self.folder / "explorer.npz").open("rb") as file, np.load(file) as arrays:
                return dict(arrays)
        except (OSError, ValueError, EOFError, BadZipFile):
            return {}


class Records(NamedTuple):
    """What a folder of runs holds."""

    runs: list[Run]
    skipped: dict[str, str]  # the names of what is not in the report, and why


def read(outputs: Path) -> Records:
    """All runs in a folder, in the order of their names."""
    if not outputs.is_dir():
        raise UserError(f"there is no folder {outputs}")
    found, skipped = [], {}
    for folder in sorted(path for path in outputs.iterdir() if path.is_dir()):
        if folder.name.startswith(".") or (folder.name == REPORT and not (folder / "record.json").exists()):
            continue
        try:
            found.append(read_run(folder))
        except (OSError, ValueError, yaml.YAMLError) as error:
            skipped[folder.name] = " ".join(str(error).split())
    return Records(found, skipped)


def together(places: Iterable[Records]) -> Records:
    """The runs of several places by their names; of a run in several, the first that is finished, or the first."""
    runs: dict[str, Run] = {}
    skipped: dict[str, str] = {}
    for place in places:
        skipped |= place.skipped
        for run in place.runs:
            known = runs.setdefault(run.name, run)
            if known.status != "done" and run.status == "done":
                runs[run.name] = run
    return Records([runs[name] for name in sorted(runs)], skipped)


def read_run(folder: Path) -> Run:
    """The run of one folder; a ValueError explains why the folder holds none."""
    if MOVED_ASIDE.fullmatch(folder.name):
        raise ValueError("an earlier run, moved aside by rerun=true")
    name = NAME.fullmatch(folder.name)
    if name is None or not (folder / "record.json").exists():
        raise ValueError("not the folder of a run" if name is None else "incomplete: it has no record.json")
    content, config = whole_json(folder / "record.json"), whole_yaml(folder / "config.yaml")
    if content.get("status") not in STATUSES:
        raise ValueError(f"incomplete: record.json has the status {content.get('status')}")
    check_config(config)
    status = current_status(folder, content)
    scores = whole_json(folder / "metrics.json") if status == "done" else {}
    later = later_evaluations(folder)
    metrics = valid_metrics(config, {**added_metrics(folder, later), **scores} if scores else {})
    return Run(folder, name["model"], name["dataset"], status, config, content, metrics, list(later.values()))


def check_config(config: Config) -> None:
    """Raise a ValueError if a config is not that of a run."""
    if not isinstance(config.get("model"), dict) or "seed" not in config:
        raise ValueError("incomplete: config.yaml has no model or no seed")


def valid_metrics(config: Config, scores: dict[str, Any]) -> dict[str, float]:
    """The numbers among the scores of a run.

    Early runs with Bernoulli pixels recorded an `nlpd` under a clamped Normal. Bits have no density, so it is left out;
    later runs record `nlp`.
    """
    bits = config["model"].get("likelihood") == "bernoulli"
    numbers = {key: value for key, value in scores.items() if isinstance(value, int | float)}
    return {key: value for key, value in numbers.items() if not (bits and key.partition("_")[0] == "nlpd")}


def later_evaluations(folder: Path) -> dict[str, dict[str, Any]]:
    """The metrics of every complete file that `python -m src.evaluate` left, by the names of the files."""
    paths = sorted((folder / "evaluations").glob("*.json"))
    return {path.stem: content.get("metrics", {}) for path in paths if (content := json_or_nothing(path))}


def added_metrics(folder: Path, later: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Metrics of later evaluations with the run's own settings, which can only add to its metrics."""
    own = folder.name.rpartition("-")[2]
    return {key: value for name, found in later.items() if name.startswith(own) for key, value in found.items()}


def current_status(folder: Path, content: dict[str, Any]) -> str:
    """Status of the run now; if the folder cannot be locked, the recorded status."""
    try:
        return str(record.status(folder))
    except OSError:
        return str(content["status"])


def whole_json(path: Path) -> dict[str, Any]:
    """A JSON file that must exist and be complete."""
    content = json_or_nothing(path)
    if content is None:
        raise ValueError(f"incomplete: {path.name} is missing or damaged")
    return content


def json_or_nothing(path: Path) -> dict[str, Any] | None:
    """A JSON object from a file; None for anything else."""
    try:
        content = read_json(path)
    except ValueError:
        return None
    return content if path.exists() and isinstance(content, dict) else None


def whole_yaml(path: Path) -> Config:
    """A YAML file that must exist and be complete."""
    if not path.exists():
        raise ValueError(f"incomplete: it has no {path.name}")
    content = yaml.load(path.read_text(), Loader)
    if not isinstance(content, dict):
        raise ValueError(f"incomplete: {path.name} is empty")
    return content


def differing(compared: Iterable[Run]) -> list[str]:
    """The settings, except the active set, in which runs of the same model and dataset differ."""
    seen: dict[tuple[str, str], dict[str, Value]] = {}
    keys: set[str] = set()
    for run in compared:
        first = seen.setdefault((run.model, run.dataset), run.settings)
        keys |= {key for key in first.keys() | run.settings.keys() if first.get(key) != run.settings.get(key)}
    return sorted(keys - {"model.active_set"})


def find(outputs: Path, wanted: str) -> Run:
    """The run with this folder, name, or end of a name, such as the fingerprint."""
    if outputs.is_file():
        raise UserError(f"{outputs} holds no folders of runs, which showing or comparing {wanted} needs")
    candidates = [Path(wanted), outputs / wanted]
    folder = next((path for path in candidates if (path / "record.json").exists()), None)
    if folder is None:
        named = [path for path in outputs.glob(f"*{wanted}") if (path / "record.json").exists()] if wanted else []
        if len(named) != 1:
            raise UserError(f"{wanted} is not a run: the names of {len(named)} folders in {outputs} end with it")
        folder = named[0]
    try:
        return read_run(folder.resolve())
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{folder}: {error}") from error


def representatives(candidates: Iterable[Run]) -> list[Run]:
    """One finished run per dataset and model, for maps: the most epochs, the largest active set, the lowest seed."""
    best: dict[tuple[str, str], Run] = {}
    for run in sorted(candidates, key=prominence):
        if run.status == "done":
            best[run.dataset, run.model] = run
    return [best[key] for key in sorted(best)]


def prominence(run: Run) -> tuple[bool, float, float, int, str]:
    """Sorts the run to show last, never by a score; runs without anything to show come first."""
    size = run.active_set if isinstance(run.active_set, int) else 0
    return (run.folder / "explorer.npz").exists(), run.epochs, size, -run.seed, str(run.record.get("started"))


def of_sweep(found: Iterable[Run], arguments: list[str]) -> list[Run]:
    """The runs of a sweep, with stand-ins of status `missing` for cells that never ran."""
    from src.launch.cells import cells

    by_name = {run.name: run for run in found}
    return [by_name.get(cell.folder.name) or never_ran(cell) for cell in cells(arguments)]


def of_cells(cells: Iterable[RunRequest]) -> list[Run]:
    """The runs of cells that are where they should be, whatever their status."""
    return [run_of(cell) for cell in cells]


def run_of(cell: RunRequest) -> Run:
    """The run of a cell, or its stand-in."""
    try:
        return read_run(cell.folder)
    except (OSError, ValueError, yaml.YAMLError):
        return never_ran(cell)


def never_ran(cell: RunRequest) -> Run:
    """A stand-in for a cell of a sweep that never ran."""
    command = shlex.join(["python", "-m", "src.train", *cell.overrides])
    return Run(cell.folder, cell.model, cell.dataset, "missing", cell.config, {"command": command}, {})
