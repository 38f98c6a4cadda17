"""Specs: plain data that name what to build, so that a checkpoint holds all it takes to build its model again."""

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from src.runs.errors import UserError

Spec = dict[str, Any]  # {"_target_": "package.module.name", argument: value, ...}, nested as deep as needed


def make(spec: Spec, **arguments: Any) -> Any:
    """What a spec describes, with further arguments; what goes wrong is the user's to know, in one sentence."""
    try:
        return instantiate(spec, **arguments, _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from None
        raise UserError(f"{spec.get('_target_')}: {error.__cause__ or error}") from error
