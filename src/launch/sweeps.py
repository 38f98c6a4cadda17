"""Sweeps: their cells, what is left to do of them, and how that is sent off."""

import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path

from hydra import initialize_config_module
from hydra._internal.callbacks import Callbacks
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from omegaconf import DictConfig, OmegaConf

from src.data import prepare
from src.launch import slurm
from src.launch.cli import heavy
from src.runs import record as runs
from src.runs.errors import Interrupted, UserError
from src.runs.record import Config, plain

CODE = Path(__file__).parents[1]
PACKAGES = ("src", "conf", "sweeps")
HYDRAS = ("output", "help", "hydra_help", "hydra_logging", "job_logging", "env", "launcher", "sweeper")  # own groups
STOP = "stop"  # a file in the folder of a sweep's launch: no further cell begins


@dataclass(frozen=True)
class Cell:
    """One run of a sweep."""

    overrides: list[str]
    config: Config
    model: str
    dataset: str

    @cached_property
    def folder(self) -> Path:
        """Where the run is, or will be."""
        return Path(self.config["paths"]["outputs"]) / runs.folder_name(self.config, self.model, self.dataset)

    @property
    def status(self) -> str:
        """How the run stands."""
        return runs.status(self.folder) or "missing"


@contextmanager
def config_loader() -> Iterator[ConfigLoaderImpl]:
    """Hydra's composition of our configs."""
    GlobalHydra.instance().clear()
    with initialize_config_module("conf", version_base="1.3", job_name="train"):
        loader = GlobalHydra.instance().config_loader()
        assert isinstance(loader, ConfigLoaderImpl)
        yield loader


def cells(arguments: list[str]) -> list[Cell]:
    """Every cell of a sweep, composed; those that are one run, such as a VAE with any active set, once."""
    with config_loader() as loader:
        combinations = BasicSweeper.split_arguments(swept(arguments, loader), None)[0]
        every = [compose(tuple(overrides), loader) for overrides in combinations]
    first = {cell.folder: cell for cell in reversed(every)}
    return [cell for cell in every if first[cell.folder] is cell]


def swept(arguments: list[str], loader: ConfigLoaderImpl) -> list[Override]:
    """The values that a sweep goes over: those of its file, then those of the command line, which replace them."""
    sweep = loader.load_configuration("config", arguments, RunMode.MULTIRUN)
    name = sweep.hydra.runtime.choices.get("sweep")
    in_file = [f"{key}={value}" for key, value in (sweep.hydra.sweeper.params or {}).items()]
    given = [text for text in sweep.hydra.overrides.task if not text.startswith("+sweep=")]
    group = [f"group={name}"] if name else []
    return parsed((*in_file, *group, *given))


def compose(overrides: tuple[str, ...], loader: ConfigLoaderImpl) -> Cell:
    """One cell from its overrides: the options that it chooses, and upon them its values."""
    values = [override for override in parsed(overrides) if not loader.repository.group_exists(override.key_or_group)]
    options = [text for text in overrides if text not in {override.input_line for override in values}]
    config, model, dataset = chosen(tuple(options), loader)
    config = deepcopy(config)
    loader._apply_overrides_to_config(values, config)
    return Cell(list(overrides), plain(config), model, dataset)


@cache
def chosen(options: tuple[str, ...], loader: ConfigLoaderImpl) -> tuple[DictConfig, str, str]:
    """The config with these options, model and dataset; Hydra takes half as long again where it adds its own groups."""
    config = loader.load_configuration("config", [*options, *(f"~hydra/{group}" for group in HYDRAS)], RunMode.RUN)
    choices = config.hydra.runtime.choices
    own = OmegaConf.masked_copy(config, [str(key) for key in config if key != "hydra"])
    OmegaConf.set_struct(own, True)
    return own, choices["model"], choices["dataset"]


@cache
def parsed(overrides: tuple[str, ...]) -> list[Override]:
    """Overrides as Hydra reads them."""
    return OverridesParser.create().parse_overrides(list(overrides))


def start(arguments: list[str]) -> None:
    """Compose every cell, then run what is left to do; where anything is left undone, say what and exit with 1."""
    home = Path(os.environ.get(runs.HOME, Path.cwd()))
    os.chdir(home)
    every = cells(arguments)
    todo = [cell for cell in every if cell.status not in ("done", "running") or cell.config["rerun"]]
    outputs = Path(every[0].config["paths"]["outputs"]).absolute()
    if todo and runs.HOME not in os.environ:
        runs.check_writable(outputs)
        fetch_data(todo)
        continue_frozen(outputs)
    print(f"{len(every)} cells, {len(todo)} of them to do", flush=True)
    for cell in todo:
        runs.let_go_on(cell.folder)
    hydra_overrides = [text for text in arguments if text.lstrip("+~").startswith("hydra")]
    while todo and not launch(todo, hydra_overrides, outputs):
        before, todo = todo, [cell for cell in todo if cell.status == "missing"]
        if todo == before:
            break
    sys.exit(report(every))


def fetch_data(todo: list[Cell]) -> None:
    """Fetch the files that cells need once, not in each of them, which may have no network."""
    with_files = [cell for cell in todo if cell.dataset in prepare.FILES_OF]
    for name, root in sorted({(prepare.FILES_OF[cell.dataset], cell.config["dataset"]["root"]) for cell in with_files}):
        print(prepare.prepare(name, Path(root)), flush=True)


def continue_frozen(outputs: Path) -> None:
    """Go on with a copy of code and configs: what is edited from now on does not reach cells that start later."""
    copy = freeze(outputs / ".code")
    os.environ.update({runs.HOME: str(Path.cwd()), runs.REVISION: runs.git_revision() or ""})
    os.chdir(copy)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "src.train", *sys.argv[1:]])


def freeze(folder: Path) -> Path:
    """A copy of the code and the configs, named by what is in them."""
    files = sorted(path for package in PACKAGES for path in (CODE / package).rglob("*") if is_source(path))
    content = sha256(b"".join(str(path.relative_to(CODE)).encode() + path.read_bytes() for path in files))
    copy = folder / content.hexdigest()[:12]
    if not copy.exists():
        unfinished = copy.with_suffix(f".{os.getpid()}")
        for path in files:
            (unfinished / path.relative_to(CODE)).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, unfinished / path.relative_to(CODE))
        unfinished.rename(copy)
    return copy


def is_source(path: Path) -> bool:
    """Code, configs and what belongs to them, not what Python made of it."""
    return path.is_file() and "__pycache__" not in path.parts


def launch(todo: list[Cell], hydra_overrides: list[str], outputs: Path) -> bool:
    """Send the cells off with Hydra's launcher, from the folder of the code, so that other processes import it too.

    False where it gave up: one killed worker of joblib's takes all others with it, and cells that wait do not begin.
    """
    os.chdir(CODE)
    with config_loader() as loader:
        overrides = [*hydra_overrides, f"paths.outputs={outputs}", "hydra.mode=MULTIRUN"]
        config = loader.load_configuration("config", overrides, RunMode.MULTIRUN)
        context = HydraContext(config_loader=loader, callbacks=Callbacks(config))
        launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=job, config=config)
        try:
            launcher.launch([cell.overrides for cell in todo], initial_job_idx=0)
            return True
        except Exception as error:  # of a cell's process that was killed: the record tells which
            print(f"The launcher gave up: {runs.one_line(error)}", file=sys.stderr)
            slurm.wait_for_jobs(Path(config.hydra.sweep.dir))
            return False
        finally:
            os.chdir(os.environ[runs.HOME])


def this_cell(config: DictConfig) -> Cell:
    """The run that Hydra has composed for this process."""
    hydra = HydraConfig.get()
    choices = hydra.runtime.choices
    return Cell(list(hydra.overrides.task), plain(config), choices["model"], choices["dataset"])


def job(config: DictConfig) -> None:
    """One cell, wherever it was sent. That it failed is in its record, and stops no other."""
    os.chdir(os.environ[runs.HOME])
    cell = this_cell(config)
    stop = Path(HydraConfig.get().sweep.dir) / STOP
    if stop.exists() or runs.is_asked_to_stop(cell.folder):
        return
    print(f"\n{cell.folder.name}", flush=True)
    try:
        heavy("src.training.experiment").run(cell.config, cell.model, cell.dataset)
    except SystemExit:
        slurm.requeue_if_preempted()
        raise
    except Exception as error:
        print(f"{cell.folder.name}: {runs.one_line(error)}", file=sys.stderr, flush=True)
        if isinstance(error, UserError) and not runs.is_owned(cell.folder):
            runs.record_refusal(cell.folder, cell.config, error)
        if cell.config["fail_fast"] and not isinstance(error, Interrupted):
            stop.touch()


def report(every: list[Cell]) -> int:
    """Say how the cells stand, naming each that is not done with the reason; the exit code."""
    states = {cell.folder: cell.status for cell in every}
    counts = Counter(states.values())
    print(f"\n{len(every)} cells: " + ", ".join(f"{count} {state}" for state, count in counts.most_common()))
    for folder, state in states.items():
        if state != "done":
            reason = runs.read_json(folder / "record.json").get("error", "")
            print(f"  {state:<12} {folder.name}  {reason}  {folder / 'log.txt' if reason else ''}".rstrip())
    return 0 if counts["done"] == len(every) else 1
