"""VAE: the variational autoencoder (Kingma & Welling, 2014), the comparison without a Gaussian process."""

from typing import ClassVar

from torch import Tensor
from torch.distributions import Distribution, Normal

from src.data.batch import Batch
from src.data.facts import Facts
from src.models.base import LatentModel, Terms, latents_of
from src.models.likelihoods import likelihood_of
from src.models.options import LatentOptions, LearningOptions
from src.models.posterior import Kind, kl_to_prior
from src.runs.specs import Spec, make


class VAE(LatentModel):
    """A net decodes z to the mean of x, with one learned noise variance for all pixels, or to the logits of bits."""

    posteriors: ClassVar[tuple[Kind, ...]] = ("diagonal", "full")

    def __init__(
        self,
        facts: Facts,
        latents: LatentOptions,
        learning: LearningOptions,
        decoder: Spec,
        noise: float = 0.1,
        likelihood: str | None = None,
        warp: str | None = None,
    ) -> None:
        super().__init__(facts, learning, latents.latent_dim)
        self.latents = latents_of(latents, facts, self.posteriors, type(self).__name__)
        self.net = make(decoder, shape=facts.shape, inputs=latents.latent_dim)
        self.set_warp(warp, likelihood)
        self.likelihood = likelihood_of(likelihood or "gaussian", noise)

    def objective(self, batch: Batch) -> Terms:
        """The ELBO, (N / B) sum_n E_q[log p(x_n | z_n)] - KL[q(z_n) || N(0, I)]."""
        q = self.encode(batch, seen=True)
        weight = self.num_data / len(batch)
        fit = self.likelihood.log_prob(self.modelled(batch.x), self.mean(q.rsample()), batch.mask).sum()
        terms = {"fit": weight * fit, "kl": -weight * kl_to_prior(q).sum()}
        return self.per_value(terms if self.warp is None else terms | self.slope_term(*self.observed(batch)))

    def mean(self, z: Tensor) -> Tensor:
        """The mean of x at z, warped or not; of bits the logits, which start at those of the training frequencies."""
        if self.likelihood.labels is None:
            return self.uncentred(self.net(z).flatten(1))
        return self.net(z) + self.likelihood.labels.log_odds(self.data_mean, self.num_data).view(self.shape)

    def decode(self, z: Tensor, given: None = None, aux: Tensor | None = None) -> Distribution:
        """p(x | z)."""
        p = self.likelihood.given(self.mean(z))
        return self.unwarped(p) if isinstance(p, Normal) else p
