"""Identity of a run: the settings that count, by dotted name.

The identity survives our own changes: settings that are null do not count, so a new option is null by default, and a
class of ours counts by its name, so it can move to another module.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from src.runs.record import CANNOT_CHANGE_NUMBERS as NOT_COUNTED

Config = dict[str, Any]
Value = str | int | float | bool | None


def canonical(value: Any) -> Any:
    """A nested value as it counts: keys without a value left out, classes of ours by their last name."""
    if isinstance(value, list):
        return [canonical(item) for item in value]
    if not isinstance(value, dict):
        return value
    counts = {key: class_name(item) if key == "_target_" else canonical(item) for key, item in value.items()}
    return {key: item for key, item in counts.items() if item is not None and item != {}}


def class_name(path: str) -> str:
    """A class of ours by its last name, a class of another package by its full path."""
    return path.rpartition(".")[2] if path.startswith("src.") else path


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
