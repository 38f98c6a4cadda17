"""Bayesian GP-LVM: inducing points and variational latents.

Titsias & Lawrence, 2010 (collapsed bound); Hensman, Fusi & Lawrence, 2013, and Bui & Turner, 2015 (mini-batches);
Meng, Lee, Soper & Ray, "Regularized Sparse Gaussian Processes" (inducing inputs that follow the latents).
"""

from typing import Any, ClassVar, Literal

import torch
from torch import Tensor
from torch.distributions import Distribution, Independent, MultivariateNormal
from torch.nn import Parameter

from src.data.batch import Batch, Split
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
from src.gp.linalg import add_diagonal, solve_lower
from src.gp.patterns import patterns_by_rows
from src.gp.psi import ClosedForm, Psi, has_closed_form, lazy_closed_form, sampled
from src.gp.regularisation import latent_divergence
from src.gp.sparse import SparseGP, Whitened, optimal_q, prior_factor, statistics
from src.models.base import LatentModel, Terms, latents_of
from src.models.inducing import How, InducingPoints, raw_scale, weight_of
from src.models.likelihoods import decoder_likelihood, masked, predicted
from src.models.metric import ExpectedMetric
from src.models.needs import MINI_BATCHES, full_batch_problem, inducing_problem, require
from src.models.options import DecoderOptions, LatentOptions, LearningOptions
from src.models.posterior import Free, Kind, Point, Posterior, kl_to_prior, rows_of
from src.runs.errors import UserError
from src.runs.specs import make

MOST_EXPONENTIALS = 10**10  # of a collapsed step on incomplete data: about a minute of one core
CHUNK = 2000  # points that a bound of all data is computed from at a time
STARTING_POINTS = 1000  # that q(u) of incomplete data starts from


class BayesianGPLVM(ExpectedMetric, InducingPoints, LatentModel):
    """All D outputs share M inducing inputs and the covariance of q(u), since their optimum is shared.

    `bound=svi` learns q(u) from mini-batches; `bound=collapsed` uses the optimal one, on full batches. Expectations
    under q(z) are exact for RBF kernels (`samples=0`) or estimated from `samples` draws, for any kernel.

    If values are missing, svi estimates expectations from at least one draw, and the collapsed bound is a sum over the
    patterns of what is missing, with a covariance of q(u) for each output.

    Bits have logits with a learned constant mean per output. Their expected log probability takes draws of z, as for
    missing values, and quadrature over f; this bound is svi's only.

    `regularisation` weighs how far the inducing inputs are from the latent means, as one Gaussian from another.
    `inducing=fixed` leaves the inducing inputs where they start.
    """

    posteriors: ClassVar[tuple[Kind, ...]] = ("diagonal", "full")

    def __init__(
        self,
        facts: Facts,
        latents: LatentOptions,
        gp: DecoderOptions,
        learning: LearningOptions,
        bound: Literal["svi", "collapsed"] = "svi",
        num_inducing: int = 100,
        samples: int = 0,
        regularisation: float | Literal["inducing"] | None = None,
        inducing: How | None = None,
    ) -> None:
        super().__init__(facts, learning, latents.latent_dim)
        self.latents = latents_of(latents, facts, self.posteriors, type(self).__name__)
        self.bound, self.samples = bound, samples
        self.kernel = widened(make(gp.kernel), latents.latent_dim)
        self.set_warp(gp.warp, gp.likelihood)
        self.likelihood: Any = decoder_likelihood(gp.likelihood, gp.noise, facts)
        if self.labels is not None:
            self.offset = Parameter(torch.zeros_like(self.data_mean))  # of the logits, [D]
        self.regularisation = weight_of(regularisation, num_inducing)
        self.place_inducing(torch.randn(num_inducing, latents.latent_dim), inducing or "free")
        learned, outputs = bound == "svi", self.data_mean.numel()
        self.place_values(outputs, learned, None if learned or facts.complete else outputs)

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
        if self.bound == "collapsed":
            require(full_batch_problem("model.bound=collapsed", facts.batch_size, self.num_data, MINI_BATCHES))
        if not self.samples and not has_closed_form(self.kernel):
            raise UserError("this kernel has no closed-form expectations: set model.samples=1 or more, or kernel=rbf")
        require(inducing_problem(len(self.inducing), self.num_data))
        if self.regularisation and len(self.inducing) <= self.latent_dim:
            raise UserError(
                f"model.regularisation needs a covariance of the inducing inputs: model.num_inducing="
                f"{len(self.inducing)} must exceed model.latent_dim={self.latent_dim}"
            )
        exponentials = facts.patterns * self.num_data * len(self.inducing) ** 2
        if self.bound == "collapsed" and not facts.complete and exponentials > MOST_EXPONENTIALS:
            raise UserError(
                f"model.bound=collapsed has a psi2 for each of the {facts.patterns} patterns of missing values, which "
                f"takes {exponentials:.0e} exponentials per step (at most {MOST_EXPONENTIALS:.0e}): model.bound=svi "
                "takes incomplete points at the cost of complete ones"
            )

    def initialise(self, data: DataModule) -> None:
        """Inducing inputs start at the k-means of the initial latents, q(u) at its optimum for a part of the data.

        The first latents of an encoder are all close to 0. They soon fill the space of the prior, and inducing inputs
        that started at 0 would stay behind, so these start at the k-means of draws from the prior.
        """
        from sklearn.cluster import KMeans

        super().initialise(data)
        if self.labels is not None:
            self.offset.data.copy_(self.labels.log_odds(self.data_mean, self.num_data))
        part = data.train.draw(5000, self.seed)
        draws = torch.randn(5000, self.latent_dim, generator=torch.Generator().manual_seed(self.seed))
        latents = self.gaussian(part).mean.detach() if isinstance(self.latents, Free) else draws
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
            self.set_q_v(self.optimal(x, q, noise))

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
        projection = solve_lower(chol, covariance(self.kernel, self.inducing.double(), z.double()))
        weight = mask / noise
        for outputs in torch.arange(x.shape[1], device=x.device).split(32):
            q = optimal_q(statistics(projection, x[:, outputs], weight[:, outputs]), 1.0, x.dtype)
            self.q_mean[:, outputs] = q.mean
        shared = statistics(projection, x[:, :1], weight.mean(1, keepdim=True))  # of as many values as are seen
        precision = add_diagonal(shared.precision.squeeze(0), 1.0)
        self.q_raw_scale.copy_(raw_scale(torch.linalg.cholesky(torch.linalg.inv(precision)).to(x)))

    def objective(self, batch: Batch) -> Terms:
        """The bound on log p(x): Titsias & Lawrence (collapsed), or Bui & Turner, Eq. 6, with KL[q(z) || N(0, I)].

        With a regulariser it is Meng et al., Eq. 7: the bound less lambda KL[q_Z || q_X].
        """
        (x, mask), q = self.observed(batch), self.gaussian(batch)
        terms = {"kl": -self.num_data / len(x) * kl_to_prior(q).sum()} | self.slope_term(x, mask)
        if self.regularisation is not None:
            terms["regularisation"] = -self.regularisation * self.distance_of_inducing(q.mean)
        if self.bound == "collapsed":
            likelihood, jitter = self.collapsed(x, mask, q)
            return self.per_value({"likelihood": likelihood, **terms}, jitter)
        bits = self.labels is not None
        likelihood, kl_u, jitter = self.bits_bound(batch, q) if bits else self.uncollapsed(x, mask, q)
        return self.per_value({"likelihood": likelihood, "kl_u": -kl_u, **terms}, jitter)

    def distance_of_inducing(self, means: Tensor) -> Tensor:
        """KL[q_Z || q_X] of a batch with latent means [B, Q]: Meng et al., Eq. 8 and 9.

        Free latents have q_X of all N means; those of an encoder, which would have to encode all data for it, that of
        the batch.
        """
        known = self.latents.mean.weight if isinstance(self.latents, Free) else None
        return latent_divergence(self.inducing, means, known)

    @torch.no_grad()
    def elbo(self, train: Split) -> float:
        """The bound on log p(x) of the training data without the regulariser, in nats per value."""
        size = self.num_data if self.bound == "collapsed" else CHUNK
        total = torch.zeros((), dtype=torch.float64)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.seed)
            for chunk in train.chunks(size):
                parts = self.objective(chunk.to(self.device)).parts
                bound = sum(parts[name] for name in ("likelihood", "kl_u", "kl", "warp") if name in parts)
                total += len(chunk) / self.num_data * bound
        return total.item()

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

    def given(self, batch: Batch | None = None) -> SparseGP:
        """The GP given q(u), which sums up all training points."""
        return self.sparse_gp(self.likelihood.noise if self.labels is None else self.q_mean.new_zeros(1))

    def decode(self, z: Tensor, given: SparseGP | None = None, aux: Tensor | None = None) -> Distribution:
        """The predictive distribution at z."""
        mean, variance = (given or self.given()).predict(z)
        if self.labels is None:
            return self.normal(mean, variance)
        return predicted(self.labels, mean + self.offset, variance, self.shape)

    def gp_parameters(self) -> list[Parameter]:
        """Inducing inputs, q(u) and the mean of logits belong to the GP."""
        logits = [] if self.labels is None else [self.offset]
        return [*super().gp_parameters(), *self.inducing_parameters(), *logits]
