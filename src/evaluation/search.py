"""The score by which a search compares runs: the training objective, or a metric of the validation split.

The test split chooses nothing.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import torch

from src.evaluation import registry
from src.evaluation.task import Subject, Task
from src.runs.errors import UserError
from src.runs.identity import Config

if TYPE_CHECKING:
    from src.data.module import DataModule

OBJECTIVE = "objective"


def metric_of(config: Config) -> str:
    """The score that the settings of a run name."""
    name: str = config["search"]["metric"] or OBJECTIVE
    return name


def check(model: Any, data: "DataModule", name: str) -> None:
    """Raise a UserError at start-up if a run will not have the score that `search.metric` names."""
    if name == OBJECTIVE:
        return
    metrics = [pair for task in validated(model, data) for pair in task.metrics.items()]
    possible = [key for key, metric in metrics if metric.better != "neither"]
    if base(name) not in possible:
        raise UserError(f"search.metric={name} must be a score of this run: {', '.join([OBJECTIVE, *possible])}")


def validated(model: Any, data: "DataModule") -> list[Task]:
    """The tasks that score the validation split of a run; none if it has no such split."""
    held_out = None if data.validation is None else data.tested_on_validation()
    return [task for task in registry.tasks() if held_out is not None and task.validated and task.fits(model, held_out)]


def base(name: str) -> str:
    """The metric of a task that a name such as `rmse_c2000` is a variant of."""
    known = registry.metrics()
    parts = registry.VARIANT.fullmatch(name)
    return name if name in known or parts is None or parts["held"] else parts["base"]


def label(name: str) -> str:
    """The score in words."""
    return "training loss" if name == OBJECTIVE else f"validation {name}"


def direction(name: str) -> Literal["minimize", "maximize"]:
    """Where better scores lie."""
    if name == OBJECTIVE:
        return "minimize"
    metric = registry.metrics().get(base(name))
    if metric is None or metric.better == "neither":
        raise UserError(f"search.metric={name} must be {OBJECTIVE} or a metric with a better and a worse side")
    return "maximize" if metric.better == "higher" else "minimize"


def score(metrics: Mapping[str, float], name: str) -> float:
    """The score of a finished run: the training loss, which is minus the objective, or a validation metric."""
    if name == OBJECTIVE:
        return -metrics[OBJECTIVE]
    key = f"{registry.VALIDATION}{name}"
    if key not in metrics:
        found = [other.removeprefix(registry.VALIDATION) for other in metrics if other.startswith(registry.VALIDATION)]
        raise UserError(f"search.metric={name} is not among the validation scores of this run: {', '.join(found)}")
    return metrics[key]


def to_minimise(metrics: Mapping[str, float], config: Config) -> float:
    """The score of a run, negated if higher is better: Hydra's sweepers minimise what a run returns."""
    found = score(metrics, metric_of(config))
    return found if direction(metric_of(config)) == "minimize" else -found


@torch.no_grad()
def score_now(subject: Subject, name: str) -> float:
    """The validation score of a model that is still training; random numbers of the training stay as they were."""
    held_out = replace(subject, data=subject.data.tested_on_validation())
    with torch.random.fork_rng(devices=[]):
        found = [task.scores(held_out) for task in validated(subject.model, subject.data) if base(name) in task.metrics]
    return score({f"{registry.VALIDATION}{key}": value for scores in found for key, value in scores.items()}, name)
