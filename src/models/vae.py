"""VAE: the variational autoencoder (Kingma & Welling, 2014), the comparison without a Gaussian process."""

from typing import ClassVar

from torch import Tensor
from torch.distributions import Normal

from src.data.batch import Batch
from src.data.facts import Facts
from src.models.base import LatentModel, Terms, latents_of
from src.models.likelihoods import Gaussian
from src.models.options import LatentOptions, LearningOptions
from src.models.posterior import Kind, kl_to_prior
from src.runs.specs import Spec, make


class VAE(LatentModel):
    """A net decodes z to the mean of x; the noise, one variance for all pixels, is learned."""

    posteriors: ClassVar[tuple[Kind, ...]] = ("diagonal", "full")

    def __init__(
        self, facts: Facts, latents: LatentOptions, learning: LearningOptions, decoder: Spec, noise: float = 0.1
    ) -> None:
        super().__init__(facts, learning, latents.latent_dim)
        self.latents = latents_of(latents, facts, self.posteriors, type(self).__name__)
        self.net = make(decoder, shape=facts.shape, inputs=latents.latent_dim)
        self.likelihood: Gaussian = Gaussian(noise)

    def objective(self, batch: Batch) -> Terms:
        """The ELBO, (N / B) sum_n E_q[log p(x_n | z_n)] - KL[q(z_n) || N(0, I)]."""
        q = self.encode(batch, seen=True)
        weight = self.num_data / len(batch)
        fit = self.likelihood.log_prob(self.as_float(batch.x), self.mean(q.rsample()), batch.mask).sum()
        return self.per_value({"fit": weight * fit, "kl": -weight * kl_to_prior(q).sum()})

    def mean(self, z: Tensor) -> Tensor:
        """The mean of x at z."""
        return self.uncentred(self.net(z).flatten(1))

    def decode(self, z: Tensor, given: None = None, aux: Tensor | None = None) -> Normal:
        """p(x | z)."""
        return self.likelihood.given(self.mean(z))
