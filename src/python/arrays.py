"""A person's arrays, numpy or torch, as a model takes them, and answers of the same kind."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from src.data.arrays import looks_like_bytes
from src.data.batch import Batch
from src.data.facts import Facts
from src.data.standardisation import Scale, shortened
from src.python.results import Encoded
from src.runs.errors import UserError


@dataclass(frozen=True)
class Kind:
    """What came in, for the answer: numpy or torch, where, and whether it was one point without an axis of points."""

    numpy: bool
    device: torch.device
    single: bool

    def answer(self, values: Tensor) -> Any:
        """Values [n, ...] as the person expects them."""
        values = values[0] if self.single else values
        return values.detach().cpu().numpy() if self.numpy else values.to(self.device)


def observations(x: Any, facts: Facts, mask: Any = None, aux: Any = None) -> tuple[Batch, Kind]:
    """Observations in the units of the data as a batch: one or many, bytes or floats; NaN, or a False mask, is missing.

    An array with exactly the shape of the data is one observation. Grey images may leave out their channel.
    """
    values, numpy = tensor_of(columns_of(x, facts), "x")
    values, single = with_axis_of_points(values, facts, "x")
    values = checked_values(values, facts)
    seen = None if mask is None else with_axis_of_points(tensor_of(mask, "mask")[0].bool(), facts, "mask")[0]
    if seen is not None and len(seen) != len(values):
        raise UserError(f"mask has {len(seen)} rows, but x has {len(values)}")
    batch = Batch.of(values, aux_of(aux, facts, len(values)), observed(values, seen))
    return batch, Kind(numpy, values.device, single)


def columns_of(x: Any, facts: Facts) -> Any:
    """The columns of a data frame in the order of the training data, by their names; anything else as it is."""
    if not (facts.columns and hasattr(x, "columns")):
        return x
    if missing := [name for name in facts.columns if name not in x.columns]:
        raise UserError(f"x lacks columns that the model was trained on: {shortened(missing)}")
    return x[list(facts.columns)].to_numpy(dtype=np.float64)


def tensor_of(values: Any, name: str) -> tuple[Tensor, bool]:
    """A tensor, and whether it was numpy (or a list) before."""
    if isinstance(values, Tensor):
        return values, False
    array = np.asarray(values)
    if array.dtype.kind not in "fiub":
        raise UserError(f"{name} holds {array.dtype}, not numbers")
    array = array.astype(np.float32) if array.dtype == np.float16 else array
    return torch.tensor(array), True


def with_axis_of_points(values: Tensor, facts: Facts, name: str) -> tuple[Tensor, bool]:
    """Values [n, *shape], and whether they were those of one point."""
    shape, given = facts.shape, tuple(values.shape)
    grey = len(shape) == 3 and shape[0] == 1
    if given == shape or (grey and given == shape[1:]):
        return values.reshape(1, *shape), True
    if given[1:] == shape or (grey and given[1:] == shape[1:]):
        return values.reshape(-1, *shape), False
    each = ", ".join(map(str, shape))
    raise UserError(f"{name} has the shape {list(given)}, but the model takes [{each}] or, for n points, [n, {each}]")


def checked_values(x: Tensor, facts: Facts) -> Tensor:
    """Bytes or floats as the model knows them; bytes of a table are plain numbers, and its columns are standardised."""
    if facts.scale == "image" and x.dtype != torch.uint8 and not x.is_floating_point():
        raise UserError(
            f"images must be uint8 (0 to 255) or floats from 0 to 1, not {str(x.dtype).removeprefix('torch.')}"
        )
    if facts.scale == "image" and looks_like_bytes(x):
        raise UserError("x looks like images from 0 to 255: divide them by 255, or pass them as uint8")
    if facts.scale == "table" and not facts.levels:
        x = x if x.is_floating_point() else x.double()
    if x.is_floating_point() and x.isinf().any():
        raise UserError(f"x has infinite values, first in row {int(x.isinf().flatten(1).any(1).nonzero()[0])}")
    scale = Scale.stored(facts)
    return x if scale is None else ((x.cpu() - scale.centre) / scale.spread).to(x.device)


def observed(x: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask of what was observed: neither hidden by the person nor NaN; None if nothing is missing."""
    seen = ~x.isnan() if mask is None else mask.to(x.device) & ~x.isnan()
    return None if bool(seen.all()) else seen


def aux_of(aux: Any, facts: Facts, count: int) -> Tensor | None:
    """The auxiliary columns [n, columns], which some models need and all others refuse."""
    names = ", ".join(facts.aux)
    if (aux is None) != (not facts.aux):
        need = f"the model needs aux=[n, {len(facts.aux)}], the columns {names}"
        raise UserError(need if facts.aux else "the model was trained without auxiliary columns: leave aux out")
    if aux is None:
        return None
    values = tensor_of(aux, "aux")[0].float()
    values = values.unsqueeze(0) if values.ndim == 1 else values
    if values.shape != (count, len(facts.aux)):
        raise UserError(
            f"aux has the shape {list(values.shape)}, but {count} points need [{count}, {len(facts.aux)}]: {names}"
        )
    return values


def latent_points(z: Any, latent_dim: int, name: str = "z") -> tuple[Tensor, Kind]:
    """Latent points [n, Q], from one [Q] or many; of what `encode` gave, the means."""
    values, numpy = tensor_of(z.mean if isinstance(z, Encoded) else z, name)
    single = tuple(values.shape) == (latent_dim,)
    if not single and (values.ndim != 2 or values.shape[1] != latent_dim):
        raise UserError(
            f"{name} has the shape {list(values.shape)}, but latent points are [{latent_dim}] or, for n of them, "
            f"[n, {latent_dim}]"
        )
    if not values.isfinite().all():
        raise UserError(f"{name} has values that are not finite")
    return values.unsqueeze(0) if single else values, Kind(numpy, values.device, single)


def in_units(values: Tensor, facts: Facts, power: int = 1) -> Tensor:
    """Values [n, *shape] of the model in the units of the data: a mean (power 1) or a variance (power 2)."""
    scale = Scale.stored(facts)
    if scale is None:
        return values
    spread, centre = (part.to(values) for part in (scale.spread, scale.centre))
    return values * spread + centre if power == 1 else values * spread.square()
