"""GP-VAE: a VAE whose latents are functions of auxiliary inputs, with the exact GP posterior.

Pearce, "The Gaussian Process Prior VAE for Interpretable Latent Dynamics from Pixels", AABI 2019.
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from gpytorch.likelihoods import GaussianLikelihood
from torch import Tensor
from torch.distributions import Independent, Normal
from torch.nn.functional import binary_cross_entropy_with_logits

from src.data.module import Batch, DataModule
from src.gp.exact import exact_posterior
from src.gp.kernels import covariance
from src.models.auxiliary import Auxiliary
from src.models.base import Decoder, Terms
from src.models.posterior import GaussianNet, Kind, gaussian
from src.runs.errors import UserError
from src.runs.specs import Spec, make

Likelihood = Literal["gaussian", "bernoulli"]
LARGEST_SET = 5000  # points that one exact GP takes: L matrices of N x N in float64


class GPVAE(Decoder):
    """z = f(aux), f_l ~ GP; the encoder gives a pseudo-observation of z for each image, q(z) is the GP given them all.

    One function a video, or one for all of a dataset that fits into a batch.
    """

    posteriors: ClassVar[tuple[Kind, ...]] = ("diagonal",)
    known_inputs: Tensor  # [N, P], the training points that unseen ones are predicted from
    known_y: Tensor  # [N, L]
    known_weight: Tensor  # [N, L], 0 before the end of training

    def __init__(
        self,
        shape: Sequence[int],
        num_data: int,
        kernel: Spec,
        encoder: Spec,
        decoder: Spec,
        aux: Spec,
        optimizer: Spec,
        latent_dim: int = 2,
        likelihood: Likelihood = "bernoulli",
        noise: float = 0.1,
        variance_range: Sequence[float] = (1e-6, 1e3),
        seed: int = 0,
    ) -> None:
        self.variance_range = variance_range
        super().__init__(shape, num_data, latent_dim, None, True, encoder, optimizer, seed)
        self.decoder = make(decoder, shape=self.shape, inputs=latent_dim)
        self.kernel = make(kernel)
        self.aux: Auxiliary = make(aux, shape=self.shape, latent_dim=latent_dim)
        self.likelihood = None if likelihood == "bernoulli" else GaussianLikelihood()
        if self.likelihood is not None:
            self.likelihood.noise = noise
        self.prepare_to_keep(0 if self.aux.grouped else num_data)

    def make_latents(self, kind: Kind, encoder: Spec, amortised: bool) -> GaussianNet:
        """The encoder's pseudo-observations."""
        return GaussianNet(make(encoder, shape=self.shape, outputs=2 * self.latent_dim), self.variance_range)

    def prepare_to_keep(self, num_points: int) -> None:
        """Buffers for the training points that prediction will need, which say nothing yet."""
        self.register_buffer("known_inputs", torch.zeros(num_points, self.aux.size))
        self.register_buffer("known_y", torch.zeros(num_points, self.latent_dim))
        self.register_buffer("known_weight", torch.zeros(num_points, self.latent_dim))

    def check(self, data: DataModule) -> None:
        """The data have the auxiliary inputs of the config, and the points of a function come together."""
        if data.train.aux is None:
            raise UserError("GPVAE needs auxiliary inputs (object and angle, or time), which these data do not have")
        self.aux.check(data)
        if not self.aux.grouped and (self.num_data > LARGEST_SET or data.batch_size < self.num_data):
            raise UserError(
                f"GPVAE takes the exact GP of all {self.num_data} points at once: at most {LARGEST_SET} points "
                "(dataset.max_train) in one batch (dataset.batch_size=full); model=svgp_vae takes more, in batches"
            )

    def initialise(self, data: DataModule) -> None:
        """Also start what the kernel's inputs are made of."""
        super().initialise(data)
        self.aux.initialise(data)

    def objective(self, batch: Batch) -> Terms:
        """Pearce's bound: E_q[log p(x | z)] + log Z(y, s2) - E_q[log N(z | y, s2)], the last two being -KL[q || GP]."""
        q, kl, jitter = self.posterior(batch.x, batch.aux)
        fit = self.log_likelihood(batch.x, q.rsample()) / batch.x.numel()
        kl = kl / batch.x.numel()
        return Terms(kl - fit, {"reconstruction": fit.detach(), "kl": -kl.detach(), "jitter": jitter})

    def log_likelihood(self, x: Tensor, z: Tensor) -> Tensor:
        """log p(x | z), summed."""
        if self.likelihood is None:
            return -binary_cross_entropy_with_logits(self.decoder(z), self.as_float(x), reduction="sum")
        return self.decode(z).log_prob(self.as_float(x)).sum()

    def posterior(self, x: Tensor, aux: Tensor | None) -> tuple[Independent, Tensor, float]:
        """q(z) of each point given all that share its function, the batch's part of the KL, and the jitter it took."""
        x = self.as_float(x)
        pseudo, inputs = self.latents(x), self.aux(x, aux)
        rows = self.aux.groups(aux, len(x), x.device)  # [G, T]
        weight = (rows >= 0).unsqueeze(-1) / pseudo.variance[rows]
        mean, variance, kl, jitter = self.infer(inputs.double(), rows, pseudo.mean[rows], weight)
        back = rows.flatten().argsort()[-len(x) :]  # where each row of the batch is, behind the absent ones
        return gaussian(mean.flatten(0, 1)[back], variance.flatten(0, 1)[back]), kl, jitter

    def infer(self, inputs: Tensor, rows: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor, float]:
        """Marginal means and variances [G, T, L] of the exact posterior, its KL to the prior, and no jitter."""
        at = inputs[rows]  # [G, T, P]
        k = covariance(self.kernel, at, at)
        q = exact_posterior(k, y, weight)
        mean, variance = q.marginals(k, k.diagonal(dim1=-2, dim2=-1))
        return mean, variance, q.kl(y, weight, mean, variance).sum(), 0.0

    def encode(self, x: Tensor, index: Tensor | None = None, aux: Tensor | None = None) -> Independent:
        """q(z) of a frame given those of its video that are here; of any other point given the training data.

        Those know a training point's own image; to them the image of an unseen point is added.
        """
        if self.aux.grouped:
            return self.posterior(x, aux)[0]
        x = self.as_float(x)
        known = self.predict(self.aux(x, aux))
        return known if index is not None else product(known, self.latents(x))

    def generate(self, aux: Tensor) -> Independent:
        """q(z | aux) of points whose images nobody has seen, given the training data."""
        return self.predict(self.aux(self.data_mean.expand(len(aux), -1), aux))

    def predict(self, inputs: Tensor) -> Independent:
        """The GP given the training data, at inputs [X, P]."""
        at, known = inputs.double(), self.known_inputs.double()
        q = exact_posterior(covariance(self.kernel, known, known), self.known_y, self.known_weight)
        return gaussian(*q.marginals(covariance(self.kernel, known, at), self.kernel(at, diag=True)))

    @torch.no_grad()
    def finalise(self, data: DataModule) -> None:
        """Keep the pseudo-observations of the training data."""
        if self.aux.grouped:
            return
        for chunk in data.train.chunks(1000):
            batch = chunk.to(self.data_mean.device)
            x = self.as_float(batch.x)
            pseudo = self.latents(x)
            self.known_inputs[batch.index] = self.aux(x, batch.aux)
            self.known_y[batch.index], self.known_weight[batch.index] = pseudo.mean, 1 / pseudo.variance

    def decode(self, z: Tensor, given: None = None) -> Normal:
        """p(x | z), for binary pixels the normal with their mean and variance."""
        answer = self.decoder(z)
        if self.likelihood is not None:
            return Normal(answer, self.likelihood.noise.sqrt(), validate_args=False)
        on = answer.sigmoid()
        return Normal(on, (on * (1 - on)).clamp_min(1e-3).sqrt(), validate_args=False)


def product(first: Independent, second: Independent) -> Independent:
    """The normal proportional to the product of two."""
    total = first.variance + second.variance
    mean = (first.mean * second.variance + second.mean * first.variance) / total
    return gaussian(mean, first.variance * second.variance / total)
