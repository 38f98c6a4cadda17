"""Bayesian GP-LVM: inducing points and variational latents.

Titsias & Lawrence, 2010 (collapsed bound); Hensman, Fusi & Lawrence, 2013, and Bui & Turner, 2015 (mini-batches).
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal
from torch.nn import Parameter
from torch.nn.functional import softplus

from src.data.batch import Batch
from src.data.facts import Facts
from src.data.module import DataModule
from src.gp.bounds import collapsed_bound, optimal_q_of_bound, uncollapsed_bound
from src.gp.psi import ClosedForm, Psi, has_closed_form, lazy_closed_form, sampled
from src.gp.sparse import SparseGP, Whitened, make_sparse_gp, prior_covariance
from src.models.base import LatentModel, Terms, latents_of
from src.models.likelihoods import Gaussian
from src.models.options import GPOptions, LatentOptions, LearningOptions
from src.models.posterior import Kind, kl_to_prior
from src.runs.errors import UserError
from src.runs.specs import make


class BayesianGPLVM(LatentModel):
    """All D outputs share M inducing inputs and the covariance of q(u), since their optimum is shared.

    `bound=svi` learns q(u) from mini-batches; `bound=collapsed` uses the optimal one, on full batches. Expectations
    under q(z) are exact for RBF kernels (`samples=0`) or estimated from `samples` draws, for any kernel.
    """

    posteriors: ClassVar[tuple[Kind, ...]] = ("diagonal", "full")
    q_mean: Tensor  # [M, D], of the whitened inducing values
    q_raw_scale: Tensor  # [M, M], the unconstrained factor of their covariance

    def __init__(
        self,
        facts: Facts,
        latents: LatentOptions,
        gp: GPOptions,
        learning: LearningOptions,
        bound: Literal["svi", "collapsed"] = "svi",
        num_inducing: int = 100,
        samples: int = 0,
    ) -> None:
        super().__init__(facts, learning, latents.latent_dim)
        self.latents = latents_of(latents, facts, self.posteriors, type(self).__name__)
        self.bound, self.samples = bound, samples
        self.kernel = make(gp.kernel)
        self.likelihood: Gaussian = Gaussian(gp.noise)
        self.inducing = Parameter(torch.randn(num_inducing, latents.latent_dim))
        q_mean, q_raw_scale = torch.zeros(num_inducing, self.data_mean.numel()), raw_scale(torch.eye(num_inducing))
        if bound == "svi":
            self.q_mean, self.q_raw_scale = Parameter(q_mean), Parameter(q_raw_scale)
        else:
            self.register_buffer("q_mean", q_mean)
            self.register_buffer("q_raw_scale", q_raw_scale)

    def check(self, facts: Facts) -> None:
        """The collapsed bound is not a sum over data points; closed forms exist for RBF kernels only."""
        super().check(facts)
        if self.bound == "collapsed" and facts.batch_size < self.num_data:
            raise UserError(
                f"model.bound=collapsed needs all {self.num_data} points in every batch (dataset.batch_size=full), "
                f"not {facts.batch_size}; model.bound=svi takes mini-batches"
            )
        if not self.samples and not has_closed_form(self.kernel):
            raise UserError("this kernel has no closed-form expectations: set model.samples=1 or more, or kernel=rbf")
        if len(self.inducing) > self.num_data:
            raise UserError(f"model.num_inducing={len(self.inducing)} must not exceed N = {self.num_data}")

    def initialise(self, data: DataModule) -> None:
        """Inducing inputs start at the k-means of the initial latents, q(u) at its optimum for a part of the data."""
        from sklearn.cluster import KMeans

        super().initialise(data)
        part = data.train.draw(5000, self.seed)
        latents = self.gaussian(part).mean.detach()
        centres = KMeans(len(self.inducing), n_init=1, random_state=self.seed).fit(latents).cluster_centers_
        self.inducing.data.copy_(torch.as_tensor(centres))
        self.set_optimal(part)

    def finalise(self, data: DataModule) -> None:
        """The collapsed bound's q(u), for prediction."""
        if self.bound == "collapsed":
            self.set_optimal(data.train.draw(len(data.train), self.seed).to(self.device))

    @torch.no_grad()
    def set_optimal(self, batch: Batch) -> None:
        """q(u) as all these points, and no others, would have it."""
        psi, noise = self.psi(self.gaussian(batch)), self.likelihood.noise
        q = optimal_q_of_bound(self.centred(batch.x), psi, self.k_mm(), noise)
        self.q_mean.copy_(q.mean)
        self.q_raw_scale.copy_(raw_scale(q.scale.squeeze(0)))

    def objective(self, batch: Batch) -> Terms:
        """The bound on log p(x): Titsias & Lawrence (collapsed), or Bui & Turner, Eq. 6, with KL[q(z) || N(0, I)]."""
        x, q = self.centred(batch.x), self.gaussian(batch)
        kl = self.num_data / len(x) * kl_to_prior(q).sum()
        psi, k_mm, noise = self.psi(q), self.k_mm(), self.likelihood.noise
        if self.bound == "collapsed":
            likelihood, jitter = collapsed_bound(x, psi, k_mm, noise)
            return self.per_value({"likelihood": likelihood, "kl": -kl}, jitter)
        likelihood, kl_u, jitter = uncollapsed_bound(x, psi, k_mm, noise, self.q_v(), self.num_data)
        return self.per_value({"likelihood": likelihood, "kl_u": -kl_u, "kl": -kl}, jitter)

    def gaussian(self, batch: Batch) -> Independent | MultivariateNormal:
        """q(z) of a batch."""
        q = self.encode(batch, seen=True)
        assert isinstance(q, Independent | MultivariateNormal)
        return q

    def psi(self, q: Independent | MultivariateNormal) -> Psi | ClosedForm:
        """Expectations of the kernel under q(z)."""
        if self.samples:
            return sampled(self.kernel, q.rsample((self.samples,)), self.inducing)
        return lazy_closed_form(self.kernel, q, self.inducing)

    def k_mm(self) -> Tensor:
        """The covariance of the inducing values."""
        return prior_covariance(self.kernel, self.inducing)

    def q_v(self) -> Whitened:
        """q of the whitened inducing values."""
        diagonal = softplus(self.q_raw_scale.diagonal())
        return Whitened(self.q_mean, (self.q_raw_scale.tril(-1) + diagonal.diag()).unsqueeze(0))

    def given(self, batch: Batch | None = None) -> SparseGP:
        """The GP given q(u), which sums up all training points."""
        return make_sparse_gp(self.inducing, self.kernel, self.likelihood.noise, self.q_v())

    def decode(self, z: Tensor, given: SparseGP | None = None, aux: Tensor | None = None) -> Normal:
        """The predictive distribution at z."""
        return self.normal(*(given or self.given()).predict(z))

    def gp_parameters(self) -> list[Parameter]:
        """Inducing inputs and q(u) belong to the GP."""
        own = [p for p in (self.inducing, self.q_mean, self.q_raw_scale) if isinstance(p, Parameter)]
        return [*super().gp_parameters(), *own]


def raw_scale(scale: Tensor) -> Tensor:
    """The unconstrained form of a lower triangular factor: its diagonal through the inverse of softplus."""
    return scale.tril(-1) + scale.diagonal().expm1().log().diag()
