"""A network of one's own as an encoder."""

from collections.abc import Sequence
from copy import deepcopy

import torch
from torch import nn

from src.runs.errors import UserError


def given(shape: Sequence[int], outputs: int, module: nn.Module) -> nn.Sequential:
    """A copy of a module from observations [B, *shape] to features [B, ...], and a linear layer to the outputs."""
    own = deepcopy(module)
    try:
        with torch.no_grad():
            features = deepcopy(module).eval()(torch.zeros(2, *shape))
    except RuntimeError as error:
        raise UserError(
            f"the encoder does not take observations [B, {', '.join(map(str, shape))}] (with missing values, half of "
            f"the channels are their mask): {error}"
        ) from error
    return nn.Sequential(own, nn.Flatten(), nn.Linear(features[0].numel(), outputs))
