"""Help and hints on the command line. They answer at once because nothing heavy is imported."""

import re
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from hydra.errors import ConfigCompositionException, HydraException, OverrideParseException
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

import conf
from src.launch import hydra_private
from src.runs.errors import UserError
from src.runs.identity import plain

T = TypeVar("T")
CONF = Path(conf.__file__).parent
NOT_UNDERSTOOD = ConfigCompositionException, OverrideParseException, OmegaConfBaseException  # a line that was typed
PLUGINS = {  # options that need an extra: the package that provides them, and the name of the extra
    "hydra/launcher=slurm": ("hydra_plugins.hydra_submitit_launcher", "slurm"),
    "hydra/launcher=ray": ("hydra_plugins.hydra_ray_launcher", "ray"),
    "hydra/sweeper=optuna_study": ("optuna", "optuna"),
    "logger=mlflow": ("mlflow", "mlflow"),
}

# Our ray.yaml fills in the plugin's option of the same name on purpose.
warnings.filterwarnings("ignore", r"\s*'hydra/launcher/ray' is validated against ConfigStore schema", UserWarning)

HELP = """\
Train and evaluate one model on one dataset, or sweep over many (-m).

  python -m src.train model=sas dataset=mnist
  python -m src.train -m model=sas,bayesian_sas active_set=a100,a400 seed=0,1,2

Choose one option of each group (group=option):
{groups}
Override any value (--cfg job shows them all):
  active_set.size=300  model.latent_dim=5  seed=3  trainer.max_epochs=20  dataset.batch_size=2048
  trainer.precision=64-true  paths.outputs=results  rerun=true
"""


def groups() -> dict[str, dict[str, str]]:
    """Every config group with its options and the description in the first line of each option's file."""
    found = [*CONF.glob("*/*.yaml"), *CONF.glob("hydra/*/*.yaml")]
    files = sorted((file for file in found if file.parent.name != "pair"), key=natural_order)
    return {
        group.relative_to(CONF).as_posix(): {file.stem: description(file) for file in files if file.parent == group}
        for group in sorted({file.parent for file in files})
    }


def natural_order(file: Path) -> list[str | int]:
    """Sort key that orders numbers by value: a50 before a100."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", file.stem)]


def description(file: Path) -> str:
    """The first comment of a config file that is not an instruction to Hydra."""
    comments = (line.lstrip("# ") for line in file.read_text().splitlines() if line.startswith("#"))
    return next((comment for comment in comments if not comment.startswith("@package")), "")


def help_text() -> str:
    """The help: all groups and options, one line each."""
    lines = []
    for group, options in groups().items():
        lines.append(f"  {group}=")
        lines += [f"    {option:<20}{text}" for option, text in options.items()]
    return HELP.format(groups="\n".join(lines) + "\n")


def hints(arguments: list[str]) -> Iterator[str]:
    """Suggestions for groups, options and settings that do not exist."""
    known = groups()
    pairs = [argument.partition("=")[::2] for argument in arguments if "=" in argument and argument[0] not in "+~-"]
    chosen = [(key, option) for key, value in pairs if key in known for option in value.strip("[]").split(",")]
    wrong = [(key, option) for key, option in chosen if option not in known[key] and not is_hydras(key, option)]
    for key, option in wrong:
        yield suggestion(option, list(known[key]), f"{key}=")
    others = [key for key, _ in pairs if key not in known and not key.startswith("hydra")]
    if others and not wrong:
        keys, options = composed([f"{key}={option}" for key, option in chosen if not key.startswith("hydra/")])
        for key in (key for key in others if key not in keys):
            group = key.partition(".")[0]
            if having := options_with(key):
                yield f"There is no {key} with {group}={options[group]}. It is a setting of {', '.join(having)}."
            else:
                yield suggestion(key, [name for name in [*known, *keys] if ("." in name) == ("." in key)])


def is_hydras(key: str, option: str) -> bool:
    """Whether an option may be one of Hydra's or of a plugin, such as hydra/launcher=basic."""
    return key.startswith("hydra/") and not get_close_matches(option, groups()[key])


def composed(choices: list[str]) -> tuple[list[str], dict[str, Any]]:
    """Dotted names of all settings of the config with these choices, and the options chosen in it."""
    with hydra_private.config_loader() as loader:
        config, options = hydra_private.compose(choices, loader)
    return list(dotted(plain(config))), options


def options_with(key: str) -> list[str]:
    """The options of a group that have a setting: `dataset=array` has `dataset.train`."""
    group, _, name = key.partition(".")
    files = sorted((CONF / group).glob("*.yaml"), key=natural_order) if name else []
    contents = {file.stem: OmegaConf.to_container(OmegaConf.load(file)) for file in files}
    # a file with settings of other groups too has those of its own below the name of the group
    return [
        f"{group}={option}"
        for option, content in contents.items()
        if isinstance(content, dict) and name in dotted(content.get(group) or content)  # type: ignore[arg-type]
    ]


def dotted(config: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted names of all nodes of a nested config, parents included."""
    for key, value in config.items():
        yield prefix + key
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")


def suggestion(name: str, names: list[str], prefix: str = "") -> str:
    """One sentence that says a name does not exist and suggests the nearest ones."""
    near = [prefix + found for found in get_close_matches(name, set(names), n=2)]
    question = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"There is no {prefix}{name}.{question}"


def no_option(arguments: list[str]) -> str | None:
    """One sentence if the value of a group is no name of an option, such as kernel=null, which Hydra cannot say."""
    for argument in arguments:
        key, _, option = argument.partition("=")
        if key in groups() and (option in ("", "null") or option.isdigit()):
            return f"{argument} is none of the options of {key}, which are {', '.join(groups()[key])}"
    return None


def missing_plugin(arguments: list[str]) -> str | None:
    """One sentence on what to install if an option on the command line needs a missing plugin."""
    for argument in arguments:
        key, _, options = argument.partition("=")
        for option in options.strip("[]").split(","):
            package, extra = PLUGINS.get(f"{key}={option.strip()}", ("", ""))
            if package and not is_installed(package):
                return f'{argument} needs a package that is not installed: pip install -e ".[{extra}]"'
    return None


def is_installed(package: str) -> bool:
    """Whether a package could be imported; nothing is imported but the packages around it."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False


def check_overrides(overrides: Sequence[str]) -> None:
    """Raise a UserError for overrides that Hydra cannot read, with suggestions for names that do not exist."""
    try:
        hydra_private.check_names(list(overrides))
    except HydraException as error:
        raise explained(error, overrides) from None


def explained(error: Exception, overrides: Sequence[str]) -> UserError:
    """What is wrong with overrides, in our words.

    For a name that does not exist, suggestions take the place of Hydra's message, which offers to append it (`+name`).
    """
    lines = str(error).splitlines()
    if isinstance(error, OverrideParseException):
        reason = lines[min(1, len(lines) - 1)]
        return UserError(f"{error.override} cannot be read: {reason} (type key=value, and quote what has symbols)")
    if isinstance(error, OmegaConfBaseException):
        return UserError(f"{error.full_key}: {lines[0]}")
    return UserError("\n".join(hints(list(overrides))) or str(error))


def answer(action: Callable[[], T]) -> T:
    """Run a part of a command, and show its errors in one sentence each."""

    def suggesting() -> T:
        try:
            return action()
        except NOT_UNDERSTOOD as error:
            raise explained(error, sys.argv[1:]) from error

    if problem := missing_plugin(sys.argv[1:]) or no_option(sys.argv[1:]):
        sys.exit(f"Error: {problem}")
    return hydra_private.report_errors(suggesting)
