"""Every use of Hydra's private names, so that an update of Hydra can break this module only."""

import os
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from hydra import initialize_config_module
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser, run_and_report
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from src.runs.errors import UserError
from src.runs.identity import Config, plain

T = TypeVar("T")
ConfigLoader = ConfigLoaderImpl
HYDRAS_GROUPS = ("output", "help", "hydra_help", "hydra_logging", "job_logging", "env", "launcher", "sweeper")


def command_line() -> Namespace:
    """The command line as Hydra parses it, with flags such as -m anywhere. Buys: help in a tenth of a second, and
    sweeps that are known before Hydra starts."""
    return get_args_parser().parse_intermixed_args()


def report_errors(action: Callable[[], T]) -> T:
    """Run an action; show an error that the user can fix in one sentence, any other as Hydra does. Buys: one message
    format for runs and sweeps."""

    def compact() -> T:
        try:
            return action()
        except UserError as error:
            end(error)

    result: T = run_and_report(compact)
    return result


def end(error: Exception, cure: str = "") -> NoReturn:
    """End a command with one sentence, or with all that Hydra shows if HYDRA_FULL_ERROR asks for it."""
    if os.environ.get("HYDRA_FULL_ERROR", "0") != "0":
        raise error
    print(f"Error: {error}{cure}", file=sys.stderr)
    sys.exit(1)


@contextmanager
def config_loader() -> Iterator[ConfigLoader]:
    """Hydra's loader of our configs. Buys: one loader for hundreds of compositions, inside a Hydra run too."""
    before = GlobalHydra.instance().hydra
    GlobalHydra.instance().clear()
    try:
        with initialize_config_module("conf", version_base="1.3", job_name="train"):
            yield first_loader()
    finally:
        GlobalHydra.instance().hydra = before


@cache
def first_loader() -> ConfigLoader:
    """The first loader that this process made. Buys: compositions that all steps of a command share."""
    loader = GlobalHydra.instance().config_loader()
    assert isinstance(loader, ConfigLoader)
    return loader


@cache
def parsed(overrides: tuple[str, ...]) -> list[Override]:
    """Overrides as Hydra reads them. Buys: the key and the kind of a choice, in Hydra's own grammar."""
    return OverridesParser.create().parse_overrides(list(overrides))


def key_of(override: str) -> str:
    """The group or the dotted name that an override sets: `kernel`, `active_set.size`."""
    return parsed((override,))[0].key_or_group


class Span(NamedTuple):
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    step: float | None  # None: any number between
    log: bool  # whether small numbers count as much as large ones


def searched(override: str) -> list[str] | Span | None:
    """What an override leaves to a search: choices as they are typed, or a span; None if it has one value. Buys:
    Hydra's grammar of intervals, ranges and tags."""
    found = parsed((override,))[0]
    values: Any = found.value()
    if not found.is_sweep_override():
        return None
    if found.is_interval_sweep():
        return Span(values.start, values.end, None, "log" in values.tags)
    if found.is_range_sweep():
        numbers = list(values.range())
        return Span(min(numbers), max(numbers), abs(values.step), "log" in values.tags)
    return list(found.sweep_string_iterator())


def combinations(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of every cell of a sweep. Buys: the cells, before any of them starts."""
    return [list(cell) for cell in BasicSweeper.split_arguments(parsed(tuple(overrides)), None)[0]]


def check_names(arguments: list[str]) -> None:
    """Raise Hydra's exception for a name that does not exist. Buys: an answer of our own in its place."""
    with config_loader() as loader:
        loader.load_configuration("config", arguments, RunMode.MULTIRUN)


def sweep_config(arguments: Sequence[str], loader: ConfigLoader) -> DictConfig:
    """The config of a sweep, with Hydra's own part. Buys: the values of a sweep's file.

    Values of options are left out: they are for the cells, whose options the sweep's file may choose.
    """
    own = [text for text in arguments if is_hydras(text) or not is_of_an_option(text)]
    return loader.load_configuration("config", own, RunMode.MULTIRUN)


def is_of_an_option(override: str) -> bool:
    """Whether an override sets a value in what the option of a group brings, such as `model.latent_dim`."""
    group, _, name = key_of(override).partition(".")
    return name != "" and group != "paths"


def is_hydras(override: str) -> bool:
    """Whether an override is for Hydra itself, such as its launcher, and no setting of a run."""
    return key_of(override).replace("/", ".").partition(".")[0] == "hydra"


def compose(overrides: Sequence[str], loader: ConfigLoader) -> tuple[DictConfig, dict[str, Any]]:
    """The config of one run and the options chosen in it. Buys: cells that differ in values only share one
    composition of their options, which takes a tenth of a second."""
    options = options_of(overrides, loader)
    config, choices = compose_options(options, loader)
    config = deepcopy(config)
    loader._apply_overrides_to_config(parsed(tuple(text for text in overrides if text not in options)), config)
    return config, choices


def options_of(overrides: Sequence[str], loader: ConfigLoader) -> tuple[str, ...]:
    """The overrides that choose an option of a group. Buys: compositions that cells can share."""
    return tuple(text for text in overrides if loader.repository.group_exists(key_of(text)))


def defaults(overrides: Sequence[str], loader: ConfigLoader) -> Config:
    """The settings that a run would have with the options of its overrides and without their values."""
    return plain(compose_options(options_of(overrides, loader), loader)[0])


@cache
def compose_options(options: tuple[str, ...], loader: ConfigLoader) -> tuple[DictConfig, dict[str, Any]]:
    """The config with these options. Buys: a third of the time, since Hydra's own groups are left out."""
    config = loader.load_configuration("config", [*options, *(f"~hydra/{name}" for name in HYDRAS_GROUPS)], RunMode.RUN)
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    OmegaConf.set_struct(own, True)
    return own, dict(config.hydra.runtime.choices)


def make_launcher(
    task: Callable[[DictConfig], Any], overrides: Sequence[str], loader: ConfigLoader
) -> tuple[Launcher, Path]:
    """The launcher that the overrides choose, and the folder of its files. Buys: launching only the cells that are
    left to do, in one go."""
    config = sweep_config([*overrides, "hydra.mode=MULTIRUN"], loader)
    context = HydraContext(config_loader=loader, callbacks=Callbacks(config))
    launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=task, config=config)
    return launcher, Path(config.hydra.sweep.dir)
