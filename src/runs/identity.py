"""Identity of a run: the settings that count, their fingerprint, and the name of the run's folder.

The identity survives our own changes: settings that are null do not count, so a new option is null by default, and a
class of ours counts by its name, so it can move to another module. A user's data file counts by its content.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator
from copy import deepcopy
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf

from src.runs import aliases

Config = dict[str, Any]
Value = str | int | float | bool | None

CONTENT = "content"  # the digests of a user's data files, by the option of the dataset that names the file
CANNOT_CHANGE_NUMBERS = (
    *("paths", "rerun", "group", "logger", "fail_fast", "checkpoint_minutes", "dataset.root", "dataset.name", "search"),
    *("evaluation.exact_evidence", "evaluation.evidence_points", "evaluation.evidence_precision"),  # only add metrics
    *("evaluation.refine", "evaluation.geometry"),  # likewise
    *("trainer.enable_progress_bar", "trainer.enable_model_summary", "trainer.max_time"),
)
CHOSEN_FOR_THE_MODEL = ("active_set", "kernel", "encoder", "optimizer")  # a model that uses one copies it into `model`
NOT_COUNTED = (*CANNOT_CHANGE_NUMBERS, *CHOSEN_FOR_THE_MODEL)


def plain(config: DictConfig) -> Config:
    """A composed config as nested dicts of plain values, with all references resolved."""
    return cast("Config", OmegaConf.to_container(config, resolve=True))


def fingerprint(config: Config) -> str:
    """Eight hex digits that differ if any setting differs that can change the run's numbers."""
    text = json.dumps(canonical(counted(by_content(config))), sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def by_content(config: Config) -> Config:
    """A config in which a user's data files have the digests of their content in place of their paths."""
    if not config.get(CONTENT):
        return config
    others = {key: value for key, value in config.items() if key != CONTENT}
    return {**others, "dataset": {**config["dataset"], **config[CONTENT]}}


def counted(config: Config) -> Config:
    """A copy of a config with only the settings that the numbers depend on."""
    return without(config, NOT_COUNTED)


def without(config: Config, names: Iterable[str]) -> Config:
    """A copy of a config without the settings of these dotted names."""
    config = deepcopy(config)
    for name in names:
        *parents, leaf = name.split(".")
        node = config
        for parent in parents:
            node = node.get(parent) or {}
        node.pop(leaf, None)
    return config


def canonical(value: Any) -> Any:
    """A nested value as it counts: keys without a value left out, classes of ours by their last name."""
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if not isinstance(value, dict):
        return value
    counts = {key: class_name(item) if aliases.is_target(key, item) else canonical(item) for key, item in value.items()}
    return {key: item for key, item in counts.items() if item is not None and item != {}}


def class_name(path: str) -> str:
    """A class of ours by its last name, a class of another package by its full path."""
    path = aliases.current(path)
    return path.rpartition(".")[2] if path.startswith(aliases.OWN) else path


def folder_name(config: Config, model: str, dataset: str) -> str:
    """`sas-mnist-a400-s0-3f2a91c4`: readable, and one folder per fingerprint."""
    return "-".join([model, dataset, *active_set(config), f"s{config['seed']}", fingerprint(config)])


def active_set(config: Config) -> list[str]:
    """`[a400]` or `[random]`; empty for models without an active set."""
    size = config["model"].get("active_set")
    return [] if size is None else [size if isinstance(size, str) else f"a{size}"]


def settings(config: Config) -> dict[str, Value]:
    """The settings that can change the numbers, by dotted name; seeds are left out."""
    return {
        key: value
        for key, value in dotted(config)
        if key.rpartition(".")[2] != "seed" and not is_below(key, NOT_COUNTED)
    }


def is_below(key: str, names: Iterable[str]) -> bool:
    """Whether a dotted name is one of these names or lies inside one of them."""
    return any(f"{key}.".startswith(f"{name}.") for name in names)


def dotted(config: Config, prefix: str = "") -> Iterator[tuple[str, Value]]:
    """The leaves of a nested config by dotted name. A list is one leaf, as text."""
    for key, value in config.items():
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", str(value) if isinstance(value, list) else value
