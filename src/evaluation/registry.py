"""All tasks, found in the files of this folder, and what to do with them: check, score, draw, keep, summarise."""

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import src.evaluation
from src.evaluation.task import Metric, Scores, Settings, Subject, Task
from src.models.capabilities import Traced, TracedClosely
from src.runs.errors import UserError
from src.runs.files import whole

if TYPE_CHECKING:
    from src.data.module import DataModule

VARIANT = re.compile(
    r"(?P<held>validation_)?(?P<base>.+?)(?P<target>_t\d+)?(?P<given>_c\d+)?(?P<mixture>_mixture)?(?P<sd>_sd)?"
    r"(?P<best>_best_epoch)?"
)
VALIDATION = "validation_"  # begins the names of the metrics of the validation split
WATCHED, BEST = "watched_", "_best_epoch"  # begins columns of the history; ends metrics of the best epoch among them


@cache
def tasks() -> list[Task]:
    """One task of each class that a file of this folder defines, in order."""
    modules = [import_module(f"{__package__}.{module.name}") for module in iter_modules(src.evaluation.__path__)]
    found = [kind() for module in modules for kind in defined_in(module)]
    return sorted(found, key=lambda task: (task.order, task.name))


def defined_in(module: ModuleType) -> list[type[Task]]:
    """The task classes that a module defines itself, not those that it imports."""
    classes = [value for value in vars(module).values() if isinstance(value, type) and issubclass(value, Task)]
    return [kind for kind in classes if kind.__module__ == module.__name__ and kind is not Task]


def metrics() -> dict[str, Metric]:
    """Every metric of every task by its name."""
    return {name: metric for task in tasks() for name, metric in task.metrics.items()}


def metric(name: str) -> Metric | None:
    """A metric by its name, with what may be added to it (VARIANT); or None."""
    known = metrics()
    if name in known:
        return known[name]
    parts = VARIANT.fullmatch(name)
    if parts is None or parts["base"] not in known:
        return None
    base = known[parts["base"]]
    held = "validation " if parts["held"] else ""
    target = f" of target {parts['target'][2:]}" if parts["target"] else ""
    given = f" given {parts['given'][2:]} points" if parts["given"] else ""
    mixture = " of the mixture" if parts["mixture"] else ""
    sd = ", sd over active sets" if parts["sd"] else ""
    best = ", best epoch by the test data" if parts["best"] else ""
    return base._replace(label=f"{held}{base.label}{target}{given}{mixture}{sd}{best}")


def check(model: Any, data: "DataModule", settings: Settings) -> None:
    """Raise a UserError at start-up if a task cannot do what the settings ask for."""
    for task in tasks():
        task.check(model, data, settings)
    every = settings.get("watch_every")
    if every is not None and every < 1:
        raise UserError(f"evaluation.watch_every={every} must be at least 1")
    if every is not None and not followed(model, data) and not isinstance(model, TracedClosely):
        raise UserError(f"evaluation.watch_every has no effect on {type(model).__name__} here: nothing can be watched")


@torch.no_grad()
def scores(subject: Subject) -> Scores:
    """The metrics of all fitting tasks, and those of the validation split if there is one."""
    found: Scores = {}
    for task in fitting(subject):
        found |= task.scores(subject)
    found |= best_epochs(subject)
    return found if subject.data.validation is None else found | validation_scores(subject)


def followed(model: Any, data: "DataModule") -> list[Task]:
    """The tasks whose scores can be watched through the training."""
    return [task for task in tasks() if task.watched and task.fits(model, data)]


def trace(subject: Subject) -> Scores:
    """Columns of the history after every epoch: what the model tells about itself."""
    traced = subject.model.trace(subject.data) if isinstance(subject.model, Traced) else {}
    return {f"{WATCHED}{name}": value for name, value in traced.items()}


@torch.no_grad()
def watch(subject: Subject) -> Scores:
    """Columns of the history after some epochs: scores of the test split, and what takes all training data."""
    traced = subject.model.trace_closely(subject.data) if isinstance(subject.model, TracedClosely) else {}
    for task in followed(subject.model, subject.data):
        scores = task.scores(subject)
        traced |= {name: scores[name] for name in task.watched if name in scores}
    return {f"{WATCHED}{name}": value for name, value in traced.items()}


def best_epochs(subject: Subject) -> Scores:
    """The best of each watched score over the epochs, for comparison with papers that choose by the test data.

    They have names of their own: the score of a model is that of its last epoch.
    """
    found: Scores = {}
    for name in (name for task in followed(subject.model, subject.data) for name in task.watched):
        values = [row[f"{WATCHED}{name}"] for row in subject.history if f"{WATCHED}{name}" in row]
        best = max if metrics()[name].better == "higher" else min
        found |= {f"{name}{BEST}": best(values)} if values else {}
    return found


def validation_scores(subject: Subject) -> Scores:
    """The metrics of the tasks that score predictions, with the validation split in place of the test split."""
    held_out = replace(subject, data=subject.data.tested_on_validation())
    found = [task.scores(held_out) for task in fitting(held_out) if task.validated]
    return {f"{VALIDATION}{name}": value for scores in found for name, value in scores.items()}


@torch.no_grad()
def draw(subject: Subject, folder: Path, chosen: Collection[str] | None = None) -> dict[str, Exception]:
    """Write the figures of all fitting tasks as PNG and PDF, or of chosen ones by their names.

    Returns the errors of tasks that could not be drawn.
    """
    from src.evaluation.canvas import save

    folder.mkdir(exist_ok=True)
    failures: dict[str, Exception] = {}
    for task in (task for task in fitting(subject) if chosen is None or task.name in chosen):
        try:
            for name, figure in task.figures(subject):
                for suffix in (".pdf", ".png"):
                    save(figure, folder / f"{name}{suffix}")
        except OSError:  # a full disk stops the run, which can be resumed
            raise
        except Exception as error:
            failures[task.name] = error
    return failures


@torch.no_grad()
def keep(subject: Subject, path: Path) -> None:
    """Write the arrays of all fitting tasks to one small file for the report."""
    arrays = {name: array for task in fitting(subject) for name, array in task.artifacts(subject).items()}
    if not arrays:
        return
    with whole(path) as unfinished:
        np.savez_compressed(unfinished, **arrays)  # type: ignore[arg-type]  # no array is named like its option


def fitting(subject: Subject) -> list[Task]:
    """The tasks that fit the model and its data."""
    return [task for task in tasks() if task.fits(subject.model, subject.data)]


def summary(found: Scores, published: Mapping[str, str] = MappingProxyType({})) -> str:
    """The metrics as text, task by task, beside published values; those of the validation split come first."""
    held_out = {name.removeprefix(VALIDATION): found[name] for name in found if name.startswith(VALIDATION)}
    parts = [["VALIDATION SPLIT", *task.summary(held_out, {})] for task in tasks() if task.validated and held_out]
    parts = [part for part in parts if len(part) > 1]
    parts += [["TEST SPLIT"]] if parts else []
    parts += [task.summary(found, published) for task in tasks()]
    return "\n".join(line for lines in parts for line in lines).strip("\n")
