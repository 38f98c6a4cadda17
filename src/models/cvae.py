"""CVAE: a VAE that is told the angle or the time of each image, the baseline of the GP-VAE papers.

Sohn, Lee & Yan, "Learning Structured Output Representation using Deep Conditional Generative Models", NeurIPS 2015.
"""

from typing import ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent

from src.data.batch import Batch
from src.data.facts import Facts
from src.data.module import DataModule
from src.models.auxiliary import columns
from src.models.base import LatentModel, Terms, encoder_shape
from src.models.likelihoods import Gaussian, likelihood_of, mean_observed
from src.models.needs import NEEDS, aux_problem, require
from src.models.options import AutoencoderOptions, LearningOptions
from src.models.posterior import GaussianNet, Kind, gaussian, kl_to_prior
from src.runs.specs import make

CONDITIONS = {"angle": 2, "time": 1}  # how many numbers tell each: an angle is told by its sine and cosine


class CVAE(LatentModel):
    """p(x | z, c) with z ~ N(0, I) and c known: the angle of a view, or the time in a video."""

    posteriors: ClassVar[tuple[Kind, ...]] = ("diagonal",)
    latents: GaussianNet
    known_mean: Tensor  # [objects, Q], of z averaged over an object's training images
    known_variance: Tensor  # [objects, Q]

    def __init__(
        self,
        facts: Facts,
        nets: AutoencoderOptions,
        learning: LearningOptions,
        noise: float = 1e-2,
        likelihood: str | None = None,
    ) -> None:
        super().__init__(facts, learning, nets.latent_dim)
        self.condition = condition_of(facts)
        conditions = CONDITIONS[self.condition]
        encoder = make(nets.encoder, shape=encoder_shape(facts), outputs=2 * nets.latent_dim, conditions=conditions)
        self.latents = GaussianNet(encoder, nets.variance_range)
        fixed = likelihood in (None, "gaussian")
        self.likelihood = Gaussian(noise, learned=False) if fixed else likelihood_of(str(likelihood), noise)
        self.decoder = make(nets.decoder, shape=facts.shape, inputs=nets.latent_dim, conditions=conditions)
        self.register_buffer("known_mean", torch.zeros(facts.objects or 0, nets.latent_dim))
        self.register_buffer("known_variance", torch.ones(facts.objects or 0, nets.latent_dim))

    def told(self, aux: Tensor | None) -> Tensor:
        """c [B, conditions]: sine and cosine of the angle, or the time as a part of the video's length."""
        (value,) = columns(self.facts, aux, self.condition)
        told = [value.sin(), value.cos()] if self.condition == "angle" else [value / (self.facts.group_size or 1)]
        return torch.stack(told, 1).to(self.known_mean)

    def objective(self, batch: Batch) -> Terms:
        """E_q[log p(x | z, c)] - KL[q(z | x, c) || N(0, I)] for each observed value."""
        x, c = self.as_float(batch.x), self.told(batch.aux)
        q = self.recognise(batch)
        fit = mean_observed(self.likelihood.log_prob(x, self.decoder(q.rsample(), c), batch.mask), batch.mask)
        kl = kl_to_prior(q).sum() / batch.observed
        return Terms(kl - fit, {"reconstruction": fit.detach(), "kl": -kl.detach()})

    def recognise(self, batch: Batch) -> Independent:
        """q(z | x, c)."""
        return self.latents(self.encoder_input(self.filled(batch), batch.mask), self.told(batch.aux))

    def decode(self, z: Tensor, given: None = None, aux: Tensor | None = None) -> Distribution:
        """p(x | z, c), where `aux` [B, columns] tells c."""
        return self.likelihood.given(self.decoder(z, self.told(aux)))

    def generate(self, aux: Tensor) -> Independent:
        """q(z) of views that nobody has seen: as in the object's training images, averaged; else the prior."""
        if "object" not in self.facts.aux:
            zero = self.data_mean.new_zeros(len(aux), self.latent_dim)
            return gaussian(zero, torch.ones_like(zero))
        objects = columns(self.facts, aux, "object")[0].long()
        return gaussian(self.known_mean[objects], self.known_variance[objects])

    @torch.no_grad()
    def finalise(self, data: DataModule) -> None:
        """Keep mean and variance of the average, over an object's training images, of one sample of q(z) each."""
        if "object" not in self.facts.aux:
            return
        count, mean, variance = (torch.zeros_like(self.known_mean) for _ in range(3))
        for chunk in data.train.chunks(1000):
            batch = chunk.to(self.device)
            objects = columns(self.facts, batch.aux, "object")[0].long()
            q = self.encode(batch, seen=True)
            for total, values in ((count, torch.ones_like(q.mean)), (mean, q.mean), (variance, q.variance)):
                total.index_add_(0, objects, values)
        seen = count > 0
        self.known_mean[seen] = (mean / count)[seen]
        self.known_variance[seen] = (variance / count.square())[seen]


def condition_of(facts: Facts) -> str:
    """The auxiliary column that the model is told."""
    require(aux_problem("CVAE", NEEDS["CVAE"], facts.aux))
    return next(name for name in facts.aux if name in CONDITIONS)
