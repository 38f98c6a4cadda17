"""Casale's GP-VAE: a VAE whose latents have a GP prior over objects and views, of low rank plus noise.

Casale, Dalca, Saglietti, Listgarten & Fusi, "Gaussian Process Prior Variational Autoencoders", NeurIPS 2018. The low
rank is that of Jazbec et al., "Scalable Gaussian Process Variational Autoencoders", AISTATS 2021, Appendix B.3.
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Independent, kl_divergence
from torch.nn import Parameter

from src.data.batch import Batch, Split
from src.data.facts import Facts
from src.data.module import DataModule
from src.gp.kernels import ObjectAngleKernel, covariance
from src.gp.linalg import solve_lower
from src.gp.low_rank import Moments, Taylor, Weights, expand, expected_log_prior, moments, weights_given
from src.gp.sparse import prior_factor
from src.models.auxiliary import ObjectAngle
from src.models.base import Terms
from src.models.gp_prior import GPPriorVAE
from src.models.likelihoods import Gaussian
from src.models.needs import OTHER_PRIOR, full_batch_problem, require
from src.models.options import GPPriorOptions, LearningOptions
from src.models.phases import Phase
from src.models.posterior import Posterior, gaussian, kl_to_prior
from src.runs.errors import UserError

NETS, GP = ("latents", "decoder", "likelihood"), ("kernel", "aux", "latent_noise")  # their parameters
LATENT_NOISE = 0.1  # alpha at the start


class CasaleGPVAE(GPPriorVAE):
    """z = f(object, view) + noise; the prior couples all N latents of a channel, K = V V^T + alpha I.

    q(z) is the encoder's. A row of V is the Kronecker product of an object's vector and the view's row of the Cholesky
    factor of the kernel of all views, so that V V^T is the kernel. `prior=exact` takes all points in one batch;
    `prior=taylor` takes mini-batches, with the prior expanded to first order at the start of each epoch.

    `vae_epochs` train the VAE with a standard normal prior, then `gp_epochs` the GP alone, the rest everything.
    """

    aux: ObjectAngle
    known_mean: Tensor  # [H, L], with known_scale q(w) of all training data
    known_scale: Tensor  # [L, H, H]

    def __init__(
        self,
        facts: Facts,
        vae: GPPriorOptions,
        learning: LearningOptions,
        prior: Literal["taylor", "exact"] = "taylor",
        vae_epochs: int | None = None,
        gp_epochs: int | None = None,
    ) -> None:
        super().__init__(facts, vae, learning)
        if prior not in ("taylor", "exact"):
            raise UserError(f"model.prior={prior} is neither taylor nor exact")
        if not isinstance(self.aux, ObjectAngle) or not has_views(self.kernel):
            raise UserError(
                "model=casale_gp_vae needs the kernel ObjectAngleKernel on inputs ObjectAngle, whose covariance has "
                "low rank; model=gp_vae and model=svgp_vae take any kernel"
            )
        self.prior, self.phases = prior, phases_of(vae_epochs, gp_epochs)
        self.latent_noise = Gaussian(LATENT_NOISE)
        self.features = self.aux.num_angles * self.aux.vectors.shape[1]  # H
        self.register_buffer("known_mean", torch.zeros(self.features, self.latent_dim))
        self.register_buffer("known_scale", torch.eye(self.features).repeat(self.latent_dim, 1, 1))  # the prior
        for name, shape in self.slopes().items():
            self.register_buffer(f"taylor_{name}", torch.zeros(shape))

    def slopes(self) -> dict[str, list[int]]:
        """The shapes of the expansion of the prior; `exact` needs none."""
        rows = self.num_data if self.prior == "taylor" else 0
        latents = [rows, self.latent_dim]
        return {"constant": [], "mean": latents, "variance": latents, "v": [rows, self.features], "noise": [1]}

    def check(self, facts: Facts) -> None:
        """The exact prior takes all points at once."""
        super().check(facts)
        if self.prior == "exact":
            require(full_batch_problem("model.prior=exact", facts.batch_size, self.num_data, OTHER_PRIOR))

    def initialise(self, data: DataModule) -> None:
        """Also expand the prior, which the first epoch does again."""
        super().initialise(data)
        self.expand_prior(data.train)

    def on_train_epoch_start(self) -> None:
        """Expand the prior around what the epoch before has learned."""
        super().on_train_epoch_start()
        data: DataModule = self.trainer.datamodule  # type: ignore[attr-defined]
        if self.phase.objective != "vae_bound":
            self.expand_prior(data.train)

    @torch.no_grad()
    def expand_prior(self, train: Split) -> None:
        """Keep value and gradients of the prior term of all training data. O(N H^2)."""
        if self.prior == "exact":
            return
        mean = torch.empty_like(self.get_buffer("taylor_mean"))
        variance, v = torch.empty_like(mean), torch.empty_like(self.get_buffer("taylor_v"))
        for chunk in train.chunks(1000):
            batch = chunk.to(self.device)
            q = self.recognise(batch)
            mean[batch.index], variance[batch.index], v[batch.index] = q.mean, q.variance, self.rows(batch).to(v)
        for name, value in expand(mean, variance, v, self.latent_noise.noise)._asdict().items():
            self.get_buffer(f"taylor_{name}").copy_(value)

    def objective(self, batch: Batch) -> Terms:
        """E_q[log p(x | z)] + E_q[log p(z)] - E_q[log q(z)] for each observed value."""
        q = self.recognise(batch)
        fit = self.likelihood.log_prob(self.as_float(batch.x), self.decoder(q.rsample()), batch.mask).sum()
        return self.bound(batch, {"reconstruction": fit, "prior": self.log_prior(batch, q), "entropy": entropy(q)})

    def vae_bound(self, batch: Batch) -> Terms:
        """E_q[log p(x | z)] - KL[q || N(0, I)] for each observed value: a VAE that knows nothing of objects."""
        q = self.recognise(batch)
        fit = self.likelihood.log_prob(self.as_float(batch.x), self.decoder(q.rsample()), batch.mask).sum()
        return self.bound(batch, {"reconstruction": fit, "kl": -kl_to_prior(q).sum()})

    def gp_bound(self, batch: Batch) -> Terms:
        """E_q[log p(z)] for each observed value, the part of the objective that depends on the GP."""
        return self.bound(batch, {"prior": self.log_prior(batch, self.recognise(batch))})

    def bound(self, batch: Batch, terms: dict[str, Tensor]) -> Terms:
        """The loss, minus the sum of these terms, for each observed value of the batch."""
        parts = {name: term / batch.observed for name, term in terms.items()}
        return Terms(-torch.stack(list(parts.values())).sum(), {name: part.detach() for name, part in parts.items()})

    def log_prior(self, batch: Batch, q: Independent) -> Tensor:
        """The batch's part of sum_l E_q[log N(z_l | 0, K)]."""
        v, noise = self.rows(batch), self.latent_noise.noise
        if self.prior == "exact":
            return expected_log_prior(q.mean, q.variance, v, noise)
        taylor = Taylor(*(self.get_buffer(f"taylor_{name}") for name in Taylor._fields))
        return taylor.at(batch.index, q.mean, q.variance, v.to(q.mean), noise)

    def rows(self, batch: Batch) -> Tensor:
        """The rows [B, H] of V, in float64."""
        return self.rows_at(self.aux(self.filled(batch), batch.aux))

    def rows_at(self, inputs: Tensor) -> Tensor:
        """The rows of V at inputs [X, P]: an object's vector times the view's row of L^-T k, L L^T = k(views, views).

        Their products are the kernel at the angles of the views, and its interpolation at others.
        """
        objects, angles = inputs[:, :-1].double(), inputs[:, -1:].double()
        steps = torch.arange(self.aux.num_angles, device=angles.device).unsqueeze(1)
        views = unit_object(2 * math.pi / self.aux.num_angles * steps.double())
        chol, _ = prior_factor(self.kernel, views)
        at = solve_lower(chol, covariance(self.kernel, views, unit_object(angles))).mT  # [X, views]
        return (objects.unsqueeze(2) * at.unsqueeze(1)).flatten(1)

    def posterior_at(self, inputs: Tensor) -> Independent:
        """f given q(z) of all training data, at inputs [X, P], as published; z has the latent noise besides."""
        v = self.rows_at(inputs)
        unexplained = (self.kernel(inputs.double(), diag=True) - v.square().sum(1)).clamp_min(0)
        return gaussian(*Weights(self.known_mean, self.known_scale).marginals(v, unexplained))

    @torch.no_grad()
    def finalise(self, data: DataModule) -> None:
        """Keep q(w) of all training data."""
        chunks = []
        for chunk in data.train.chunks(1000):
            batch = chunk.to(self.device)
            q = self.recognise(batch)
            chunks.append(moments(q.mean, q.variance, self.rows(batch)))
        total = Moments(*(torch.stack(parts).sum(0) for parts in zip(*chunks, strict=True)))
        mean, scale = weights_given(total, self.latent_noise.noise)
        self.known_mean.copy_(mean)
        self.known_scale.copy_(scale)

    def gain(self, batch: Batch, q: Posterior, given: None) -> Tensor:
        """log p(x | z) - KL[q || p(z | training data)] of each point [B]."""
        assert isinstance(q, Independent) and batch.aux is not None
        f = self.generate(batch.aux)
        known = gaussian(f.mean, f.variance + self.latent_noise.noise)
        return self.log_likelihood(batch, q.rsample(), given) - kl_divergence(q, known)

    def gp_parameters(self) -> list[Parameter]:
        """Kernel, latent noise and the objects' vectors; the noise of the pixels belongs to the nets."""
        return [parameter for name, parameter in self.named_parameters() if name.startswith(GP)]


def unit_object(angles: Tensor) -> Tensor:
    """Inputs [X, 2] of an object of length 1 at these angles [X, 1]."""
    return torch.cat([torch.ones_like(angles), angles], 1)


def entropy(q: Independent) -> Tensor:
    """-E_q[log q(z)] of all points."""
    return q.entropy().sum()


def has_views(kernel: torch.nn.Module) -> bool:
    """Whether the kernel is the product of objects and views, perhaps scaled."""
    return isinstance(getattr(kernel, "base_kernel", kernel), ObjectAngleKernel)


def phases_of(vae_epochs: int | None, gp_epochs: int | None) -> tuple[Phase, ...]:
    """Everything at once, or the VAE, then the GP, then everything."""
    if vae_epochs is None and gp_epochs is None:
        return (Phase(),)
    if vae_epochs is None:
        raise UserError("model.gp_epochs trains the GP of a trained VAE: set model.vae_epochs too")
    gp = Phase(gp_epochs, "gp_bound", GP)
    return (Phase(vae_epochs, "vae_bound", NETS), gp, *[Phase()] * (gp_epochs is not None))
