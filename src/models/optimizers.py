"""One optimiser for dense and sparse gradients."""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer, SparseAdam


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
