"""Configs as the command line composes them."""

import hydra

from src.runs.identity import Config, plain


def composed(*overrides: str) -> Config:
    """The plain config of `python -m src.train <overrides>`."""
    with hydra.initialize_config_module("conf", version_base="1.3"):
        return plain(hydra.compose("config", overrides=list(overrides)))
