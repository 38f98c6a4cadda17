"""Optimisers made of a config: dense and sparse gradients, rates per kind of parameter, and how rates fall."""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.nn import Parameter
from torch.optim import LBFGS, Optimizer, SparseAdam

from src.models.lean import skip_nvidia_look_up
from src.runs.aliases import find_class
from src.runs.errors import UserError
from src.runs.specs import Spec, make

FALL_FROM = {"cosine": 0.0, "late": 0.8, "constant": 1.0}  # the part of the training after which the rates fall
FACTORS = ("gp_lr_factor", "latent_lr_factor")


class Rates(NamedTuple):
    """Parameters by the rate that they learn at."""

    nets: list[Parameter]  # at `lr`
    gp: list[Parameter]  # kernel and noise, at `gp_lr_factor` times it
    rows: list[Parameter]  # free latents, at `latent_lr_factor` times it, with sparse gradients


def optimizer_of(spec: Spec, rates: Rates) -> Optimizer:
    """The optimiser of a config; each of its groups keeps the rate that it starts from as `initial_lr`."""
    check_optimizer(spec)
    skip_nvidia_look_up()
    optimizer = second_order(spec, rates) if needs_full_batches(spec) else first_order(spec, rates)
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer


def check_optimizer(spec: Spec) -> None:
    """Raise a UserError if a setting is unknown or would have no effect."""
    if spec["schedule"] not in FALL_FROM:
        raise UserError(f"optimizer.schedule={spec['schedule']} is none of {', '.join(FALL_FROM)}")
    unused = [name for name in FACTORS if spec.get(name) is not None]
    if unused and needs_full_batches(spec):
        raise UserError(
            f"optimizer.{unused[0]} has no effect on L-BFGS, which has one rate for all parameters: "
            f"set optimizer.{unused[0]}=null"
        )


def needs_full_batches(spec: Spec) -> bool:
    """Whether an optimiser compares the objective at different parameters, so that the data must not change."""
    return issubclass(find_class(spec["algorithm"]["_target_"]), LBFGS)


def first_order(spec: Spec, rates: Rates) -> Optimizer:
    """One group of parameters per rate, and SparseAdam for the rows of free latents.

    Weight decay is for nets: zero is no simple value of a kernel's raw parameters.
    """
    lr = spec["lr"]
    groups = [
        {"params": rates.nets, "lr": lr},
        {"params": rates.gp, "lr": lr * factor(spec, "gp_lr_factor"), "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    dense: Optimizer | None = make(spec["algorithm"])(groups) if groups else None
    if not rates.rows:
        assert dense is not None
        return dense
    sparse = SparseAdam(rates.rows, lr=lr * factor(spec, "latent_lr_factor"))
    return sparse if dense is None else WithSparseRows(dense, sparse)


def factor(spec: Spec, name: str) -> float:
    """How many times as fast as the nets some parameters learn; as fast if the config does not say."""
    value = spec.get(name)
    return 1.0 if value is None else value


def second_order(spec: Spec, rates: Rates) -> Optimizer:
    """L-BFGS has one group with all parameters; it makes the gradients of free latents dense itself."""
    optimizer: Optimizer = make(spec["algorithm"])([*rates.nets, *rates.gp, *rates.rows], lr=spec["lr"])
    return optimizer


def rates_left(part: float, schedule: str) -> float:
    """What is left of a rate after a part of the training: all, then half a cosine down to nothing at the end."""
    start = FALL_FROM[schedule]
    return 1.0 if part <= start else 0.5 + 0.5 * math.cos(math.pi * (part - start) / (1 - start))


class WithSparseRows(Optimizer):
    """A dense optimiser for the nets and the GP, and SparseAdam for the rows of free latents, behind one interface.

    Adam's momentum would keep moving rows that are not in the batch. Lightning's automatic loop takes one optimiser.
    """

    def __init__(self, dense: Optimizer, sparse: SparseAdam) -> None:
        self.parts = (dense, sparse)
        super().__init__([*dense.param_groups, *sparse.param_groups], {})
        dense.param_groups, sparse.param_groups = (
            self.param_groups[: len(dense.param_groups)],
            self.param_groups[len(dense.param_groups) :],
        )

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of both."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for part in self.parts:
            part.step()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The states of both."""
        return {"parts": [part.state_dict() for part in self.parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the states of both."""
        for part, state in zip(self.parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
        self.param_groups = [group for part in self.parts for group in part.param_groups]


class Phased(Optimizer):
    """One optimiser per phase of the training behind one interface; only that of the current phase steps.

    Each keeps its own moments, which wait for its next turn. Lightning's automatic loop takes one optimiser.
    """

    def __init__(self, phases: Sequence[Optimizer]) -> None:
        self.phases = tuple(phases)
        super().__init__(self.phases[0].param_groups, {})
        self.enter(0)

    def enter(self, phase: int) -> None:
        """Let the optimiser of this phase take the next steps. The groups are those of its parameters."""
        self.current = self.phases[phase]
        self.param_groups = self.current.param_groups

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One step of the optimiser of the current phase."""
        return self.current.step(closure)

    def state_dict(self) -> dict[str, Any]:
        """The states of all. The phase is not among them, since the epoch decides it."""
        return {"phases": [optimizer.state_dict() for optimizer in self.phases]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Restore the states of all."""
        for optimizer, state in zip(self.phases, state_dict["phases"], strict=True):
            optimizer.load_state_dict(state)
        self.param_groups = self.current.param_groups
