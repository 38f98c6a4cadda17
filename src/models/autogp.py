"""AutoGP: sparse variational GPs of many inputs for any likelihood, with leave-one-out learning.

Krauth, Bonilla, Cutajar & Filippone, "AutoGP: Exploring the Capabilities and Limitations of Gaussian Process Models",
UAI 2017. Equation numbers are the paper's.
"""

import math
from typing import Any, Literal

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
from src.gp.mixture import divergence_bound
from src.gp.sparse import Whitened, add_jitter
from src.gp.training_marginals import batch_marginals
from src.models.base import Predictor, Terms
from src.models.likelihoods import Bernoulli, Gaussian, Likelihood, RegressionNetwork, likelihood_of, samples_of
from src.models.needs import NEEDS, inducing_problem, require, target_problem
from src.models.options import GPOptions, LearningOptions
from src.models.phases import Phase
from src.models.standardised import Standardiser, kernel_of_inputs
from src.runs.errors import UserError

LIKELIHOODS = {"class": ("categorical", "bernoulli"), "real": ("gaussian", "gprn")}  # by target, the default first
PHASE_EPOCHS = 50  # of the bound and of leave-one-out in a turn, as published
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
        check_options(share, covariance, objective, components=components, samples=samples)
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
        require(inducing_problem(self.inducing.shape[1], self.num_data))

    @torch.no_grad()
    def initialise(self, data: DataModule) -> None:
        """Take the moments of the data, and start the inducing inputs at the k-means of a part of them.

        All pixels of an image share one scale: scaled one by one, those that are almost always black would be loudest.
        """
        from sklearn.cluster import MiniBatchKMeans

        super().initialise(data)
        rows = (self.as_float(chunk.x).flatten(1) for chunk in data.train.chunks(4096))
        self.inputs.fit(rows, one_scale=self.facts.scale == "image")
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
        y = self.observed(batch)
        fit = self.likelihood.expected_log_prob(y.expand(len(mean), *y.shape), mean, variance).flatten(1).sum(1)  # [K]
        likelihood = self.num_data / len(batch) * (self.log_weights().exp() * fit).sum()
        return self.per_value({"likelihood": likelihood, "kl": -self.divergence()}, jitter)

    def leave_one_out(self, batch: Batch) -> Terms:
        """L_oo, Eq. 19: (N / B) sum_n -log E_q[1 / p(y_n | f_n)], from samples of f."""
        mean, variance, jitter = self.marginals(self.standardised(batch.x))
        f, y = samples_of(mean, variance, self.likelihood.samples), self.observed(batch)  # [S, K, B, P]
        each = self.likelihood.log_prob(y.expand(*f.shape[:2], *y.shape), f)  # of a class, or of each real number
        answer = leave_one_out(each.reshape(*f.shape[:3], -1).sum(-1), self.log_weights())
        terms = self.per_value({"loo": self.num_data / len(batch) * answer.log_density.sum()}, jitter)
        return Terms(terms.loss, {**terms.parts, "sample_size": answer.sample_size.detach().mean()})

    def predict(self, x: Tensor, given: None = None) -> Distribution:
        """p(y | x) in the units of the data."""
        mean, variance, _ = self.marginals(self.standardised(x))  # [K, B, P]
        p: Any = self.likelihood.predictive(mean, variance)
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
        if x.shape[1] <= FEW_INPUTS:
            sets, x = sets.double(), x.double()
        k_mm, k_mx = add_jitter(prior_stack(self.kernel, sets)), cross_stack(self.kernel, sets, x)
        mean, variance, jitter = batch_marginals(self.q(), k_mm, k_mx, variance_stack(self.kernel, x))
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

    def noisy_values(self, batch: Batch) -> Tensor | None:
        """The targets in the model's units, less their mean; classes have no noise."""
        if self.facts.target.kind != "real":
            return None
        y = self.observed(batch)
        return y - y.mean(0)

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
    require(target_problem("AutoGP", NEEDS["AutoGP"], facts.target.kind, complete=None))
    fitting = LIKELIHOODS[facts.target.kind]
    name = name or fitting[0]
    if name not in fitting:
        raise UserError(f"model.likelihood={name} does not fit the targets: use {' or '.join(fitting)}")
    if name == "bernoulli" and facts.target.size != 2:
        raise UserError(f"model.likelihood=bernoulli needs 2 classes, not {facts.target.size}: use categorical")
    if facts.target.kind == "real":
        return {"gaussian": Gaussian, "gprn": RegressionNetwork}[name](noise, outputs=facts.target.size)
    return likelihood_of(name, noise)


def check_options(share: str, covariance: str, objective: str, **numbers: int) -> None:
    """Raise a UserError that names the first option with a value that does not exist."""
    if share not in ("none", "inducing", "all"):
        raise UserError(f"model.share={share} is none of none, inducing, all")
    if covariance not in ("full", "diagonal"):
        raise UserError(f"model.covariance={covariance} is neither full nor diagonal")
    if objective not in ("elbo", "loo"):
        raise UserError(f"model.objective={objective} is neither elbo nor loo")
    for name, number in numbers.items():
        if number < 1:
            raise UserError(f"model.{name}={number} must be at least 1")


def phases_of(
    objective: str, bound_epochs: int | None, loo_epochs: int | None, likelihood: Likelihood
) -> tuple[Phase, ...]:
    """One phase for the bound, or Algorithm 1: epochs of the bound on everything and of L_oo on the hyperparameters."""
    if objective == "elbo":
        if bound_epochs is not None or loo_epochs is not None:
            raise UserError("model.bound_epochs and model.loo_epochs need model.objective=loo")
        return (Phase(),)
    hyperparameters = ("kernel", "inducing", *["likelihood"] * bool(list(likelihood.parameters())))
    bound, loo = (PHASE_EPOCHS if epochs is None else epochs for epochs in (bound_epochs, loo_epochs))
    return Phase(bound), Phase(loo, "leave_one_out", hyperparameters)


def in_units(p: Any, weights: Tensor, units: Standardiser) -> Normal | MixtureSameFamily:
    """The mixture over K components of predictions [K, B, P], from standardised targets to the units of the data."""
    chances, mean, sd = (part.movedim(0, -2).flatten(-2) for part in normals_of(p, weights))  # [B, P, all normals]
    location, unit = units.mean.unsqueeze(-1), units.scale.unsqueeze(-1)
    mean, sd = location + unit * mean, unit * sd
    if mean.shape[-1] == 1:
        return Normal(mean.squeeze(-1), sd.squeeze(-1), validate_args=False)
    normals = Normal(mean, sd, validate_args=False)
    return MixtureSameFamily(Categorical(chances, validate_args=False), normals, validate_args=False)


def normals_of(p: Any, weights: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Probabilities, means and sds [K, B, P, C] of the normals that K weighted predictions [K, B, P] are made of."""
    if isinstance(p, MixtureSameFamily):
        normals: Any = p.component_distribution
        return weights.view(-1, 1, 1, 1) * p.mixture_distribution.probs, normals.loc, normals.scale
    mean, sd = p.loc.unsqueeze(-1), p.scale.unsqueeze(-1)
    return weights.view(-1, 1, 1, 1).expand_as(mean), mean, sd
