"""What the decoders share that predict from training points: a GP, and an active set to condition it on."""

import logging
from abc import ABC
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import Parameter

from src.data.batch import Batch
from src.data.facts import Facts
from src.data.module import DataModule
from src.gp import active_set, quadratic_bound
from src.gp.active_set import ActiveSet
from src.gp.kernels import widened
from src.gp.labels import Labels
from src.gp.patterns import PatternedActiveSet
from src.gp.quadratic_bound import Conditioned, Logits, PatternedConditioned
from src.models.base import LatentModel, latents_of
from src.models.likelihoods import decoder_likelihood, masked, predicted
from src.models.metric import ExpectedMetric
from src.models.options import DecoderOptions, LatentOptions, LearningOptions
from src.runs.errors import UserError
from src.runs.randomness import stream
from src.runs.specs import make

MOST_OPERATIONS = 10**12  # of a step on incomplete data: about a minute of one core

Given = ActiveSet | PatternedActiveSet | Conditioned | PatternedConditioned

log = logging.getLogger(__name__)


class GPDecoder(ExpectedMetric, LatentModel, ABC):
    """A decoder whose mapping is a GP given `active_size` training points, which a checkpoint carries with it.

    Bits and categories have logits with a constant mean of their own per output, learned from the log odds of the
    training data on, and the quadratic bound in place of the Gaussian density.
    """

    active_size: int
    active_x: Tensor  # [A, *shape]
    active_index: Tensor  # [A], their rows
    active_mask: Tensor  # [A, *shape], where they were observed; None in the buffers of complete data

    def __init__(
        self,
        facts: Facts,
        latents: LatentOptions,
        gp: DecoderOptions,
        learning: LearningOptions,
        active_set: int | Literal["random"],
    ) -> None:
        super().__init__(facts, learning, latents.latent_dim)
        self.latents = latents_of(latents, facts, self.posteriors, type(self).__name__)
        self.kernel = widened(make(gp.kernel), latents.latent_dim)
        self.set_warp(gp.warp, gp.likelihood)
        self.likelihood = decoder_likelihood(gp.likelihood, gp.noise, facts)
        self.labels: Labels | None = self.likelihood.labels
        if self.labels is not None:
            self.offset = Parameter(torch.zeros_like(self.data_mean))  # of the logits, [D]
        self.active_set = active_set
        self.active_size = facts.num_train // 2 if active_set == "random" else active_set
        self.register_buffer("active_x", torch.zeros(self.active_size, *facts.shape))
        self.register_buffer("active_index", torch.zeros(self.active_size, dtype=torch.long))
        if not facts.complete:
            self.register_buffer("active_mask", torch.ones(self.active_size, *facts.shape, dtype=torch.bool))

    def initialise(self, data: DataModule) -> None:
        """Also draw the active set that the checkpoint predicts from."""
        super().initialise(data)
        if self.labels is not None:
            self.offset.data.copy_(self.labels.log_odds(self.data_mean, self.num_data))
        active = data.train.draw(self.active_size, stream(self.seed, self.num_data))
        self.active_x.copy_(masked(self.unit(active.x), active.mask))
        self.active_index.copy_(active.index)
        if active.mask is not None:
            self.active_mask.copy_(active.mask)

    def values(self, batch: Batch, x: Tensor) -> Tensor:
        """What the GP explains: centred rows x [B, D], or bits and one-hot rows as they are; 0 if not observed."""
        return x if self.labels is None else masked(self.as_float(batch.x), batch.mask).flatten(1)

    def densities(self) -> tuple[Any, Any]:
        """The functions that give log p(x | z), and what they need to know of the likelihood."""
        if self.labels is None:
            return active_set, self.likelihood.noise
        return quadratic_bound, Logits(self.labels, self.offset)

    def given(self, batch: Batch | None = None) -> Given:
        """The GP conditioned on training points at their latent means, with the values of them that were observed."""
        x, mask = self.observed(active := batch or self.stored_active_set())
        z = self.encode_centred(x, mask, active.index).mean
        gp, likelihood = self.densities()
        given: Given = gp.condition(self.values(active, x), z, self.kernel, likelihood, mask)
        return given

    def stored_active_set(self) -> Batch:
        """The training points that the checkpoint carries with it."""
        mask = None if self.facts.complete else self.active_mask
        return Batch(self.active_x, self.active_index, mask=mask)

    def decode(self, z: Tensor, given: Given | None = None, aux: Tensor | None = None) -> Distribution:
        """p(x | x_A, z), Eq. 5 of the SAS paper; of bits and categories the expected probability."""
        mean, variance = (given or self.given()).predict(z)
        if self.labels is None:
            return self.normal(mean, variance)
        return predicted(self.labels, mean, variance, self.shape)

    def gp_parameters(self) -> list[Parameter]:
        """The mean of the logits belongs to the GP."""
        return [*super().gp_parameters(), *([] if self.labels is None else [self.offset])]


def check_cost(facts: Facts, operations: int, cure: str) -> None:
    """Say what a step on incomplete data costs, and refuse it if it takes too long; `operations` is of one pattern."""
    if facts.complete:
        return
    total = facts.patterns * operations
    cost = (
        f"each of the {facts.patterns} patterns of missing values has a covariance of its own: about {total:.0e} "
        f"operations per step, {facts.patterns} times those of complete data"
    )
    if total > MOST_OPERATIONS:
        raise UserError(f"{cost} (at most {MOST_OPERATIONS:.0e}): {cure}")
    log.info(cost)
