"""Bayesian GP-LVM: inducing points and variational latents.

Titsias & Lawrence, 2010 (collapsed bound); Hensman, Fusi & Lawrence, 2013, and Bui & Turner, 2015 (mini-batches).
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal
from torch.nn import Parameter
from torch.nn.functional import softplus

from src.data.batch import Batch
from src.data.facts import Facts
from src.data.module import DataModule
from src.gp.bounds import (
    Bound,
    bound_by_samples,
    collapsed_bound,
    incomplete_bound,
    optimal_q_of_bound,
    uncollapsed_bound,
)
from src.gp.kernels import covariance, widened
from src.gp.labels import Labels
from src.gp.linalg import add_diagonal
from src.gp.patterns import patterns_by_rows
from src.gp.psi import ClosedForm, Psi, has_closed_form, lazy_closed_form, sampled
from src.gp.sparse import SparseGP, Whitened, make_sparse_gp, optimal_q, prior_covariance, prior_factor, statistics
from src.models.base import LatentModel, Terms, latents_of
from src.models.likelihoods import decoder_likelihood, masked, predicted
from src.models.options import DecoderOptions, LatentOptions, LearningOptions
from src.models.posterior import Kind, Point, Posterior, kl_to_prior, rows_of
from src.runs.errors import UserError
from src.runs.specs import make

MOST_EXPONENTIALS = 10**10  # of a collapsed step on incomplete data: about a minute of one core
STARTING_POINTS = 1000  # that q(u) of incomplete data starts from


class BayesianGPLVM(LatentModel):
    """All D outputs share M inducing inputs and the covariance of q(u), since their optimum is shared.

    `bound=svi` learns q(u) from mini-batches; `bound=collapsed` uses the optimal one, on full batches. Expectations
    under q(z) are exact for RBF kernels (`samples=0`) or estimated from `samples` draws, for any kernel.

    If values are missing, svi estimates expectations from at least one draw, and the collapsed bound is a sum over the
    patterns of what is missing, with a covariance of q(u) for each output.

    Bits have logits with a learned constant mean per output. Their expected log probability takes draws of z, as for
    missing values, and quadrature over f; this bound is svi's only.
    """

    posteriors: ClassVar[tuple[Kind, ...]] = ("diagonal", "full")
    q_mean: Tensor  # [M, D], of the whitened inducing values
    q_raw_scale: Tensor  # [M, M] or [D, M, M], the unconstrained factor of their covariance

    def __init__(
        self,
        facts: Facts,
        latents: LatentOptions,
        gp: DecoderOptions,
        learning: LearningOptions,
        bound: Literal["svi", "collapsed"] = "svi",
        num_inducing: int = 100,
        samples: int = 0,
    ) -> None:
        super().__init__(facts, learning, latents.latent_dim)
        self.latents = latents_of(latents, facts, self.posteriors, type(self).__name__)
        self.bound, self.samples = bound, samples
        self.kernel = widened(make(gp.kernel), latents.latent_dim)
        self.set_warp(gp.warp, gp.likelihood)
        self.likelihood: Any = decoder_likelihood(gp.likelihood, gp.noise, facts)
        if self.labels is not None:
            self.offset = Parameter(torch.zeros_like(self.data_mean))  # of the logits, [D]
        self.inducing = Parameter(torch.randn(num_inducing, latents.latent_dim))
        q_mean, q_raw_scale = torch.zeros(num_inducing, self.data_mean.numel()), raw_scale(torch.eye(num_inducing))
        if bound == "svi":
            self.q_mean, self.q_raw_scale = Parameter(q_mean), Parameter(q_raw_scale)
        else:
            self.register_buffer("q_mean", q_mean)
            self.register_buffer(
                "q_raw_scale", q_raw_scale if facts.complete else q_raw_scale.repeat(len(q_mean.mT), 1, 1)
            )

    @property
    def labels(self) -> Labels | None:
        """What bits are, or None for real values."""
        labels: Labels | None = self.likelihood.labels
        return labels

    def check(self, facts: Facts) -> None:
        """The collapsed bound is not a sum over data points; closed forms exist for RBF kernels only."""
        super().check(facts)
        if self.labels is not None and (self.bound == "collapsed" or self.likelihood.name != "bernoulli"):
            raise UserError(
                f"model.likelihood={self.likelihood.name} does not fit BayesianGPLVM with model.bound={self.bound}: "
                "svi has gaussian or bernoulli, collapsed has gaussian"
            )
        if self.bound == "collapsed" and facts.batch_size < self.num_data:
            raise UserError(
                f"model.bound=collapsed needs all {self.num_data} points in every batch (dataset.batch_size=full), "
                f"not {facts.batch_size}; model.bound=svi takes mini-batches"
            )
        if not self.samples and not has_closed_form(self.kernel):
            raise UserError("this kernel has no closed-form expectations: set model.samples=1 or more, or kernel=rbf")
        if len(self.inducing) > self.num_data:
            raise UserError(f"model.num_inducing={len(self.inducing)} must not exceed N = {self.num_data}")
        exponentials = facts.patterns * self.num_data * len(self.inducing) ** 2
        if self.bound == "collapsed" and not facts.complete and exponentials > MOST_EXPONENTIALS:
            raise UserError(
                f"model.bound=collapsed has a psi2 for each of the {facts.patterns} patterns of missing values, which "
                f"takes {exponentials:.0e} exponentials per step (at most {MOST_EXPONENTIALS:.0e}): model.bound=svi "
                "takes incomplete points at the cost of complete ones"
            )

    def initialise(self, data: DataModule) -> None:
        """Inducing inputs start at the k-means of the initial latents, q(u) at its optimum for a part of the data."""
        from sklearn.cluster import KMeans

        super().initialise(data)
        if self.labels is not None:
            self.offset.data.copy_(self.labels.log_odds(self.data_mean, self.num_data))
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
        (x, mask), q = self.observed(batch), self.gaussian(batch)
        x, noise = (x, self.likelihood.noise) if self.labels is None else self.pseudo_targets(batch, self.labels)
        if mask is not None and self.bound == "svi":
            self.set_shared(x, mask, q.mean, noise)
        elif mask is not None:
            for rows, outputs in patterns_by_rows(mask):
                self.set_outputs(outputs, self.optimal(x[rows][:, outputs], rows_of(q, rows), noise))
        else:
            optimal = self.optimal(x, q, noise)
            self.q_mean.copy_(optimal.mean)
            self.q_raw_scale.copy_(raw_scale(optimal.scale.squeeze(0)))

    def pseudo_targets(self, batch: Batch, labels: Labels) -> tuple[Tensor, Tensor]:
        """Real numbers [n, D] that bits act as by the quadratic bound at their mean logit, and their noise."""
        bits = self.as_float(batch.x).flatten(1)
        mask = None if batch.mask is None else batch.mask.flatten(1)
        return labels.width * masked(bits - labels.mean(self.offset), mask), bits.new_tensor([labels.width])

    def optimal(self, x: Tensor, q: Posterior, noise: Tensor) -> Whitened:
        """The best q(u) given observations x [n, D] with latents q."""
        return optimal_q_of_bound(x, self.psi(q), self.k_mm(), noise)

    def set_outputs(self, outputs: Tensor, q: Whitened) -> None:
        """q(u) of those outputs that have one pattern of missing values."""
        self.q_mean[:, outputs] = q.mean
        self.q_raw_scale[outputs] = raw_scale(q.scale.squeeze(0))

    def set_shared(self, x: Tensor, mask: Tensor, z: Tensor, noise: Tensor) -> None:
        """A q(u) to start from: the best means given z [n, Q] of each output, and one covariance for all.

        O(n M^2 D), of at most `STARTING_POINTS` points.
        """
        x, mask, z = (part[:STARTING_POINTS] for part in (x, mask, z))
        chol, _ = prior_factor(self.kernel, self.inducing)
        k_mb, weight = covariance(self.kernel, self.inducing.double(), z.double()), mask / noise
        for outputs in torch.arange(x.shape[1], device=x.device).split(32):
            q = optimal_q(statistics(chol, k_mb, x[:, outputs], weight[:, outputs]), 1.0, x.dtype)
            self.q_mean[:, outputs] = q.mean
        shared = statistics(chol, k_mb, x[:, :1], weight.mean(1, keepdim=True))  # of as many values as are seen
        precision = add_diagonal(shared.precision.squeeze(0), 1.0)
        self.q_raw_scale.copy_(raw_scale(torch.linalg.cholesky(torch.linalg.inv(precision)).to(x)))

    def objective(self, batch: Batch) -> Terms:
        """The bound on log p(x): Titsias & Lawrence (collapsed), or Bui & Turner, Eq. 6, with KL[q(z) || N(0, I)]."""
        (x, mask), q = self.observed(batch), self.gaussian(batch)
        kl = self.num_data / len(x) * kl_to_prior(q).sum()
        if self.bound == "collapsed":
            likelihood, jitter = self.collapsed(x, mask, q)
            return self.per_value({"likelihood": likelihood, "kl": -kl} | self.slope_term(x, mask), jitter)
        bits = self.labels is not None
        likelihood, kl_u, jitter = self.bits_bound(batch, q) if bits else self.uncollapsed(x, mask, q)
        terms = {"likelihood": likelihood, "kl_u": -kl_u, "kl": -kl}
        return self.per_value(terms | self.slope_term(x, mask), jitter)

    def collapsed(self, x: Tensor, mask: Tensor | None, q: Posterior) -> tuple[Tensor, float]:
        """The bound at the optimal q(u); outputs with one pattern of missing values share one."""
        k_mm, noise = self.k_mm(), self.likelihood.noise
        if mask is None:
            return collapsed_bound(x, self.psi(q), k_mm, noise)
        parts = [
            collapsed_bound(x[rows][:, outputs], self.psi(rows_of(q, rows)), k_mm, noise)
            for rows, outputs in patterns_by_rows(mask)
        ]
        bounds, jitters = zip(*parts, strict=True)
        return torch.stack(bounds).sum(), max(jitters)

    def uncollapsed(self, x: Tensor, mask: Tensor | None, q: Posterior) -> Bound:
        """The bound at any q(u), from a batch."""
        noise = self.likelihood.noise
        if mask is None:
            return uncollapsed_bound(x, self.psi(q), self.k_mm(), noise, self.q_v(), self.num_data)
        assert not isinstance(q, Point)
        z = q.rsample((max(1, self.samples),))
        return incomplete_bound(x, mask, z, self.inducing, self.kernel, noise, self.q_v(), self.num_data)

    def bits_bound(self, batch: Batch, q: Posterior) -> Bound:
        """The bound at any q(u) of bits: samples of z, and quadrature over their logits."""
        assert not isinstance(q, Point)
        x, mask = self.as_float(batch.x).flatten(1), None if batch.mask is None else batch.mask.flatten(1)

        def expected(mean: Tensor, variance: Tensor) -> Tensor:
            fit: Tensor = self.likelihood.expected_log_prob(x, mean + self.offset, variance, mask)
            return fit.sum()

        z = q.rsample((max(1, self.samples),))
        return bound_by_samples(expected, z, self.inducing, self.kernel, self.q_v(), self.num_data)

    def gaussian(self, batch: Batch) -> Independent | MultivariateNormal:
        """q(z) of a batch."""
        q = self.encode(batch, seen=True)
        assert isinstance(q, Independent | MultivariateNormal)
        return q

    def psi(self, q: Posterior) -> Psi | ClosedForm:
        """Expectations of the kernel under q(z)."""
        assert isinstance(q, Independent | MultivariateNormal)
        if self.samples:
            return sampled(self.kernel, q.rsample((self.samples,)), self.inducing)
        return lazy_closed_form(self.kernel, q, self.inducing)

    def k_mm(self) -> Tensor:
        """The covariance of the inducing values."""
        return prior_covariance(self.kernel, self.inducing)

    def q_v(self) -> Whitened:
        """q of the whitened inducing values."""
        diagonal = softplus(self.q_raw_scale.diagonal(dim1=-2, dim2=-1))
        scale = self.q_raw_scale.tril(-1) + diagonal.diag_embed()
        return Whitened(self.q_mean, scale.unsqueeze(0) if scale.ndim == 2 else scale)

    def given(self, batch: Batch | None = None) -> SparseGP:
        """The GP given q(u), which sums up all training points."""
        noise = self.likelihood.noise if self.labels is None else self.q_mean.new_zeros(1)
        return make_sparse_gp(self.inducing, self.kernel, noise, self.q_v())

    def decode(self, z: Tensor, given: SparseGP | None = None, aux: Tensor | None = None) -> Distribution:
        """The predictive distribution at z."""
        mean, variance = (given or self.given()).predict(z)
        if self.labels is None:
            return self.normal(mean, variance)
        return predicted(self.labels, mean + self.offset, variance, self.shape)

    def gp_parameters(self) -> list[Parameter]:
        """Inducing inputs, q(u) and the mean of logits belong to the GP."""
        own = [p for p in (self.inducing, self.q_mean, self.q_raw_scale) if isinstance(p, Parameter)]
        return [*super().gp_parameters(), *own, *([] if self.labels is None else [self.offset])]


def raw_scale(scale: Tensor) -> Tensor:
    """The unconstrained form of a lower triangular factor: its diagonal through the inverse of softplus."""
    return scale.tril(-1) + scale.diagonal().expm1().log().diag()
