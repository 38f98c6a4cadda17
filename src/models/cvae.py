"""CVAE: a VAE that is told the angle or the time of each image, the baseline of the GP-VAE papers.

Sohn, Lee & Yan, "Learning Structured Output Representation using Deep Conditional Generative Models", NeurIPS 2015.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.distributions import Independent, Normal

from src.data.module import Batch, DataModule
from src.data.moving_ball import FRAMES, MovingBall
from src.data.rotated_mnist import RotatedMNIST
from src.models.auxiliary import split_columns
from src.models.base import Decoder, Terms
from src.models.posterior import GaussianNet, Kind, gaussian, kl_to_prior
from src.runs.errors import UserError
from src.runs.specs import Spec, make

Condition = Literal["angle", "time"]


class CVAE(Decoder):
    """p(x | z, c) with z ~ N(0, I) and c known: what is encoded and decoded is (z, c), of which c has no spread."""

    posteriors: ClassVar[tuple[Kind, ...]] = ("diagonal",)
    known_mean: Tensor  # [objects, Q], of z averaged over an object's training images
    known_variance: Tensor  # [objects, Q]

    def __init__(
        self,
        shape: Sequence[int],
        num_data: int,
        condition: Condition,
        encoder: Spec,
        decoder: Spec,
        optimizer: Spec,
        latent_dim: int = 2,
        num_objects: int = 0,
        noise: float = 1e-2,
        seed: int = 0,
    ) -> None:
        self.condition, self.conditions, self.noise = condition, 2 if condition == "angle" else 1, noise
        super().__init__(shape, num_data, latent_dim, None, True, encoder, optimizer, seed)
        self.latent_dim = latent_dim + self.conditions
        self.decoder = make(decoder, shape=self.shape, inputs=latent_dim, conditions=self.conditions)
        self.register_buffer("known_mean", torch.zeros(num_objects, latent_dim))
        self.register_buffer("known_variance", torch.ones(num_objects, latent_dim))

    def make_latents(self, kind: Kind, encoder: Spec, amortised: bool) -> GaussianNet:
        """q(z | x, c)."""
        outputs = 2 * self.latent_dim
        return GaussianNet(make(encoder, shape=self.shape, outputs=outputs, conditions=self.conditions))

    def check(self, data: DataModule) -> None:
        """The data have what the model is told."""
        if data.train.aux is None:
            raise UserError("CVAE needs auxiliary inputs (an angle or a time), which these data do not have")
        if not isinstance(data, RotatedMNIST if self.condition == "angle" else MovingBall):
            raise UserError(
                f"model.condition={self.condition} is not what {type(data).__name__} has: "
                "angle for rotated_mnist, time for moving_ball"
            )
        if isinstance(data, RotatedMNIST) and len(data.objects) != len(self.known_mean):
            raise UserError(f"model.num_objects={len(self.known_mean)} must be the {len(data.objects)} of the dataset")

    def told(self, aux: Tensor | None) -> Tensor:
        """c [b, conditions]: sine and cosine of the angle, or the time as a part of the video's length."""
        _, value = split_columns(aux)
        columns = [value.sin(), value.cos()] if self.condition == "angle" else [value / FRAMES]
        return torch.stack(columns, 1).to(self.data_mean)

    def objective(self, batch: Batch) -> Terms:
        """E_q[log p(x | z, c)] - KL[q(z | x, c) || N(0, I)] for each observed value."""
        x, c = self.as_float(batch.x), self.told(batch.aux)
        q = self.latents(x, c)
        fit = self.decode(torch.cat([q.rsample(), c], 1)).log_prob(x).mean()
        kl = kl_to_prior(q).sum() / x.numel()
        return Terms(kl - fit, {"reconstruction": fit.detach(), "kl": -kl.detach()})

    def encode(self, x: Tensor, index: Tensor | None = None, aux: Tensor | None = None) -> Independent:
        """q(z | x, c), and c."""
        c = self.told(aux)
        q = self.latents(self.as_float(x), c)
        return with_certainty(q.mean, q.variance, c)

    def decode(self, z: Tensor, given: None = None) -> Normal:
        """p(x | z, c) at (z, c) [B, Q + conditions]."""
        latents, c = z.tensor_split([self.latent_dim - self.conditions], 1)
        return Normal(self.decoder(latents, c), self.noise**0.5, validate_args=False)

    def generate(self, aux: Tensor) -> Independent:
        """q(z, c) of views nobody has seen: z as in the training images of the object, averaged."""
        objects = split_columns(aux)[0].long()
        return with_certainty(self.known_mean[objects], self.known_variance[objects], self.told(aux))

    @torch.no_grad()
    def finalise(self, data: DataModule) -> None:
        """Keep mean and variance of the average, over an object's training images, of one sample of q(z) each."""
        if self.condition != "angle":
            return
        count, mean, variance = (torch.zeros_like(self.known_mean) for _ in range(3))
        for chunk in data.train.chunks(1000):
            batch = chunk.to(self.data_mean.device)
            objects = split_columns(batch.aux)[0].long()
            q = self.latents(self.as_float(batch.x), self.told(batch.aux))
            for total, values in ((count, torch.ones_like(q.mean)), (mean, q.mean), (variance, q.variance)):
                total.index_add_(0, objects, values)
        seen = count > 0
        self.known_mean[seen] = (mean / count)[seen]
        self.known_variance[seen] = (variance / count.square())[seen]


def with_certainty(mean: Tensor, variance: Tensor, c: Tensor) -> Independent:
    """A normal, joined by values that are known."""
    return gaussian(torch.cat([mean, c], 1), torch.cat([variance, torch.zeros_like(c)], 1))
