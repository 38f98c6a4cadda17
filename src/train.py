"""Train and evaluate one model on one dataset: `python -m src.train model=sas dataset=mnist`."""

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import CompactHydraException
from omegaconf import DictConfig, OmegaConf

from src.cli import heavy, help_text, with_hints
from src.errors import NumericalError, UserError
from src.runs import plain

OmegaConf.register_new_resolver("gp_decoders_help", help_text, replace=True)


@hydra.main(config_path="pkg://conf", config_name="config", version_base="1.3")
def task(cfg: DictConfig) -> None:
    """One job of Hydra's."""

    choices = HydraConfig.get().runtime.choices
    try:
        heavy("src.experiment").run(plain(cfg), choices["model"], choices["dataset"])
    except (UserError, NumericalError) as error:
        raise CompactHydraException(f"Error: {error}") from error


if __name__ == "__main__":
    with_hints(task)
