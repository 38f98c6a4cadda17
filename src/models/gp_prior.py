"""What the VAEs share whose latents are GPs of auxiliary inputs."""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, kl_divergence

from src.data.batch import Batch
from src.data.facts import Facts
from src.data.module import DataModule
from src.models.auxiliary import Auxiliary
from src.models.base import LatentModel, Terms, encoder_shape
from src.models.likelihoods import likelihood_of
from src.models.options import GPPriorOptions, LearningOptions
from src.models.posterior import GaussianNet, Kind, Posterior, gaussian
from src.runs.specs import make


class Inferred(NamedTuple):
    """q(z) of the points of a batch, in groups [G, T] that share a function."""

    mean: Tensor  # [G, T, L]
    variance: Tensor  # [G, T, L]
    kl: Tensor  # the batch's part of KL[q || GP]
    jitter: float


class GPPriorVAE(LatentModel, ABC):
    """z = f(aux), f_l ~ GP: nets, kernel, inputs and likelihood."""

    posteriors: ClassVar[tuple[Kind, ...]] = ("diagonal",)
    latents: GaussianNet
    lower_bound = None  # type: ignore[assignment]  # of one point: the points of a GP have one bound together

    def __init__(self, facts: Facts, vae: GPPriorOptions, learning: LearningOptions) -> None:
        super().__init__(facts, learning, vae.latent_dim)
        encoder = make(vae.encoder, shape=encoder_shape(facts), outputs=2 * vae.latent_dim)
        self.latents = GaussianNet(encoder, vae.variance_range)
        self.decoder = make(vae.decoder, shape=facts.shape, inputs=vae.latent_dim)
        self.kernel = make(vae.kernel)
        self.aux: Auxiliary = make(vae.aux, facts=facts, latent_dim=vae.latent_dim)
        self.likelihood = likelihood_of(vae.likelihood, vae.noise)

    @abstractmethod
    def posterior_at(self, inputs: Tensor) -> Independent:
        """The GP given the training data, at inputs [X, P]."""

    def initialise(self, data: DataModule) -> None:
        """Also start what the kernel's inputs are made of."""
        super().initialise(data)
        self.aux.initialise(data)

    def recognise(self, batch: Batch) -> Independent:
        """What the encoder says about z of each point by itself."""
        return self.latents(self.encoder_input(self.filled(batch), batch.mask))

    def generate(self, aux: Tensor) -> Independent:
        """q(z | aux) of points whose images nobody has seen, given the training data."""
        return self.posterior_at(self.aux(self.data_mean.expand(len(aux), -1), aux))

    def held_to_prior(self, batch: Batch) -> None:
        """The prior of z is a GP, not N(0, I)."""
        return

    def decode(self, z: Tensor, given: None = None, aux: Tensor | None = None) -> Distribution:
        """p(x | z)."""
        return self.likelihood.given(self.decoder(z))


class PseudoObserved(GPPriorVAE, ABC):
    """The encoder gives a pseudo-observation of z for each image; q(z) is the GP given them."""

    @abstractmethod
    def infer(self, inputs: Tensor, rows: Tensor, y: Tensor, weight: Tensor) -> Inferred:
        """q(z) at inputs [B, P] of groups `rows` [G, T] from pseudo-observations y and precisions [G, T, L]."""

    def objective(self, batch: Batch) -> Terms:
        """E_q[log p(x | z)] - KL[q || GP], for each observed value."""
        q, kl, jitter = self.posterior(batch)
        x = self.as_float(batch.x)
        fit = self.likelihood.log_prob(x, self.decoder(q.rsample()), batch.mask).sum() / batch.observed
        kl = kl / batch.observed
        return Terms(kl - fit, {"reconstruction": fit.detach(), "kl": -kl.detach(), "jitter": jitter})

    def posterior(self, batch: Batch, pseudo: Independent | None = None) -> tuple[Independent, Tensor, float]:
        """q(z) of each point given all that share its function, the batch's part of the KL, and the jitter.

        It follows from the pseudo-observations; by default from those of the encoder.
        """
        pseudo = self.recognise(batch) if pseudo is None else pseudo
        x = self.filled(batch)
        inputs = self.aux(x, batch.aux)
        rows = self.aux.groups(batch.aux, len(x), x.device)  # [G, T]
        there = (rows >= 0).unsqueeze(-1)
        weight = torch.where(there, there / pseudo.variance[rows], 0.0)  # whose root has no gradient at 0
        q = self.infer(inputs.double(), rows, pseudo.mean[rows], weight)
        back = rows.flatten().argsort()[-len(x) :]  # the place of each row of the batch, behind the absent ones
        return gaussian(q.mean.flatten(0, 1)[back], q.variance.flatten(0, 1)[back]), q.kl, q.jitter

    def encode(self, batch: Batch, seen: bool) -> Independent:
        """q(z) of a frame given the frames of its video that are here; of any other point given the training data.

        The training data know the image of a seen point. For unseen points, the GP prediction is multiplied by the
        encoder's pseudo-likelihood, refined if values are missing.
        """
        pseudo = self.recognise(batch)
        return self.inferred(batch, seen, pseudo if seen else self.refine_incomplete(batch, pseudo))[0]

    def inferred(self, batch: Batch, seen: bool, pseudo: Independent) -> tuple[Independent, Tensor]:
        """q(z) from pseudo-observations, and the KL to what is known without them."""
        if self.aux.grouped:
            return self.posterior(batch, pseudo)[:2]
        known = self.posterior_at(self.aux(self.filled(batch), batch.aux))
        q = known if seen else product(known, pseudo)
        return q, kl_divergence(q, known).sum()

    def refine_incomplete(self, batch: Batch, q: Posterior) -> Independent:
        """Pseudo-observations, refined if values are missing; the points of a batch may be linked, so all of them."""
        refined = q if batch.mask is None or batch.mask.all() else self.refine(batch, q)
        assert isinstance(refined, Independent)
        return refined

    def gain(self, batch: Batch, q: Posterior, given: Any) -> Tensor:
        """The bound that pseudo-observations q lead to, in equal parts [B]; the decoder and the GP are frozen."""
        assert isinstance(q, Independent)
        inferred, kl = self.inferred(batch, False, q)
        likelihood = self.log_likelihood(batch, inferred.rsample(), None)
        return ((likelihood.sum() - kl) / len(batch)).expand(len(batch))


def product(first: Independent, second: Independent) -> Independent:
    """The normal proportional to the product of two."""
    total = first.variance + second.variance
    mean = (first.mean * second.variance + second.mean * first.variance) / total
    return gaussian(mean, first.variance * second.variance / total)
