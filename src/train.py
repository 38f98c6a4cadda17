"""Train and evaluate one model on one dataset: `python -m src.train model=sas dataset=mnist`."""

import hydra
from hydra._internal.utils import get_args_parser, run_and_report
from hydra.errors import CompactHydraException
from omegaconf import DictConfig

from src.launch import sweeps
from src.launch.cli import heavy, help_text, with_hints
from src.runs import record as runs
from src.runs.errors import Interrupted, NumericalError, UserError


@hydra.main(config_path="pkg://conf", config_name="config", version_base="1.3")
def task(cfg: DictConfig) -> float | None:
    """One run; the loss of its last epoch is what a search makes small, so that the test set chooses nothing."""
    cell = sweeps.this_cell(cfg)
    runs.let_go_on(cell.folder)  # who types it again wants a cancelled run to continue
    try:
        metrics = heavy("src.training.experiment").run(cell.config, cell.model, cell.dataset)
        return -metrics["objective"] if metrics else None
    except (UserError, NumericalError, Interrupted) as error:
        raise CompactHydraException(f"Error: {error}") from error
    except OSError as error:
        raise CompactHydraException(f"Error: {error}; with that mended, the same command continues the run") from error


def is_sweep() -> bool:
    """Whether the command line asks for one whose cells are all known beforehand; optuna's, say, are not."""
    options = get_args_parser().parse_args()
    if options.hydra_help or options.cfg or options.info:
        return False
    searches = any(text.startswith("hydra/sweeper=") for text in options.overrides)
    return not searches and (options.multirun or any(text.startswith("+sweep=") for text in options.overrides))


def main() -> None:
    """A run, or a sweep; help is our own, since Hydra's takes a second to list what is not asked for."""
    if get_args_parser().parse_args().help:
        print(help_text())
    elif is_sweep():
        run_and_report(lambda: sweeps.start(get_args_parser().parse_args().overrides))
    else:
        task()


if __name__ == "__main__":
    with_hints(main)
