"""Cells of a sweep: every combination of its values, composed before any of them runs."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from omegaconf import OmegaConf

from src.launch import hydra_private
from src.launch.cli import NOT_UNDERSTOOD, explained
from src.launch.hydra_private import ConfigLoader
from src.runs.errors import UserError
from src.runs.request import RunRequest, request


@dataclass(frozen=True)
class Sweep:
    """All combinations of the values of a sweep, in order."""

    combinations: list[RunRequest]
    given: list[str]  # the overrides of the command line, as typed; the other values come from the sweep's file

    @cached_property
    def cells(self) -> list[RunRequest]:
        """The runs of the sweep. Combinations with the same identity, such as a VAE with any active set, are one."""
        first = {cell.folder: cell for cell in reversed(self.combinations)}
        return [cell for cell in self.combinations if first[cell.folder] is cell]


def read(arguments: list[str]) -> Sweep:
    """The sweep that a command line asks for."""
    if any(text.startswith("hydra/sweeper=") for text in arguments):
        raise UserError("hydra/sweeper= asks for a search, whose cells are chosen while it runs")
    with hydra_private.config_loader() as loader:
        values, given = swept(arguments, loader)
        found = [compose(overrides, loader) for overrides in hydra_private.combinations(values)]
    return Sweep(found, given)


def cells(arguments: list[str]) -> list[RunRequest]:
    """The runs of the sweep that a command line asks for."""
    return read(arguments).cells


def swept(arguments: list[str], loader: ConfigLoader) -> tuple[list[str], list[str]]:
    """All values of a sweep, and those given on the command line, which replace the values of the sweep's file."""
    sweep = hydra_private.sweep_config(arguments, loader)
    name = sweep.hydra.runtime.choices.get("sweep")
    in_file = [f"{key}={value}" for key, value in (typed_text(sweep.hydra.sweeper.params) or {}).items()]
    given = [text for text in arguments if not text.startswith("+sweep=") and not hydra_private.is_hydras(text)]
    group = [f"group={name}"] if name else []
    return [*in_file, *group, *given], given


def typed_text(node: Any) -> Any:
    """A node of Hydra's config as it was typed: `${kernel}` is for the cells, which have a kernel."""
    return OmegaConf.to_container(node) if OmegaConf.is_config(node) else node


def compose(overrides: Sequence[str], loader: ConfigLoader) -> RunRequest:
    """One cell from its overrides; a UserError if there are none of these names."""
    try:
        config, options = hydra_private.compose(overrides, loader)
        return request(overrides, config, options)
    except NOT_UNDERSTOOD as error:
        raise explained(error, overrides) from error
