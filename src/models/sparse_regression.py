"""Sparse GP regression with a Gaussian likelihood, whose inducing inputs may be kept near the inputs.

Titsias, 2009 (SGPR, collapsed); Hensman, Fusi & Lawrence, 2013 (SVGP, mini-batches); Meng, Lee, Soper & Ray,
"Regularized Sparse Gaussian Processes" (the regulariser).
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Normal
from torch.nn import Parameter

from src.data.batch import Batch
from src.data.facts import Facts
from src.data.module import DataModule
from src.gp.bounds import collapsed_bound, optimal_q_of_bound, uncollapsed_bound
from src.gp.psi import Psi, sampled
from src.gp.regularisation import distance_to_nearest
from src.gp.sparse import SparseGP
from src.models.base import Predictor, Terms
from src.models.inducing import How, InducingPoints, weight_of
from src.models.likelihoods import Gaussian
from src.models.needs import MINI_BATCHES, full_batch_problem, inducing_problem, require
from src.models.options import GPOptions, LearningOptions
from src.models.standardised import Standardiser, kernel_of_inputs
from src.runs.errors import UserError

PART = 10_000  # points that the start is computed from


class SparseRegression(InducingPoints, Predictor):
    """P real targets with one kernel, one noise and one set of inducing inputs, so that they share a covariance.

    `bound=svi` learns q(u) from mini-batches; `bound=collapsed` uses the optimal one, on full batches. Inducing inputs
    start at the k-means of the inputs, or evenly spaced over an interval of a single input.
    """

    def __init__(
        self,
        facts: Facts,
        gp: GPOptions,
        learning: LearningOptions,
        bound: Literal["svi", "collapsed"] = "svi",
        num_inducing: int = 100,
        regularisation: float | Literal["inducing"] | None = None,
        inducing: How = "free",
        start: Literal["kmeans"] | Sequence[float] = "kmeans",
        standardise: bool = True,
    ) -> None:
        super().__init__(facts, learning)
        self.bound, self.start, self.standardise = bound, start, standardise
        num_inputs = math.prod(facts.shape)
        self.kernel = kernel_of_inputs(gp.kernel, num_inputs)
        self.likelihood: Gaussian = Gaussian(gp.noise)
        self.regularisation = weight_of(regularisation, num_inducing)
        self.inputs, self.targets = Standardiser(num_inputs), Standardiser(facts.target.size)
        self.place_inducing(torch.zeros(num_inducing, num_inputs), inducing)
        self.place_values(facts.target.size, learned=bound == "svi")

    def check(self, facts: Facts) -> None:
        """The collapsed bound has full batches, and there are points for all inducing inputs."""
        super().check(facts)
        if self.bound == "collapsed":
            require(full_batch_problem("model.bound=collapsed", facts.batch_size, self.num_data, MINI_BATCHES))
        require(inducing_problem(len(self.inducing), self.num_data))
        if self.start != "kmeans" and (
            self.inducing.shape[1] > 1 or len(self.start) != 2 or isinstance(self.start, str)
        ):
            raise UserError(
                f"model.start={self.start} is neither kmeans nor, for data with one input, an interval such as [0,1]"
            )

    @torch.no_grad()
    def initialise(self, data: DataModule) -> None:
        """Take the moments of the data, place the inducing inputs, and start q(u) at its optimum for a part of them."""
        super().initialise(data)
        if self.standardise:
            assert data.train.y is not None
            self.inputs.fit(self.as_float(chunk.x).flatten(1) for chunk in data.train.chunks(4096))
            self.targets.fit([data.train.y])
        part = data.train.draw(max(PART, len(self.inducing)), self.seed)
        self.inducing.copy_(self.centres(self.rows(part.x)) if self.start == "kmeans" else self.evenly_spaced())
        self.set_optimal(part)

    def evenly_spaced(self) -> Tensor:
        """Inducing inputs [M, 1] from one end of an interval to the other."""
        low, high = map(float, self.start)
        return self.inputs(torch.linspace(low, high, len(self.inducing)).unsqueeze(1).to(self.inducing))

    def centres(self, rows: Tensor) -> Tensor:
        """The k-means [M, D] of the inputs [n, D]."""
        from sklearn.cluster import KMeans

        return torch.as_tensor(KMeans(len(self.inducing), n_init=1, random_state=self.seed).fit(rows).cluster_centers_)

    def finalise(self, data: DataModule) -> None:
        """The collapsed bound's q(u), for prediction."""
        if self.bound == "collapsed":
            self.set_optimal(data.train.all().to(self.device))

    @torch.no_grad()
    def set_optimal(self, batch: Batch) -> None:
        """q(u) as all these points, and no others, would have it."""
        y, psi = self.observed(batch), self.psi(self.rows(batch.x))
        self.set_q_v(optimal_q_of_bound(y, psi, self.k_mm(), self.likelihood.noise))

    def objective(self, batch: Batch) -> Terms:
        """The bound on log p(y) of Titsias (collapsed) or Hensman et al., less lambda D (Meng et al., Eq. 1).

        D = sum_n min_m |x_n - z_m| in the units of the data; a batch counts N / B times.
        """
        x, y, noise = self.rows(batch.x), self.observed(batch), self.likelihood.noise
        terms: dict[str, Tensor] = {}
        if self.regularisation is not None:
            distance = distance_to_nearest(x * self.inputs.scale, self.inducing * self.inputs.scale)
            terms["regularisation"] = -self.regularisation * self.num_data / len(batch) * distance
        if self.bound == "collapsed":
            likelihood, jitter = collapsed_bound(y, self.psi(x), self.k_mm(), noise)
            return self.per_value({"likelihood": likelihood, **terms}, jitter)
        likelihood, kl, jitter = uncollapsed_bound(y, self.psi(x), self.k_mm(), noise, self.q_v(), self.num_data)
        return self.per_value({"likelihood": likelihood, "kl": -kl, **terms}, jitter)

    def noisy_values(self, batch: Batch) -> Tensor | None:
        """The targets in the model's units, less their mean."""
        y = self.observed(batch)
        return y - y.mean(0)

    def psi(self, x: Tensor) -> Psi:
        """The statistics of inputs [B, D] that are known: plain kernel matrices."""
        return sampled(self.kernel, x.unsqueeze(0), self.inducing)

    def rows(self, x: Tensor) -> Tensor:
        """Observations as the kernel takes them [B, D]."""
        return self.inputs(self.as_float(x).flatten(1))

    def observed(self, batch: Batch) -> Tensor:
        """Targets as the GP has them [B, P]."""
        assert batch.y is not None
        return self.targets(batch.y.to(self.q_mean))

    def given(self, batch: Batch | None = None) -> SparseGP:
        """The GP given q(u), which sums up all training points."""
        return self.sparse_gp(self.likelihood.noise)

    def predict(self, x: Tensor, given: SparseGP | None = None) -> Normal:
        """p(y | x) in the units of the data."""
        mean, variance = (given or self.given()).predict(self.rows(x))
        return self.in_units(mean, variance)

    def predict_function(self, x: Tensor, given: SparseGP | None = None) -> Normal:
        """p(f(x)): the same without the noise."""
        mean, variance = (given or self.given()).predict(self.rows(x))
        return self.in_units(mean, (variance - self.likelihood.noise).clamp_min(1e-10))

    def in_units(self, mean: Tensor, variance: Tensor) -> Normal:
        """Means [B, P] and variances [B] of standardised targets in the units of the data."""
        scale = self.targets.scale
        return Normal(self.targets.mean + scale * mean, scale * variance.sqrt().unsqueeze(1), validate_args=False)

    def gp_parameters(self) -> list[Parameter]:
        """All parameters belong to the GP."""
        return list(self.parameters())
