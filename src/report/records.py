"""Runs as their folders tell of them: what is whole is read, what is not is named and passed over."""

import csv
import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from src.runs import record
from src.runs.errors import UserError
from src.runs.files import read_json
from src.runs.identity import Config, Value, settings
from src.runs.request import RunRequest

REPORT = "report"  # the report's own folder among the runs
NAME = re.compile(r"(?P<model>[^-]+)-(?P<dataset>[^-]+)-(?:[^-]+-)?s\d+-[0-9a-f]{8}")
MOVED_ASIDE = re.compile(NAME.pattern + r"\.\d{4}-\d\d-\d\dT.*")  # what `rerun=true` makes of a finished run
STATUSES = ("done", "running", "failed", "interrupted")
Loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # the one in C is ten times faster


@dataclass(frozen=True)
class Run:
    """One run: its settings, its status and, where it is finished, its metrics."""

    folder: Path
    model: str
    dataset: str
    status: str  # `running`, `done`, `failed` or `interrupted`; of a sweep's cell that never ran `missing`
    config: Config = field(repr=False)
    record: dict[str, Any] = field(repr=False)
    metrics: dict[str, float] = field(repr=False)
    evaluations: list[dict[str, Any]] = field(default_factory=list, repr=False)  # the metrics of later ones

    @property
    def name(self) -> str:
        """The folder's name."""
        return self.folder.name

    @property
    def seed(self) -> int:
        """Of all that is random."""
        return int(self.config["seed"])

    @property
    def active_set(self) -> Value:
        """A, or `random`; None for models without one."""
        size: Value = self.config["model"].get("active_set")
        return size

    @cached_property
    def settings(self) -> dict[str, Value]:
        """Everything that can change the numbers, the seed left out."""
        return settings(self.config)

    @cached_property
    def group(self) -> str:
        """The same for runs that differ in their seed only."""
        return json.dumps([self.model, self.dataset, self.settings], sort_keys=True)

    @cached_property
    def history(self) -> list[dict[str, float]]:
        """The rows of `history.csv`; none where there is no such file or it is not whole."""
        try:
            with (self.folder / "history.csv").open(newline="") as file:
                rows = [{key: float(value) for key, value in row.items()} for row in csv.DictReader(file)]
                return rows if rows and {"loss", "seconds"} <= rows[0].keys() else []
        except (OSError, ValueError, TypeError):
            return []


class Records(NamedTuple):
    """What a folder of runs holds."""

    runs: list[Run]
    passed_over: dict[str, str]  # the names of other folders, and why they are none


def read(outputs: Path) -> Records:
    """All runs below a folder, in the order of their names."""
    if not outputs.is_dir():
        raise UserError(f"there is no folder {outputs}")
    found, passed_over = [], {}
    for folder in sorted(path for path in outputs.iterdir() if path.is_dir()):
        if folder.name.startswith(".") or (folder.name == REPORT and not (folder / "record.json").exists()):
            continue
        try:
            found.append(read_run(folder))
        except (OSError, ValueError, yaml.YAMLError) as error:
            passed_over[folder.name] = " ".join(str(error).split())
    return Records(found, passed_over)


def read_run(folder: Path) -> Run:
    """The run of one folder; a ValueError says in one sentence why there is none."""
    if MOVED_ASIDE.fullmatch(folder.name):
        raise ValueError("an earlier run, moved aside by rerun=true")
    name = NAME.fullmatch(folder.name)
    if name is None or not (folder / "record.json").exists():
        raise ValueError("not the folder of a run" if name is None else "half-written: it has no record.json")
    content, config = whole_json(folder / "record.json"), whole_yaml(folder / "config.yaml")
    if content.get("status") not in STATUSES:
        raise ValueError(f"half-written: record.json has the status {content.get('status')}")
    check_config(config)
    status = current_status(folder, content)
    scores = whole_json(folder / "metrics.json") if status == "done" else {}
    metrics = {key: value for key, value in scores.items() if isinstance(value, int | float)}
    return Run(folder, name["model"], name["dataset"], status, config, content, metrics, later_evaluations(folder))


def check_config(config: Config) -> None:
    """Refuse a config that is not a run's."""
    if not isinstance(config.get("model"), dict) or "seed" not in config:
        raise ValueError("half-written: config.yaml has no model or no seed")


def later_evaluations(folder: Path) -> list[dict[str, Any]]:
    """The metrics of every whole file that `python -m src.evaluate` left."""
    paths = sorted((folder / "evaluations").glob("*.json"))
    return [content.get("metrics", {}) for path in paths if (content := json_or_nothing(path))]


def current_status(folder: Path, content: dict[str, Any]) -> str:
    """How the run stands now; in a folder that is not ours to lock, what its record says."""
    try:
        return str(record.status(folder))
    except OSError:
        return str(content["status"])


def whole_json(path: Path) -> dict[str, Any]:
    """A JSON file that must be there and whole."""
    content = json_or_nothing(path)
    if content is None:
        raise ValueError(f"half-written: {path.name} is missing or not whole")
    return content


def json_or_nothing(path: Path) -> dict[str, Any] | None:
    """A JSON file with an object in it; None for anything else."""
    try:
        content = read_json(path)
    except ValueError:
        return None
    return content if path.exists() and isinstance(content, dict) else None


def whole_yaml(path: Path) -> Config:
    """A YAML file that must be there and whole."""
    if not path.exists():
        raise ValueError(f"half-written: it has no {path.name}")
    content = yaml.load(path.read_text(), Loader)
    if not isinstance(content, dict):
        raise ValueError(f"half-written: {path.name} is empty")
    return content


def differing(compared: Iterable[Run]) -> list[str]:
    """The settings, other than the active set, in which runs of the same model and dataset differ."""
    seen: dict[tuple[str, str], dict[str, Value]] = {}
    keys: set[str] = set()
    for run in compared:
        first = seen.setdefault((run.model, run.dataset), run.settings)
        keys |= {key for key in first.keys() | run.settings.keys() if first.get(key) != run.settings.get(key)}
    return sorted(keys - {"model.active_set"})


def find(outputs: Path, wanted: str) -> Run:
    """A run by the path or the name of its folder, or by the end of its name, such as the fingerprint."""
    if outputs.is_file():
        raise UserError(f"{outputs} holds no folders of runs, from which alone {wanted} can be shown or compared")
    candidates = [Path(wanted), outputs / wanted]
    folder = next((path for path in candidates if (path / "record.json").exists()), None)
    if folder is None:
        named = [path for path in outputs.glob(f"*{wanted}") if (path / "record.json").exists()] if wanted else []
        if len(named) != 1:
            raise UserError(f"{wanted} is not a run: {len(named)} folders in {outputs} have a name that ends so")
        folder = named[0]
    try:
        return read_run(folder.resolve())
    except (ValueError, yaml.YAMLError) as error:
        raise UserError(f"{folder}: {error}") from error


def representatives(candidates: Iterable[Run]) -> list[Run]:
    """One finished run a dataset and model, for maps: of the lowest seed, the largest active set, the newest."""
    best: dict[tuple[str, str], Run] = {}
    for run in sorted(candidates, key=prominence):
        if run.status == "done":
            best[run.dataset, run.model] = run
    return [best[key] for key in sorted(best)]


def prominence(run: Run) -> tuple[bool, int, float, str]:
    """What sorts the run to show last; those that left nothing to show come first."""
    size = run.active_set if isinstance(run.active_set, int) else 0
    return (run.folder / "explorer.npz").exists(), -run.seed, size, str(run.record.get("started"))


def of_sweep(found: Iterable[Run], name: str, overrides: list[str]) -> list[Run]:
    """The runs that are cells of a sweep, and stand-ins with the status `missing` for those that never ran."""
    from src.launch.cells import cells

    by_name = {run.name: run for run in found}
    return [by_name.get(cell.folder.name) or never_ran(cell) for cell in cells([f"+sweep={name}", *overrides])]


def never_ran(cell: RunRequest) -> Run:
    """A stand-in for a cell of a sweep without a run."""
    command = shlex.join(["python", "-m", "src.train", *cell.overrides])
    return Run(cell.folder, cell.model, cell.dataset, "missing", cell.config, {"command": command}, {})
