"""Optuna's studies in a database, and the samplers that continue them."""

import warnings
from collections import Counter
from typing import TYPE_CHECKING, Any

from src.launch.search_space import Options
from src.runs.errors import UserError
from src.runs.record import one_line

if TYPE_CHECKING:
    from optuna import Study
    from optuna.samplers import BaseSampler
    from optuna.trial import FrozenTrial


def open_study(options: Options, name: str, metric: str, direction: str) -> "Study":
    """A study, new or continued; the scores of its trials must be of one kind."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    where: dict[str, Any] = {"storage": options.storage, "study_name": name, "load_if_exists": True}
    try:
        study = optuna.create_study(direction=direction, **where)
    except Exception as error:  # of SQLAlchemy or of a driver; the address may have a password and is not shown
        raise UserError(f"hydra.sweeper.storage cannot be opened: {one_line(error)}") from error
    before = study.user_attrs.get("metric")
    if before not in (None, metric):
        raise UserError(
            f"the study {name} compares runs by {before}, not by {metric}: choose another hydra.sweeper.study_name"
        )
    study.set_user_attr("metric", metric)
    # The numbers of a seed begin anew with every command, and would repeat the points of the first trials.
    study.sampler = sampler_of(options.sampler, None if options.seed is None else options.seed + len(study.trials))
    return study


def sampler_of(name: str, seed: int | None) -> "BaseSampler":
    """Optuna's sampler of a name. TPE expects trials that run to be bad ones, so that those of a batch differ."""
    from optuna.exceptions import ExperimentalWarning
    from optuna.samplers import GPSampler, RandomSampler, TPESampler

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)
        if name == "tpe":
            return TPESampler(seed=seed, constant_liar=True)
        return GPSampler(seed=seed) if name == "gp" else RandomSampler(seed=seed)


def count_states(study: "Study") -> Counter[str]:
    """How many trials are complete, pruned, failed or running."""
    return Counter({"fail": "failed"}.get(name := trial.state.name.lower(), name) for trial in study.trials)


def count_started(study: "Study") -> int:
    """How many trials a study has, without those that Optuna's tools have put into its queue."""
    counts = count_states(study)
    return counts.total() - counts["waiting"]


def settings(trial: "FrozenTrial") -> str:
    """The settings of a trial, as they are typed."""
    return " ".join(f"{key}={value}" for key, value in trial.params.items())
