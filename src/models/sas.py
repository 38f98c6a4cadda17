"""SAS-GP: Gaussian-process decoders trained with stochastic active sets.

Moreno-Muñoz, Feldager & Hauberg, "Revisiting Active Sets for Gaussian Process Decoders", NeurIPS 2022.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor
from torch.distributions import Normal

from src.data.module import Batch, DataModule
from src.errors import UserError
from src.gp.active_set import ActiveSet, Estimate, condition, fixed_size, random_size
from src.models.base import Decoder, Terms
from src.posterior import Kind
from src.randomness import stream
from src.specs import Spec, make


class SAS(Decoder):
    """The point model, Algorithm 1: z is a function of x (amortised) or a free point, the mapping is integrated out."""

    posteriors: ClassVar[tuple[Kind, ...]] = ("point",)
    active_x: Tensor  # [A, *shape], the active set that goes with the checkpoint
    active_index: Tensor  # [A], its rows

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
        self.active_set = active_set
        self.active_size = num_data // 2 if active_set == "random" else active_set
        self.kernel = make(kernel)
        self.likelihood = GaussianLikelihood()
        self.likelihood.noise = noise
        self.register_buffer("active_x", torch.zeros(self.active_size, *shape))
        self.register_buffer("active_index", torch.zeros(self.active_size, dtype=torch.long))

    def check(self, data: DataModule) -> None:
        """The active set is a part of the batch, and something must be left to predict."""
        batch_size = data.batch_size
        if self.active_set == "random":
            if batch_size < self.num_data:
                raise UserError(
                    f"active_set=random needs all {self.num_data} samples in every batch (dataset.batch_size=full), "
                    f"not {batch_size}: its estimate is unbiased only if the active set may hold up to N - 1 points"
                )
        elif not 1 <= self.active_set < batch_size:
            raise UserError(
                f"active_set.size={self.active_set} must be at least 1 and smaller than the batch of {batch_size}: "
                "the active set is drawn from the batch and predicts the rest of it"
            )

    def initialise(self, data: DataModule) -> None:
        """Also draw the active set that the checkpoint predicts from."""
        super().initialise(data)
        active = data.train.draw(len(self.active_x), stream(self.seed, self.num_data))
        self.active_x.copy_(self.as_float(active.x))
        self.active_index.copy_(active.index)

    def objective(self, batch: Batch) -> Terms:
        """Algorithm 1, lines 5-13: minus the estimate of log p(x | z)."""
        z = self.encode(batch.x, batch.index).rsample()
        active, rest, jitter = self.estimate(self.centred(batch.x), z)
        return self.per_value({"active": active, "rest": rest}, jitter)

    def estimate(self, x: Tensor, z: Tensor) -> Estimate:
        """Eq. 6 with a fixed number of active points, or the unbiased form with a random number."""
        if self.active_set == "random":
            rest_size = int(torch.randint(1, len(x) + 1, ()))
            return random_size(x, z, self.kernel, self.likelihood.noise, rest_size)
        return fixed_size(x, z, self.kernel, self.likelihood.noise, self.active_set, self.num_data)

    def per_value(self, terms: dict[str, Tensor], jitter: float) -> Terms:
        """The loss, minus the sum of these terms in nats, for each of the N D observed values."""
        parts = {name: term / (self.num_data * self.data_mean.numel()) for name, term in terms.items()}
        loss = -torch.stack(list(parts.values())).sum()
        return Terms(loss, {**{name: part.detach() for name, part in parts.items()}, "jitter": jitter})

    def given(self, batch: Batch | None = None) -> ActiveSet:
        """The GP conditioned on training points at their latent means."""
        x, index = (self.active_x, self.active_index) if batch is None else (batch.x, batch.index)
        return condition(self.centred(x), self.encode(x, index).mean, self.kernel, self.likelihood.noise)

    def decode(self, z: Tensor, given: ActiveSet | None = None) -> Normal:
        """p(x | x_A, z), Eq. 5, one variance for all pixels of an image."""
        mean, variance = (given or self.given()).predict(z)
        scale = variance.sqrt().view(-1, *[1] * len(self.shape))
        return Normal((mean + self.data_mean).unflatten(1, self.shape), scale, validate_args=False)
