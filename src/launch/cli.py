"""Help and hints on the command line, quick because nothing heavy is imported."""

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as metadata_version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hydra
from hydra.core.global_hydra import GlobalHydra

import conf
from src.runs.record import plain

CONF = Path(conf.__file__).parent
PLUGINS = {  # options that need an extra: the package to look for, and the extra
    "hydra/launcher=slurm": ("hydra_submitit_launcher", "slurm"),
    "hydra/launcher=ray": ("hydra_ray_launcher", "ray"),
    "hydra/sweeper=optuna": ("hydra_optuna_sweeper", "optuna"),
    "hydra/sweeper=optuna_study": ("hydra_optuna_sweeper", "optuna"),
}

# Our ray.yaml fills in the plugin's option of the same name, as is meant.
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
    """Every config group with its options and the one-line description at the top of each option's file."""
    found = [*CONF.glob("*/*.yaml"), *CONF.glob("hydra/*/*.yaml")]
    files = sorted((file for file in found if file.parent.name != "pair"), key=natural_order)
    return {
        group.relative_to(CONF).as_posix(): {file.stem: description(file) for file in files if file.parent == group}
        for group in sorted({file.parent for file in files})
    }


def natural_order(file: Path) -> list[str | int]:
    """Numbers in a name by their value: a50 before a100."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", file.stem)]


def description(file: Path) -> str:
    """The first comment of a config file that is not an instruction to Hydra."""
    comments = (line.lstrip("# ") for line in file.read_text().splitlines() if line.startswith("#"))
    return next((comment for comment in comments if not comment.startswith("@package")), "")


def help_text() -> str:
    """All groups and options, one line each."""
    lines = []
    for group, options in groups().items():
        lines.append(f"  {group}=")
        lines += [f"    {option:<20}{text}" for option, text in options.items()]
    return HELP.format(groups="\n".join(lines) + "\n")


def hints(arguments: list[str]) -> Iterator[str]:
    """The nearest names for groups and options that do not exist."""
    known = groups()
    pairs = [argument.partition("=")[::2] for argument in arguments if "=" in argument and argument[0] not in "+~-"]
    chosen = [(key, option) for key, value in pairs if key in known for option in value.strip("[]").split(",")]
    wrong = [(key, option) for key, option in chosen if option not in known[key] and not is_hydras(key, option)]
    for key, option in wrong:
        yield suggestion(option, list(known[key]), f"{key}=")
    others = [key for key, _ in pairs if key not in known and not key.startswith("hydra")]
    if others and not wrong:
        keys = config_keys([f"{key}={option}" for key, option in chosen])
        for key in others:
            if key not in keys:
                yield suggestion(key, [name for name in [*known, *keys] if ("." in name) == ("." in key)])


def is_hydras(key: str, option: str) -> bool:
    """Whether an option that is not ours may be one of Hydra's or of a plugin, such as hydra/launcher=basic."""
    return key.startswith("hydra/") and not get_close_matches(option, groups()[key])


def config_keys(choices: list[str]) -> list[str]:
    """Every value of the config with these choices, by its dotted name."""
    GlobalHydra.instance().clear()
    with hydra.initialize_config_module("conf", version_base="1.3"):
        config = hydra.compose("config", overrides=choices)
    return list(dotted(plain(config)))


def dotted(config: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """The names of all nodes of a nested config, parents included."""
    for key, value in config.items():
        yield prefix + key
        if isinstance(value, dict):
            yield from dotted(value, f"{prefix}{key}.")


def suggestion(name: str, names: list[str], prefix: str = "") -> str:
    """One sentence with the names nearest to one that does not exist."""
    near = [prefix + found for found in get_close_matches(name, set(names), n=2)]
    question = f" Did you mean {' or '.join(near)}?" if near else ""
    return f"There is no {prefix}{name}.{question}"


def heavy(module: str) -> Any:
    """A module that loads torch and Lightning, which takes seconds: imported where it is needed, not at start-up."""
    if "pytorch_lightning" not in sys.modules:
        with suppress(ImportError), hidden("torchvision", "scipy", "matplotlib"):
            import_module("pytorch_lightning")
    return import_module(module)


@contextmanager
def hidden(*packages: str) -> Iterator[None]:
    """Let Lightning find none of these: its torchmetrics loads them wherever they are installed, for metrics not used.

    That takes as long as a third of all other imports, and fails where torchvision was built for another torch.
    """
    from lightning_utilities.core import imports

    def version(distribution_name: str) -> str:
        if distribution_name in packages:
            raise PackageNotFoundError(distribution_name)
        return metadata_version(distribution_name)

    unloaded = [package for package in packages if package not in sys.modules]
    sys.modules.update(dict.fromkeys(unloaded))  # type: ignore[arg-type]  # None: cannot be imported
    imports._version = version
    try:
        yield
    finally:
        imports._version = metadata_version
        for package in unloaded:
            del sys.modules[package]


def missing_plugin(arguments: list[str]) -> str | None:
    """What to install for an option that is asked for, in one sentence."""
    for argument in arguments:
        package, extra = PLUGINS.get(argument, ("", ""))
        if package and find_spec(f"hydra_plugins.{package}") is None:
            return f'{argument} needs a plugin that is not installed: pip install -e ".[{extra}]"'
    return None


def with_hints(command: Callable[[], None]) -> None:
    """Run a Hydra command; where it fails on a name that does not exist, add the nearest ones to Hydra's message."""
    if missing := missing_plugin(sys.argv[1:]):
        sys.exit(missing)
    try:
        command()
    except SystemExit as stop:
        if stop.code:
            for hint in hints(sys.argv[1:]):
                print(hint, file=sys.stderr)
        raise
