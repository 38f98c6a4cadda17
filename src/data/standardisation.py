"""Standardisation of columns: the training data decide the constants, and a checkpoint keeps them for new data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from src.data.batch import Split, Storage
from src.data.facts import Facts
from src.runs.errors import UserError

SHOWN = 5  # names in a message


@dataclass(frozen=True)
class Scale:
    """x -> (x - centre) / spread for each column, in float64: float32 has no digits left for a year or a time stamp."""

    centre: Tensor  # [D], float64
    spread: Tensor  # [D], float64

    @classmethod
    def of(cls, train: Split, columns: Sequence[str] = ()) -> "Scale":
        """Mean and sd over the observed training values; a column without two different values is an error."""
        x = train.all().x.double()  # missing and hidden values are NaN
        centre = x.nanmean(0)
        spread = (x - centre).square().nanmean(0).sqrt()
        constant = ~(spread > 1e-12 * centre.abs())  # also without any observed value, whose spread is NaN
        if constant.any():
            names = [columns[i] if columns else f"number {i}" for i in constant.nonzero().flatten().tolist()]
            raise UserError(
                f"columns without two different training values cannot be standardised: {shortened(names)}; "
                "leave them out of dataset.columns, or set dataset.standardise=false"
            )
        return cls(centre, spread)

    @classmethod
    def stored(cls, facts: Facts) -> "Scale | None":
        """The constants that a checkpoint holds; None if its data were not standardised."""
        if not facts.centre:
            return None
        return cls(torch.tensor(facts.centre, dtype=torch.float64), torch.tensor(facts.spread, dtype=torch.float64))

    def applied(self, split: Split) -> Split:
        """The split with standardised columns, in float32; hidden values too, which are scored on the same scale."""
        x = split.truth(torch.arange(len(split)))
        return replace(split, storage=Storage(((x - self.centre) / self.spread).float()))


def shortened(names: Sequence[str]) -> str:
    """The first names of a list, and how many more there are."""
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
