"""Settings by the names that people type: `--rows model,num_inducing --where trainer.max_epochs=30`."""

import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from src.report.records import Run
from src.runs.errors import UserError
from src.runs.identity import Value, dotted

ALWAYS = ("model", "dataset", "active_set", "seed")
ALIASES = {"active_set.size": "active_set", "model.active_set": "active_set"}


def key_of(name: str, runs: Sequence[Run]) -> str:
    """The dotted name of a setting from its whole name or its end; a UserError if no setting, or several, are meant."""
    name = ALIASES.get(name, name)
    known = known_keys(runs)
    if name in known:
        return name
    found = [key for key in known if key.removesuffix("._target_").endswith(f".{name}")]
    if len(found) > 1:
        raise UserError(f"{name} could be {' or '.join(found)}: type the whole name")
    if not found:
        close = get_close_matches(name, [*known, *(key.rpartition(".")[2] for key in known)], n=3)
        hint = f"did you mean {' or '.join(dict.fromkeys(close))}?" if close else f"for example {', '.join(ALWAYS)}"
        raise UserError(f"the runs have no setting {name}; {hint}")
    return found[0]


def known_keys(runs: Iterable[Run]) -> list[str]:
    """Every setting of the runs that can change numbers, whether it has a value or is null, and what names a run."""
    settings = {key for run in runs for key in run.settings}
    null = {key for run in runs for part in ("model", "dataset", "trainer", "evaluation") for key in nulls(run, part)}
    return [*ALWAYS, *sorted((settings | null) - ALIASES.keys())]


def nulls(run: Run, part: str) -> list[str]:
    """The settings of a part of the config that are null."""
    return [f"{part}.{key}" for key, value in dotted(run.config.get(part) or {}) if value is None]


def value_of(run: Run, key: str) -> Value:
    """The value of a setting; None if the run does not have it."""
    return run.seed if key == "seed" else run.levels.get(key)


def chosen(runs: Sequence[Run], conditions: Iterable[str]) -> list[Run]:
    """The runs that meet every condition, such as `trainer.max_epochs=30` or `model=sas,vae`."""
    kept = list(runs)
    for condition in conditions:
        name, equals, values = condition.partition("=")
        if not equals:
            raise UserError(f"--where takes conditions such as trainer.max_epochs=30, not {condition}")
        key = key_of(name, runs)
        before, kept = kept, [run for run in kept if any(is_typed(value_of(run, key), v) for v in several(values))]
        if not kept:
            present = sorted({typed(value_of(run, key)) for run in before}, key=lambda text: (len(text), text))
            raise UserError(f"no run has {condition}; the runs have {name}={','.join(present)}")
    return kept


def several(values: str) -> list[str]:
    """The values of `3,5`; a list such as `[3,5]` is one."""
    return re.split(r",(?![^\[]*\])", values)


def typed(value: Value) -> str:
    """A value as it is typed on the command line."""
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)


def is_typed(value: Value, text: str) -> bool:
    """Whether a text means a value: `1e-3` means 0.001, and spaces in a list mean nothing."""
    same = typed(value).replace(" ", "") == text.replace(" ", "")
    if same or isinstance(value, bool) or not isinstance(value, int | float):
        return same
    try:
        return float(text) == value
    except ValueError:
        return False
