"""Bayesian SAS-GP: stochastic active sets with the latent variables integrated out variationally."""

from typing import ClassVar

from src.data.batch import Batch
from src.models.base import Terms
from src.models.posterior import Kind, kl_to_prior
from src.models.sas import SAS


class BayesianSAS(SAS):
    """Algorithm 2 of the SAS paper: q(z_n) is Gaussian with diagonal or full covariance, the prior N(0, I)."""

    posteriors: ClassVar[tuple[Kind, ...]] = ("diagonal", "full")

    def objective(self, batch: Batch) -> Terms:
        """Eq. 8: the estimate of log p(x | z) at z ~ q, less (N / B) sum_n KL[q(z_n) || N(0, I)]."""
        x, mask = self.observed(batch)
        q = self.encode_centred(x, mask, batch.index)
        active, rest, jitter = self.estimate(self.values(batch, x), q.rsample(), mask)
        kl = self.num_data / len(batch.x) * kl_to_prior(q).sum()
        return self.per_value({"active": active, "rest": rest, "kl": -kl} | self.slope_term(x, mask), jitter)
