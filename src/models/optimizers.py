"""Optimisers made of a config: dense and sparse gradients, rates per kind of parameter, and how rates fall."""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch.nn import Parameter
from torch.optim import Optimizer, SparseAdam

from src.models.lean import skip_nvidia_look_up
from src.runs.errors import UserError
from src.runs.specs import Spec, make

FALL_FROM = {"cosine": 0.0, "late": 0.8, "constant": 1.0}  # the part of the training after which the rates fall


class Rates(NamedTuple):
    """Parameters by the rate that they learn at."""

    nets: list[Parameter]  # at `lr`
    gp: list[Parameter]  # kernel and noise, at `gp_lr_factor` times it
    rows: list[Parameter]  # free latents, at `latent_lr_factor` times it, with sparse gradients


def optimizer_of(spec: Spec, rates: Rates) -> Optimizer:
    """The optimiser of a config; each of its groups keeps the rate that it starts from as `initial_lr`."""
    if spec["schedule"] not in FALL_FROM:
        raise UserError(f"optimizer.schedule={spec['schedule']} is none of {', '.join(FALL_FROM)}")
    skip_nvidia_look_up()
    groups = [
        {"params": rates.nets, "lr": spec["lr"]},
        {"params": rates.gp, "lr": spec["lr"] * spec["gp_lr_factor"]},
    ]
    optimizer: Optimizer = make(spec["algorithm"])([group for group in groups if group["params"]])
    if rates.rows:
        sparse = SparseAdam(rates.rows, lr=spec["lr"] * spec["latent_lr_factor"])
        optimizer = WithSparseRows(optimizer, sparse)
    for group in optimizer.param_groups:
        group["initial_lr"] = group["lr"]
    return optimizer


def rates_left(part: float, schedule: str) -> float:
    """What is left of a rate after a part of the training: all, then half a cosine down to nothing at the end."""
    start = FALL_FROM[schedule]
    return 1.0 if part <= start else 0.5 + 0.5 * math.cos(math.pi * (part - start) / (1 - start))


class WithSparseRows(Optimizer):
    """A dense optimiser for the nets and the GP, and SparseAdam for the rows of free latents, behind one interface.

    Adam's momentum would go on moving rows that are not in the batch. Lightning's automatic loop takes one optimiser.
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
