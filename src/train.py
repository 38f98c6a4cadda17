"""Train and evaluate one model on one dataset: `python -m src.train model=sas dataset=mnist`."""

import os
from pathlib import Path

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from hydra.types import RunMode
from omegaconf import DictConfig

from src.launch import cells, choices, optuna_study, sweeps, values
from src.launch.cli import answer, help_text
from src.launch.heavy import heavy
from src.launch.hydra_private import check_names, command_line, config_loader, end, is_hydras, searched
from src.runs import record, request
from src.runs.errors import Interrupted, NumericalError, UserError
from src.runs.request import RunRequest

SEARCH = "hydra/sweeper=optuna_study"


@hydra.main(config_path="pkg://conf", config_name="config", version_base="1.3")
def task(cfg: DictConfig) -> float | None:
    """One run. Returns the score that sweepers minimise: the training loss, or that of `search.metric`."""
    run = request.of_this_process(cfg)
    record.withdraw_stop(run.folder)  # typing the command again resumes a cancelled run
    try:
        if is_of_a_sweep():
            announce(run)
        metrics = heavy("src.training.experiment").run(run.config, run.model, run.dataset)
        return heavy("src.evaluation.search").to_minimise(metrics, run.config) if metrics else None
    except (UserError, NumericalError, Interrupted, OSError) as error:
        cure = "; fix this and rerun the same command to resume" if isinstance(error, OSError) else ""
        if is_of_a_sweep():  # which another sweeper has started, and may continue
            raise CompactHydraException(f"Error: {error}{cure}") from error
        end(error, cure)


def is_of_a_sweep() -> bool:
    """Whether another sweeper than ours has started this run."""
    return bool(HydraConfig.get().mode is RunMode.MULTIRUN)


def check(overrides: list[str]) -> None:
    """Check a single run before Hydra starts and torch loads; its messages stand alone, without Hydra's beside them."""
    if command_line().multirun or asks_for_information():
        check_names(overrides)
        return
    own = [text for text in overrides if not is_hydras(text)]
    for text in own:
        if searched(text) is not None:
            raise UserError(f"{text} has several values: type -m to run them all, or {of_one(text)} for a list")
    with config_loader() as loader:
        announce(cells.compose(own, loader))


def of_one(override: str) -> str:
    """Several values as one list: `encoder.hidden=[64,32]`."""
    key, _, values = override.partition("=")
    return f"{key}=[{values}]"


def announce(run: RunRequest) -> None:
    """Reject wrong values and choices without effect, and say which file of conf/pair applies."""
    if os.environ.get("LOCAL_RANK", "0") == "0":  # Lightning starts further processes with the same command
        values.check([run])
        choices.check_run(run)
        values.check_pair(run)
        if run.is_to_do:
            record.check_writable(Path(run.config["paths"]["outputs"]))
        for line in [*choices.pair_remarks([run]), *choices.file_remarks([run])]:
            print(line, flush=True)


def is_sweep() -> bool:
    """Whether the command asks for a sweep whose cells are all known in advance; those of a search are not."""
    options = command_line()
    searches = any(text.startswith("hydra/sweeper=") for text in options.overrides)
    is_multirun = options.multirun or any(text.startswith("+sweep=") for text in options.overrides)
    return is_multirun and not searches and not asks_for_information()


def is_search() -> bool:
    """Whether the command asks for a search of ours; other sweepers are Hydra's own matter."""
    return SEARCH in command_line().overrides and not asks_for_information()


def asks_for_information() -> bool:
    """Whether the command shows a config or help of Hydra, and runs nothing."""
    options = command_line()
    return bool(options.hydra_help or options.cfg or options.info)


def print_table(cells: list[RunRequest]) -> None:
    """Print a table of the cells of a sweep; it is imported now, since it loads torch."""
    from src.report.terminal import print_sweep

    print_sweep(cells)


def main() -> None:
    """Start a run or a sweep, or print our own help, since Hydra's takes a second."""
    if command_line().help:
        print(help_text())
    elif is_sweep():
        answer(lambda: sweeps.start(command_line().overrides, print_table))
    elif is_search():
        answer(lambda: optuna_study.start(command_line().overrides))
    else:
        answer(lambda: check(command_line().overrides))
        task()


if __name__ == "__main__":
    main()
