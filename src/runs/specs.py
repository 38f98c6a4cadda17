"""Specs: plain data that name what to build, so that a checkpoint contains everything needed to rebuild its model."""

from functools import partial
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate

from src.runs import aliases
from src.runs.errors import UserError

Spec = dict[str, Any]  # {"_target_": "package.module.name", argument: value, ...}, nested to any depth


def make(spec: Spec, **arguments: Any) -> Any:
    """What a spec describes, called with further arguments, which are passed on as they are.

    Whatever goes wrong is shown to the user in one sentence.
    """
    try:
        call = instantiate({**aliases.renewed(spec), "_partial_": True}, _convert_="all")
        return partial(call, **arguments) if spec.get("_partial_") else call(**arguments)
    except UserError:
        raise
    except Exception as error:
        cause = error.__cause__ if isinstance(error, InstantiationException) else error
        if isinstance(cause, UserError):
            raise cause from None
        raise UserError(f"{spec.get('_target_')}: {cause or error}") from error
