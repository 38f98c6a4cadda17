"""Training in phases: which objective is optimised when, over which parameters, by which optimiser.

AutoGP alternates a bound on everything with leave-one-out learning of the hyperparameters; Casale's GP-VAE trains the
VAE, then the GP. The default is one phase with everything.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch.nn import Parameter

from src.runs.errors import UserError
from src.runs.specs import Spec

Named = Iterable[tuple[str, Parameter]]


@dataclass(frozen=True)
class Phase:
    """A number of epochs of one objective over some of the parameters."""

    epochs: int | None = None  # None: until the end of the training
    objective: str = "objective"  # the name of a method of the model
    parameters: tuple[str, ...] = ("",)  # the beginnings of their names; "" begins every name
    optimizer: Spec | None = None  # None: the model's own

    def has(self, parameter: str) -> bool:
        """Whether this phase trains the parameter of that name."""
        return parameter.startswith(self.parameters)


class Position(NamedTuple):
    """Where in its phases a training is."""

    phase: int
    epoch: int  # within the phase


def position(phases: Sequence[Phase], epoch: int) -> Position:
    """The phase of an epoch. The phases repeat in order, unless the last one has no end."""
    lengths = [phase.epochs for phase in phases]
    cycle = sum(length for length in lengths if length is not None)
    endless = None in lengths
    left = epoch if endless else epoch % cycle
    for number, length in enumerate(lengths):
        if length is None or left < length:
            return Position(number, left)
        left -= length
    raise ValueError(f"no phase of {phases} covers epoch {epoch}")


def check_phases(model: Any, phases: Sequence[Phase]) -> None:
    """Raise a UserError that names the first phase that cannot be trained."""
    learned = [name for name, parameter in model.named_parameters() if parameter.requires_grad]
    for number, phase in enumerate(phases):
        if problem := problem_of(model, phase, learned, is_last=number == len(phases) - 1):
            raise UserError(f"phase {number} of {type(model).__name__} {problem}")


def problem_of(model: Any, phase: Phase, learned: Sequence[str], is_last: bool) -> str | None:
    """Why a phase cannot be trained, or None if it can; `learned` names the parameters that are not fixed."""
    if phase.epochs is None and not is_last:
        return "has no number of epochs, so the phases after it would never begin"
    if phase.epochs is not None and phase.epochs < 1:
        return f"has {phase.epochs} epochs: it needs at least 1"
    if not callable(getattr(model, phase.objective, None)):
        return f"has the objective {phase.objective}, which is not a method of the model"
    for prefix in phase.parameters:
        if not any(name.startswith(prefix) for name in learned):
            return f"trains parameters whose names begin with {prefix!r}, but the model learns none"
    return None if phase.parameters else "trains no parameters"


class Switch:
    """Turns gradients on for the parameters of a phase and off for all others.

    Parameters that the model itself had fixed before the training stay fixed.
    """

    def __init__(self, parameters: Named) -> None:
        self.learned = [(name, parameter) for name, parameter in parameters if parameter.requires_grad]

    def enter(self, phase: Phase) -> None:
        """Begin or continue a phase."""
        for name, parameter in self.learned:
            parameter.requires_grad_(phase.has(name))
            if not parameter.requires_grad:
                parameter.grad = None  # of the phase before

    def leave(self) -> None:
        """End the training: everything learns again."""
        for _, parameter in self.learned:
            parameter.requires_grad_(True)
