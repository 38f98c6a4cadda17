"""A run that somebody asked for, alone or as one cell of a sweep."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig

from src.runs import identity, record
from src.runs.contents import contents
from src.runs.identity import Config


@dataclass(frozen=True)
class RunRequest:
    """The overrides that were typed, the config composed from them, and the options chosen in it."""

    overrides: list[str]
    config: Config
    model: str
    dataset: str  # the option, or the name that a user gives to data of their own
    pair: str | None = None  # the file of conf/pair that was looked for; only some pairs have one

    @cached_property
    def folder(self) -> Path:
        """Where the run is, or will be."""
        return Path(str(self.config["paths"]["outputs"])) / identity.folder_name(self.config, self.model, self.dataset)

    @property
    def status(self) -> str:
        """Status of the run; `missing` if it has never started."""
        return record.status(self.folder) or "missing"

    @property
    def is_to_do(self) -> bool:
        """Whether the run has to be done: it is neither done nor running, or it is to be repeated."""
        return self.status not in ("done", "running") or bool(self.config["rerun"])


def request(overrides: Sequence[str], config: DictConfig, choices: dict[str, Any]) -> RunRequest:
    """A request from what Hydra composed. A user's own data may have a name of their own."""
    content = with_contents(identity.plain(config))
    dataset = content["dataset"].get("name") or choices["dataset"]
    return RunRequest(list(overrides), content, choices["model"], dataset, choices.get("pair"))


def with_contents(config: Config) -> Config:
    """A config with the digests of the user's data files, if it names any."""
    found = contents(config["dataset"])
    return {**config, identity.CONTENT: found} if found else config


def of_this_process(config: DictConfig) -> RunRequest:
    """The run that Hydra composed for this process."""
    hydra = HydraConfig.get()
    return request(hydra.overrides.task, config, hydra.runtime.choices)
