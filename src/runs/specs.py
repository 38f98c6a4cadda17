"""Specs: plain data that name what to build, so that a checkpoint contains everything needed to rebuild its model."""

from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from src.runs import aliases
from src.runs.errors import UserError

Spec = dict[str, Any]  # {"_target_": "package.module.name", argument: value, ...}, nested to any depth


def make(spec: Spec, **arguments: Any) -> Any:
    """Build what a spec describes, with further arguments. Errors become a UserError of one sentence."""
    try:
        return instantiate(aliases.renewed(spec), **arguments, _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, UserError):
            raise error.__cause__ from None
        raise UserError(f"{spec.get('_target_')}: {error.__cause__ or error}") from error
