"""What sparse GPs share: inducing inputs, and q of the whitened inducing values."""

from typing import Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.functional import softplus

from src.gp.sparse import SparseGP, Whitened, make_sparse_gp, prior_covariance
from src.runs.errors import UserError

How = Literal["free", "fixed"]


class InducingPoints(nn.Module):
    """M inducing inputs that learn or stay where they start, and a q(u) that learns or is set to its optimum."""

    kernel: Kernel
    inducing: Tensor  # [M, Q]
    q_mean: Tensor  # [M, D], of the whitened inducing values
    q_raw_scale: Tensor  # [M, M] or [D, M, M], the unconstrained factor of their covariance

    def place_inducing(self, points: Tensor, how: How) -> None:
        """Start from inducing inputs [M, Q]."""
        if how not in ("free", "fixed"):
            raise UserError(f"model.inducing={how} is neither free nor fixed")
        self.hold("inducing", points, learned=how == "free")

    def place_values(self, outputs: int, learned: bool, covariances: int | None = None) -> None:
        """Start q(u) from the prior, with one covariance for all outputs or a number of them."""
        size = len(self.inducing)
        scale = raw_scale(torch.eye(size))
        self.hold("q_mean", torch.zeros(size, outputs), learned)
        self.hold("q_raw_scale", scale if covariances is None else scale.repeat(covariances, 1, 1), learned)

    def hold(self, name: str, values: Tensor, learned: bool) -> None:
        """Keep values in the checkpoint, as a parameter or as a buffer."""
        if learned:
            setattr(self, name, Parameter(values))
        else:
            self.register_buffer(name, values)

    def inducing_parameters(self) -> list[Parameter]:
        """Those of them that learn."""
        return [p for p in (self.inducing, self.q_mean, self.q_raw_scale) if isinstance(p, Parameter)]

    def k_mm(self) -> Tensor:
        """The covariance of the inducing values."""
        return prior_covariance(self.kernel, self.inducing)

    def q_v(self) -> Whitened:
        """q of the whitened inducing values."""
        diagonal = softplus(self.q_raw_scale.diagonal(dim1=-2, dim2=-1))
        scale = self.q_raw_scale.tril(-1) + diagonal.diag_embed()
        return Whitened(self.q_mean, scale.unsqueeze(0) if scale.ndim == 2 else scale)

    def set_q_v(self, q: Whitened) -> None:
        """Replace q of the whitened inducing values; all outputs share its covariance."""
        self.q_mean.copy_(q.mean)
        self.q_raw_scale.copy_(raw_scale(q.scale.squeeze(0)))

    def sparse_gp(self, noise: Tensor) -> SparseGP:
        """The GP given q(u), whose predictions have this noise."""
        return make_sparse_gp(self.inducing, self.kernel, noise, self.q_v())


def raw_scale(scale: Tensor) -> Tensor:
    """The unconstrained form of a lower triangular factor: its diagonal through the inverse of softplus."""
    return scale.tril(-1) + scale.diagonal().expm1().log().diag()


def weight_of(regularisation: float | str | None, num_inducing: int) -> float | None:
    """lambda; `inducing` stands for M, with which the regulariser is a prior on the inducing inputs (Theorem 1)."""
    if regularisation is None:
        return None
    if regularisation == "inducing":
        return float(num_inducing)
    if isinstance(regularisation, str) or regularisation < 0:
        raise UserError(f"model.regularisation={regularisation} is neither a weight of at least 0 nor inducing")
    return float(regularisation)
