"""How q(z) of unseen points is found or made better: by a search with the decoder frozen."""

import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.distributions import Distribution

from src.data.batch import Batch
from src.models.likelihoods import masked_log_prob
from src.models.posterior import (
    DRAWS,
    Amortised,
    Free,
    Posterior,
    around,
    divergence,
    expected,
    fit,
    rows_of,
    with_rows,
)

# Of Adam, for q(z) of unseen points: steps per latent dimension. In ten dimensions 200 steps in all left the full
# covariance behind the diagonal one in filling in textures; 1000 steps set it right.
REFINING_STEPS, REFINING_RATE = 100, 0.05


class Refines:
    """What models with latents share that search for q(z) of points which training did not see."""

    if TYPE_CHECKING:
        latents: Amortised | Free
        latent_dim: int
        num_data: int
        seed: int

        def decode(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Distribution:
            """The distribution of observations."""

        def given(self, batch: Batch | None = None) -> Any:
            """What `decode` conditions on."""

        def as_float(self, x: Tensor) -> Tensor:
            """Observations in the model's precision."""

    def refine_incomplete(self, batch: Batch, q: Posterior) -> Posterior:
        """q(z) that the encoder gave for unseen points, refined where values are missing."""
        if batch.mask is None or batch.mask.all():
            return q
        rows = (~batch.mask.flatten(1).all(1)).nonzero().squeeze(1)
        return with_rows(q, rows, self.refine(batch.part(rows), rows_of(q, rows)))

    @torch.enable_grad()
    def refine(self, batch: Batch, start: Posterior, given: Any = None) -> Posterior:
        """q(z) with the highest gain, from `start`, with the decoder frozen; its random numbers are the seed's."""
        given = self.frozen() if given is None else given
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            steps = REFINING_STEPS * max(2, self.latent_dim)
            return fit(start, lambda q: self.gain(batch, q, given), steps, REFINING_RATE)

    @torch.no_grad()
    def lower_bound(self, batch: Batch, q: Posterior, given: Any = None, draws: int = DRAWS) -> Tensor:
        """E_q[log p(x | z)] - KL[q || N(0, I)] of each point [B] over what was observed, in nats."""
        given = self.given() if given is None else given
        return expected(lambda q: self.gain(batch, q, given), q, draws)

    def gain(self, batch: Batch, q: Posterior, given: Any) -> Tensor:
        """log p(x | z) - KL[q || N(0, I)] of each point [B] over what was observed, at a draw of z."""
        return self.log_likelihood(batch, q.rsample(), given) - divergence(q)

    def log_likelihood(self, batch: Batch, z: Tensor, given: Any) -> Tensor:
        """log p(x | z) of each point [B] over what was observed."""
        p = self.decode(z, given, batch.aux)
        return masked_log_prob(p, self.as_float(batch.x), batch.mask).flatten(1).sum(1)

    @torch.no_grad()
    def frozen(self) -> Any:
        """What `decode` conditions on, as constants."""
        return self.given()

    @torch.no_grad()
    def nearest_known(self, batch: Batch) -> Posterior:
        """For unseen points: around the free latent of a training point that decodes to the nearest image."""
        assert isinstance(self.latents, Free)
        known = self.latents.mean.weight[:: math.ceil(self.num_data / 1000)]
        images = self.decode(known, self.given()).mean
        mask = None if batch.mask is None else batch.mask.flatten(1)
        chosen = nearest(self.as_float(batch.x).flatten(1), images.flatten(1), mask)
        return around(self.latents.kind, known[chosen])


def nearest(x: Tensor, images: Tensor, mask: Tensor | None) -> Tensor:
    """For each row of x [B, D] the nearest of the images [K, D], by the values that the mask [B, D] calls observed."""
    if mask is None:
        return torch.cdist(x, images).argmin(1)
    values = torch.where(mask, x, 0.0)
    return (mask.to(x) @ images.square().mT - 2 * values @ images.mT).argmin(1)  # less |x|^2, the same for all images
