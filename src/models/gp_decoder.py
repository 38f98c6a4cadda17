"""What the decoders share that predict from training points: a GP and an active set to condition it on."""

from abc import ABC
from collections.abc import Sequence
from typing import Literal

import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor
from torch.distributions import Normal

from src.data.module import Batch, DataModule
from src.gp.active_set import ActiveSet, condition
from src.models.base import Decoder
from src.models.posterior import Kind
from src.runs.randomness import stream
from src.runs.specs import Spec, make


class GPDecoder(Decoder, ABC):
    """A decoder whose mapping is a GP given `active_size` training points, which a checkpoint carries with it."""

    active_size: int
    active_x: Tensor  # [A, *shape]
    active_index: Tensor  # [A], their rows

    def __init__(
        self,
        shape: Sequence[int],
        num_data: int,
        kernel: Spec,
        encoder: Spec,
        optimizer: Spec,
        active_set: int | Literal["random"],
        latent_dim: int = 2,
        amortised: bool = True,
        noise: float = 0.1,
        seed: int = 0,
        posterior: Kind | None = None,
    ) -> None:
        super().__init__(shape, num_data, latent_dim, posterior, amortised, encoder, optimizer, seed)
        self.kernel = make(kernel)
        self.likelihood = GaussianLikelihood()
        self.likelihood.noise = noise
        self.active_set = active_set
        self.active_size = num_data // 2 if active_set == "random" else active_set
        self.register_buffer("active_x", torch.zeros(self.active_size, *shape))
        self.register_buffer("active_index", torch.zeros(self.active_size, dtype=torch.long))

    def initialise(self, data: DataModule) -> None:
        """Also draw the active set that the checkpoint predicts from."""
        super().initialise(data)
        active = data.train.draw(self.active_size, stream(self.seed, self.num_data))
        self.active_x.copy_(self.as_float(active.x))
        self.active_index.copy_(active.index)

    def given(self, batch: Batch | None = None) -> ActiveSet:
        """The GP conditioned on training points at their latent means."""
        x, index = (self.active_x, self.active_index) if batch is None else (batch.x, batch.index)
        return condition(self.centred(x), self.encode(x, index).mean, self.kernel, self.likelihood.noise)

    def decode(self, z: Tensor, given: ActiveSet | None = None) -> Normal:
        """p(x | x_A, z), Eq. 5 of the SAS paper."""
        return self.normal(*(given or self.given()).predict(z))
