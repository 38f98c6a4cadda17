"""The settings that a search varies, and the options of the search, checked before any work."""

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from src.launch import cells, choices, values
from src.launch.hydra_private import Span, config_loader, key_of, searched
from src.launch.values import NULL, one_of, whole
from src.runs import identity, trials
from src.runs.errors import UserError
from src.runs.request import RunRequest

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

RULES = {
    "sampler": one_of("tpe", "gp", "random"),
    "seed": whole(0) | NULL,
    "pruner": one_of("median", None),
    "startup_trials": whole(0),
    "warmup_epochs": whole(0) | NULL,
    "report_every": whole(1) | NULL,
    "n_trials": whole(1),
    "n_jobs": whole(1),
}


@dataclass(frozen=True)
class Options:
    """The settings of conf/hydra/sweeper/optuna_study.yaml."""

    study_name: str | None
    storage: str
    sampler: str
    seed: int | None
    pruner: str | None
    startup_trials: int
    warmup_epochs: int | None
    report_every: int | None
    n_trials: int
    n_jobs: int
    params: dict[str, Any] | None  # read with the values of the command line

    def __post_init__(self) -> None:
        for name, rule in RULES.items():
            if not rule.holds(value := getattr(self, name)):
                raise UserError(f"hydra.sweeper.{name}={values.shown(value)} must be {rule.allowed}")

    def assign(self, folder: Path, study: str, number: int) -> None:
        """Let the run in a folder report to its trial, so that it can be pruned."""
        if self.pruner is not None:
            limits = self.startup_trials, self.warmup_epochs, self.report_every
            trials.assign(folder, trials.Trial(self.storage, study, number, *limits))


@dataclass(frozen=True)
class Space:
    """The overrides that are the same in every trial, and what the search chooses, by key."""

    fixed: list[str]
    varied: dict[str, list[str] | Span]

    def cell(self, params: dict[str, Any]) -> RunRequest:
        """The run of a trial."""
        with config_loader() as loader:
            return cells.compose([*self.fixed, *(f"{key}={value}" for key, value in params.items())], loader)

    def ends(self) -> tuple[RunRequest, RunRequest]:
        """The runs with the first and with the last value of every setting."""
        first = {key: span.low if isinstance(span, Span) else span[0] for key, span in self.varied.items()}
        last = {key: span.high if isinstance(span, Span) else span[-1] for key, span in self.varied.items()}
        return self.cell(first), self.cell(last)

    def check(self) -> None:
        """Reject values outside their ranges, and choices without effect; models of one search may differ in those."""
        first, last = self.ends()
        values.check([first, last])
        for end in (first, last):
            values.check_pair(end)
        if "model" not in self.varied:
            choices.check_run(last)

    def name(self) -> str:
        """`sas-digits-3f2a91c4`: the same for the same command, another if anything counts that differs."""
        cell = self.cell({})
        metric = cell.config["search"]["metric"] or "objective"
        told = [identity.fingerprint(cell.config), metric, sorted(self.varied.items())]
        return f"{cell.model}-{cell.dataset}-{sha256(repr(told).encode()).hexdigest()[:8]}"

    def distributions(self) -> "dict[str, BaseDistribution]":
        """What Optuna draws from."""
        return {key: distribution(key, span) for key, span in self.varied.items()}


def space_of(overrides: Sequence[str]) -> Space:
    """The space of a command line; of two overrides of one key, the last counts."""
    last = {key_of(text): text for text in overrides}
    varied = {text.partition("=")[0]: found for text in last.values() if (found := searched(text)) is not None}
    if not varied:
        raise UserError("a search needs a setting to vary, such as 'optimizer.lr=tag(log,interval(1e-4,1e-2))'")
    return Space([text for text in last.values() if text.partition("=")[0] not in varied], varied)


def distribution(key: str, span: list[str] | Span) -> "BaseDistribution":
    """A setting in Optuna's terms: whole numbers stay whole."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    try:
        if not isinstance(span, Span):
            return CategoricalDistribution(span)
        if isinstance(span.low, int) and isinstance(span.high, int):
            return IntDistribution(span.low, span.high, span.log, int(span.step or 1))
        return FloatDistribution(span.low, span.high, span.log, span.step)
    except ValueError as error:
        raise UserError(f"{key} cannot be searched: {error}") from error
