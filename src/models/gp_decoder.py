"""What the decoders share that predict from training points: a GP, and an active set to condition it on."""

from abc import ABC
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Normal

from src.data.batch import Batch
from src.data.facts import Facts
from src.data.module import DataModule
from src.gp.active_set import ActiveSet, condition
from src.models.base import LatentModel, latents_of
from src.models.likelihoods import Gaussian
from src.models.options import GPOptions, LatentOptions, LearningOptions
from src.runs.randomness import stream
from src.runs.specs import make


class GPDecoder(LatentModel, ABC):
    """A decoder whose mapping is a GP given `active_size` training points, which a checkpoint carries with it."""

    active_size: int
    active_x: Tensor  # [A, *shape]
    active_index: Tensor  # [A], their rows

    def __init__(
        self,
        facts: Facts,
        latents: LatentOptions,
        gp: GPOptions,
        learning: LearningOptions,
        active_set: int | Literal["random"],
    ) -> None:
        super().__init__(facts, learning, latents.latent_dim)
        self.latents = latents_of(latents, facts, self.posteriors, type(self).__name__)
        self.kernel = make(gp.kernel)
        self.likelihood: Gaussian = Gaussian(gp.noise)
        self.active_set = active_set
        self.active_size = facts.num_train // 2 if active_set == "random" else active_set
        self.register_buffer("active_x", torch.zeros(self.active_size, *facts.shape))
        self.register_buffer("active_index", torch.zeros(self.active_size, dtype=torch.long))

    def initialise(self, data: DataModule) -> None:
        """Also draw the active set that the checkpoint predicts from."""
        super().initialise(data)
        active = data.train.draw(self.active_size, stream(self.seed, self.num_data))
        self.active_x.copy_(self.as_float(active.x))
        self.active_index.copy_(active.index)

    def given(self, batch: Batch | None = None) -> ActiveSet:
        """The GP conditioned on training points at their latent means."""
        active = Batch(self.active_x, self.active_index) if batch is None else batch
        z = self.encode(active, seen=True).mean
        return condition(self.centred(active.x), z, self.kernel, self.likelihood.noise)

    def decode(self, z: Tensor, given: ActiveSet | None = None, aux: Tensor | None = None) -> Normal:
        """p(x | x_A, z), Eq. 5 of the SAS paper."""
        return self.normal(*(given or self.given()).predict(z))
