"""VAE: the variational autoencoder (Kingma & Welling, 2014), the comparison without a Gaussian process."""

from collections.abc import Sequence
from typing import ClassVar

from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor
from torch.distributions import Normal

from src.data.module import Batch
from src.models.base import Decoder, Terms
from src.models.posterior import Kind, kl_to_prior
from src.runs.specs import Spec, make


class VAE(Decoder):
    """A net decodes z to the mean of x; the noise, one variance for all pixels, is learned."""

    posteriors: ClassVar[tuple[Kind, ...]] = ("diagonal", "full")

    def __init__(
        self,
        shape: Sequence[int],
        num_data: int,
        encoder: Spec,
        decoder: Spec,
        optimizer: Spec,
        latent_dim: int = 2,
        amortised: bool = True,
        noise: float = 0.1,
        seed: int = 0,
        posterior: Kind | None = None,
    ) -> None:
        super().__init__(shape, num_data, latent_dim, posterior, amortised, encoder, optimizer, seed)
        self.net = make(decoder, shape=self.shape, inputs=latent_dim)
        self.likelihood = GaussianLikelihood()
        self.likelihood.noise = noise

    def objective(self, batch: Batch) -> Terms:
        """The ELBO, (N / B) sum_n E_q[log p(x_n | z_n)] - KL[q(z_n) || N(0, I)]."""
        q = self.encode(batch.x, batch.index)
        weight = self.num_data / len(batch.x)
        fit = self.decode(q.rsample()).log_prob(self.as_float(batch.x)).sum()
        return self.per_value({"fit": weight * fit, "kl": -weight * kl_to_prior(q).sum()})

    def decode(self, z: Tensor, given: None = None) -> Normal:
        """p(x | z)."""
        return self.normal(self.net(z).flatten(1), self.likelihood.noise.expand(len(z)))
