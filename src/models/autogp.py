"""AutoGP: sparse variational GPs of many inputs for any likelihood, with leave-one-out learning.

Krauth, Bonilla, Cutajar & Filippone, "AutoGP: Exploring the Capabilities and Limitations of Gaussian Process Models",
UAI 2017. Equation numbers are the paper's.
"""

import math
from typing import Literal

import torch
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal
from torch.nn import Parameter
from torch.nn.functional import softplus

from src.data.batch import Batch
from src.data.facts import Facts
from src.data.module import DataModule
from src.gp.kernels import cross_stack, prior_stack, variance_stack
from src.gp.leave_one_out import leave_one_out
from src.gp.linalg import cholesky
from src.gp.mixture import divergence_bound
from src.gp.sparse import Whitened, add_jitter
from src.models.base import Predictor, Terms
from src.models.likelihoods import Bernoulli, Gaussian, Likelihood, RegressionNetwork, likelihood_of, samples_of
from src.models.options import GPOptions, LearningOptions
from src.models.phases import Phase
from src.models.standardised import Standardiser, kernel_of_inputs
from src.runs.errors import UserError

LIKELIHOODS = {
    "class": ("categorical", "bernoulli"),
    "real": ("gaussian", "gprn"),
}  # for each target, its default first
START_SCALE = 0.3  # of q(v), whose prior has 1
START_SPREAD = 0.1  # of the first means, which differ, so that components and weights can part
FEW_INPUTS = 64  # up to so many, the kernel of the data runs in float64, since its products cost little


class AutoGP(Predictor):
    """y | x with one GP per function of the likelihood, each through M inducing values.

    `share` tells what the GPs have in common: nothing, the inducing inputs, or `all`, the kernel too. The posterior of
    the whitened inducing values is a mixture of `components` Gaussians. `objective=loo` alternates the bound on
    everything with leave-one-out learning of kernel, inducing inputs and likelihood (Algorithm 1).
    """

    q_mean: Parameter  # [K, P, M], of the whitened inducing values
    q_raw_scale: Parameter  # [K, P, M, M] or, if diagonal, [K, P, M]: the unconstrained factor of their covariance
    q_raw_weights: Parameter  # [K]
    inducing: Parameter  # [P or 1, M, D], of standardised inputs

    def __init__(
        self,
        facts: Facts,
        gp: GPOptions,
        learning: LearningOptions,
        likelihood: str | None = None,
        share: Literal["none", "inducing", "all"] = "none",
        num_inducing: int = 200,
        components: int = 1,
        covariance: Literal["full", "diagonal"] = "full",
        samples: int = 10,
        objective: Literal["elbo", "loo"] = "elbo",
        bound_epochs: int | None = None,
        loo_epochs: int | None = None,
    ) -> None:
        super().__init__(facts, learning)
        inputs, outputs = math.prod(facts.shape), facts.target.size
        self.likelihood: Likelihood = target_likelihood(likelihood, facts, gp.noise)
        self.likelihood.samples = samples
        num_functions = self.likelihood.num_functions(outputs)
        self.num_sets = 1 if share == "all" else num_functions
        self.kernel = kernel_of_inputs(gp.kernel, inputs, None if share == "all" else num_functions)
        self.inducing = Parameter(torch.zeros(num_functions if share == "none" else 1, num_inducing, inputs))
        self.q_mean = Parameter(START_SPREAD * torch.randn(components, num_functions, num_inducing))
        raw_scale = torch.full(self.q_mean.shape, math.log(math.expm1(START_SCALE)))
        self.q_raw_scale = Parameter(raw_scale.diag_embed() if covariance == "full" else raw_scale)
        self.q_raw_weights = Parameter(torch.zeros(components))
        self.inputs = Standardiser(inputs)
        self.targets = Standardiser(outputs if facts.target.kind == "real" else 0)
        self.phases = phases_of(objective, bound_epochs, loo_epochs, self.likelihood)

    def check(self, facts: Facts) -> None:
        """There are targets that the likelihood explains, and enough points to place the inducing inputs."""
        super().check(facts)
        if self.inducing.shape[1] > self.num_data:
            raise UserError(
                f"model.num_inducing={self.inducing.shape[1]} must not exceed the {self.num_data} training points"
            )

    @torch.no_grad()
    def initialise(self, data: DataModule) -> None:
        """Take the moments of the data, and start the inducing inputs at the k-means of a part of them."""
        from sklearn.cluster import MiniBatchKMeans

        self.inputs.fit(self.as_float(chunk.x).flatten(1) for chunk in data.train.chunks(4096))
        if self.facts.target.kind == "real":
            assert data.train.y is not None
            self.targets.fit([data.train.y])
        num_inducing = self.inducing.shape[1]
        part = self.standardised(data.train.draw(max(10_000, num_inducing), self.seed).x).cpu()
        means = MiniBatchKMeans(num_inducing, n_init=1, random_state=self.seed).fit(part)
        self.inducing.copy_(torch.as_tensor(means.cluster_centers_))

    def objective(self, batch: Batch) -> Terms:
        """The bound on log p(y), Eq. 10: (N / B) sum_k pi_k sum_n E_k[log p(y_n | f_n)] - KL[q(v) || p(v)].

        With several components their divergence has an upper bound in its place.
        """
        mean, variance, jitter = self.marginals(self.standardised(batch.x))
        y = self.observed(batch).expand(len(mean), *self.observed(batch).shape)
        fit = self.likelihood.expected_log_prob(y, mean, variance).flatten(1).sum(1)  # [K]
        likelihood = self.num_data / len(batch) * (self.log_weights().exp() * fit).sum()
        return self.per_value({"likelihood": likelihood, "kl": -self.divergence()}, jitter)

    def leave_one_out(self, batch: Batch) -> Terms:
        """L_oo, Eq. 19: (N / B) sum_n -log E_q[1 / p(y_n | f_n)], from samples of f."""
        mean, variance, jitter = self.marginals(self.standardised(batch.x))
        f = samples_of(mean, variance, self.likelihood.samples)  # [S, K, B, P]
        log_likelihood = self.likelihood.log_prob(
            self.observed(batch).expand(*f.shape[:2], *self.observed(batch).shape), f
        )
        if log_likelihood.ndim == f.ndim:
            log_likelihood = log_likelihood.sum(-1)
        answer = leave_one_out(log_likelihood, self.log_weights())
        terms = self.per_value({"loo": self.num_data / len(batch) * answer.log_density.sum()}, jitter)
        return Terms(terms.loss, {**terms.parts, "sample_size": answer.sample_size.detach().mean()})

    def predict(self, x: Tensor, given: None = None) -> Distribution:
        """p(y | x) in the units of the data."""
        mean, variance, _ = self.marginals(self.standardised(x))  # [K, B, P]
        p = self.likelihood.predictive(mean, variance)
        weights = self.log_weights().exp()  # [K]
        if self.facts.target.kind == "real":
            return in_units(p, weights, self.targets)
        probs = torch.cat([1 - p.probs, p.probs], -1) if isinstance(self.likelihood, Bernoulli) else p.probs
        return Categorical(torch.einsum("k, k... -> ...", weights, probs), validate_args=False)

    def marginals(self, x: Tensor) -> tuple[Tensor, Tensor, float]:
        """Means and variances [K, B, P] of the functions at standardised inputs [B, D], and the jitter it took.

        O(P M^3 + P B M (M + D)).
        """
        sets = self.inducing.expand(self.num_sets, -1, -1)
        chol, jitter = cholesky(add_jitter(prior_stack(self.kernel, sets.double())))
        dtype = torch.float64 if x.shape[1] <= FEW_INPUTS else x.dtype
        k_mx = cross_stack(self.kernel, sets.to(dtype), x.to(dtype))
        mean, variance = self.q().batch_marginals(chol, k_mx, variance_stack(self.kernel, x))
        return self.by_component(mean), self.by_component(variance).clamp_min(1e-8), jitter

    def q(self) -> Whitened:
        """q(v), in which the functions of a set and all their components are outputs: [sets, M, K P / sets]."""
        mean = self.q_mean.unflatten(1, (self.num_sets, -1)).permute(1, 3, 0, 2).flatten(2)
        scale = self.scale().unflatten(1, (self.num_sets, -1)).transpose(0, 1).flatten(1, 2)
        return Whitened(mean, scale)

    def by_component(self, values: Tensor) -> Tensor:
        """Values [sets, B, K P / sets] of such outputs as [K, B, P]."""
        return values.unflatten(-1, (len(self.q_mean), -1)).permute(2, 1, 0, 3).flatten(2)

    def scale(self) -> Tensor:
        """The triangular factors [K, P, M, M] of the covariances of q(v)."""
        if self.q_raw_scale.ndim == self.q_mean.ndim:
            return softplus(self.q_raw_scale).diag_embed()
        diagonal = softplus(self.q_raw_scale.diagonal(dim1=-2, dim2=-1))
        return self.q_raw_scale.tril(-1) + diagonal.diag_embed()

    def log_weights(self) -> Tensor:
        """log pi [K]."""
        return self.q_raw_weights.log_softmax(0)

    def divergence(self) -> Tensor:
        """KL[q(v) || p(v)], or a bound on it if there are several components."""
        if len(self.q_mean) == 1:
            return self.q().kl().sum()
        return divergence_bound(self.log_weights(), self.q_mean, self.scale()).to(self.q_mean)

    def standardised(self, x: Tensor) -> Tensor:
        """Observations as standardised rows [B, D]."""
        return self.inputs(self.as_float(x).flatten(1))

    def observed(self, batch: Batch) -> Tensor:
        """Targets as the likelihood takes them: standardised reals [B, P], bits [B, 1] or classes [B]."""
        assert batch.y is not None
        if self.facts.target.kind == "real":
            return self.targets(batch.y.to(self.q_mean))
        return batch.y.to(self.q_mean).unsqueeze(-1) if isinstance(self.likelihood, Bernoulli) else batch.y

    def gp_parameters(self) -> list[Parameter]:
        """All parameters belong to the GPs."""
        return list(self.parameters())


def target_likelihood(name: str | None, facts: Facts, noise: float) -> Likelihood:
    """The likelihood of a target by its name, or the usual one."""
    fitting = LIKELIHOODS.get(facts.target.kind, ())
    if not fitting:
        raise UserError("model=autogp predicts a target, but the dataset has none")
    name = name or fitting[0]
    if name not in fitting:
        raise UserError(f"model.likelihood={name} does not fit the targets: use {' or '.join(fitting)}")
    if name == "bernoulli" and facts.target.size != 2:
        raise UserError(f"model.likelihood=bernoulli needs 2 classes, not {facts.target.size}: use categorical")
    if facts.target.kind == "real":
        return {"gaussian": Gaussian, "gprn": RegressionNetwork}[name](noise, outputs=facts.target.size)
    return likelihood_of(name, noise)


def phases_of(
    objective: str, bound_epochs: int | None, loo_epochs: int | None, likelihood: Likelihood
) -> tuple[Phase, ...]:
    """One phase for the bound, or Algorithm 1: epochs of the bound on everything and of L_oo on the hyperparameters."""
    if objective not in ("elbo", "loo"):
        raise UserError(f"model.objective={objective} is neither elbo nor loo")
    if objective == "elbo":
        if bound_epochs is not None or loo_epochs is not None:
            raise UserError("model.bound_epochs and model.loo_epochs need model.objective=loo")
        return (Phase(),)
    hyperparameters = ("kernel", "inducing", *["likelihood"] * bool(list(likelihood.parameters())))
    return Phase(bound_epochs or 50), Phase(loo_epochs or 50, "leave_one_out", hyperparameters)


def in_units(p: Normal | MixtureSameFamily, weights: Tensor, units: Standardiser) -> Normal | MixtureSameFamily:
    """The mixture over K components of predictions [K, B, P], from standardised targets to the units of the data."""
    if isinstance(p, MixtureSameFamily):
        normal, chances = p.component_distribution, p.mixture_distribution.probs
    else:
        normal, chances = (
            Normal(p.loc.unsqueeze(-1), p.scale.unsqueeze(-1), validate_args=False),
            torch.ones_like(p.loc),
        )
        chances = chances.unsqueeze(-1)
    chances, mean, sd = (
        part.movedim(0, -2).flatten(-2)  # [B, P, all components]
        for part in (weights.view(-1, 1, 1, 1) * chances, normal.loc, normal.scale)
    )
    mean, sd = units.mean.unsqueeze(-1) + units.scale.unsqueeze(-1) * mean, units.scale.unsqueeze(-1) * sd
    if mean.shape[-1] == 1:
        return Normal(mean.squeeze(-1), sd.squeeze(-1), validate_args=False)
    return MixtureSameFamily(
        Categorical(chances, validate_args=False), Normal(mean, sd, validate_args=False), validate_args=False
    )
