"""Training in phases: which objective is optimised when, over which parameters, by which optimiser.

AutoGP alternates a bound on everything with leave-one-out learning of the hyperparameters; Casale's GP-VAE trains the
VAE, then the GP. The default is one phase with everything.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from src.runs.specs import Spec


@dataclass(frozen=True)
class Phase:
    """So many epochs of one objective over some of the parameters."""

    epochs: int | None = None  # None: until the end of the training
    objective: str = "objective"  # the name of a method of the model
    parameters: tuple[str, ...] = ("",)  # the beginnings of their names; "" begins every name
    optimizer: Spec | None = None  # None: the model's own

    def has(self, parameter: str) -> bool:
        """Whether this phase trains a parameter of that name."""
        return parameter.startswith(self.parameters)


class Position(NamedTuple):
    """Where in its phases a training is."""

    phase: int
    epoch: int  # within the phase


def position(phases: Sequence[Phase], epoch: int) -> Position:
    """The phase of an epoch: the phases follow each other again and again."""
    lengths = [phase.epochs for phase in phases]
    cycle = sum(length for length in lengths if length is not None)
    endless = None in lengths
    left = epoch if endless else epoch % cycle
    for number, length in enumerate(lengths):
        if length is None or left < length:
            return Position(number, left)
        left -= length
    raise ValueError(f"no phase of {phases} is that of epoch {epoch}")
