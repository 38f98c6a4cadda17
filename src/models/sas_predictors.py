"""Stochastic active sets for supervised learning: y | x by a GP of the inputs, or of features that a net makes of them.

The supervised setting that the SAS paper names as future work. Real targets have Eq. 6 of the paper; classes have its
counterpart with a quadratic bound in place of the density (`src.gp.quadratic_bound`).
"""

import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from gpytorch.kernels import ScaleKernel
from torch import Tensor, nn
from torch.distributions import Categorical as ClassDistribution
from torch.distributions import Normal
from torch.nn.functional import one_hot

from src.data.batch import Batch
from src.data.facts import Facts
from src.data.module import DataModule
from src.gp import quadratic_bound
from src.gp.active_set import ActiveSet, condition, fixed_size
from src.gp.labels import Classes
from src.gp.quadratic_bound import Conditioned, Logits
from src.models.base import Predictor, Terms
from src.models.likelihoods import Categorical, Gaussian
from src.models.needs import active_set_problem, require
from src.models.options import LearningOptions
from src.models.standardised import Standardiser, kernel_of_features, kernel_of_inputs
from src.runs.errors import UserError
from src.runs.randomness import stream
from src.runs.specs import Spec, make

SCALE = 100.0  # the variance that the logits of classes start from: few points must be able to make a class certain


class SASPredictor(Predictor, ABC):
    """A GP given `active_size` training points, which a checkpoint carries with it.

    `features` is the number of outputs of the encoder, a deep kernel; None: the kernel takes the inputs themselves.
    Inputs are standardised; images for an encoder are only centred, since most of their pixels vary little.
    """

    active_x: Tensor  # [A, *shape]
    active_y: Tensor  # [A] or [A, P]

    def __init__(
        self,
        facts: Facts,
        learning: LearningOptions,
        kernel: Spec,
        encoder: Spec | None,
        active_set: int,
        features: int | None = None,
    ) -> None:
        super().__init__(facts, learning)
        if not isinstance(active_set, int):
            raise UserError(
                f"active_set={active_set} does not fit {type(self).__name__}: use active_set=a100 or another"
            )
        num_inputs = math.prod(facts.shape)
        self.inputs = Standardiser(num_inputs)
        self.encoder = encoder_of(encoder, facts, features)
        self.kernel = kernel_of_inputs(kernel, num_inputs) if features is None else kernel_of_features(kernel, features)
        self.active_size = active_set
        self.register_buffer("active_x", torch.zeros(active_set, *facts.shape))

    def check(self, facts: Facts) -> None:
        """The active set is a part of the batch."""
        super().check(facts)
        require(active_set_problem(self.active_size, facts.batch_size))

    def initialise(self, data: DataModule) -> None:
        """Take the moments of the inputs, and draw the active set that the checkpoint predicts from."""
        super().initialise(data)
        self.inputs.fit(self.as_float(chunk.x).flatten(1) for chunk in data.train.chunks(4096))
        if self.encoder is not None and self.facts.scale == "image":
            self.inputs.scale.fill_(1.0)
        active = data.train.draw(self.active_size, stream(self.seed, self.num_data))
        assert active.y is not None
        self.active_x.copy_(self.as_float(active.x))
        self.active_y.copy_(active.y)

    def features(self, x: Tensor) -> Tensor:
        """What the kernel takes, [B, Q]: standardised inputs, or what the encoder makes of them."""
        rows = self.inputs(self.as_float(x).flatten(1))
        return rows if self.encoder is None else self.encoder(rows.unflatten(1, self.facts.shape))

    def given(self, batch: Batch | None = None) -> Any:
        """The GP conditioned on training points: these, or those of the checkpoint."""
        if batch is None:
            return self.condition(self.features(self.active_x), self.active_y)
        assert batch.y is not None
        return self.condition(self.features(batch.x), batch.y)

    @abstractmethod
    def condition(self, z: Tensor, y: Tensor) -> Any:
        """The GP given targets y at features z [A, Q]."""


class SASRegression(SASPredictor):
    """Real targets: standardised, with one noise variance, so that all P share one covariance."""

    def __init__(
        self,
        facts: Facts,
        learning: LearningOptions,
        kernel: Spec,
        encoder: Spec | None,
        active_set: int,
        features: int | None = None,
        noise: float = 0.1,
    ) -> None:
        super().__init__(facts, learning, kernel, encoder, active_set, features)
        self.likelihood: Gaussian = Gaussian(noise)
        self.targets = Standardiser(facts.target.size)
        self.register_buffer("active_y", torch.zeros(active_set, facts.target.size))

    def initialise(self, data: DataModule) -> None:
        """Also take the moments of the targets."""
        super().initialise(data)
        assert data.train.y is not None
        self.targets.fit([data.train.y])

    def objective(self, batch: Batch) -> Terms:
        """Eq. 6 of the SAS paper with the targets in place of the observations."""
        assert batch.y is not None
        y, z = self.targets(batch.y.to(self.active_y)), self.features(batch.x)
        noise = self.likelihood.noise
        active, rest, jitter = fixed_size(y, z, self.kernel, noise, self.active_size, self.num_data)
        return self.per_value({"active": active, "rest": rest}, jitter)

    def noisy_values(self, batch: Batch) -> Tensor | None:
        """The targets in the model's units, less their mean."""
        assert batch.y is not None
        y = self.targets(batch.y.to(self.active_y))
        return y - y.mean(0)

    def condition(self, z: Tensor, y: Tensor) -> ActiveSet:
        """The GP given targets y [A, P] at features z [A, Q]."""
        given = condition(self.targets(y.to(self.active_y)), z, self.kernel, self.likelihood.noise)
        assert isinstance(given, ActiveSet)  # targets are complete
        return given

    def predict(self, x: Tensor, given: ActiveSet | None = None) -> Normal:
        """p(y | x, y_A) in the units of the data, Eq. 5."""
        mean, variance = (given or self.given()).predict(self.features(x))
        scale = self.targets.scale
        return Normal(self.targets.mean + scale * mean, scale * variance.sqrt().unsqueeze(1), validate_args=False)


class SASClassifier(SASPredictor):
    """P classes with softmax. The logits are GPs whose mean is the log frequency of each class."""

    log_frequencies: Tensor  # [P]

    def __init__(
        self,
        facts: Facts,
        learning: LearningOptions,
        kernel: Spec,
        encoder: Spec | None,
        active_set: int,
        features: int | None = None,
        iterations: int = 10,
    ) -> None:
        super().__init__(facts, learning, kernel, encoder, active_set, features)
        self.likelihood: Categorical = Categorical()
        self.iterations = iterations
        if isinstance(self.kernel, ScaleKernel):
            self.kernel.outputscale = SCALE
        self.register_buffer("active_y", torch.zeros(active_set, dtype=torch.long))
        self.register_buffer("log_frequencies", torch.zeros(facts.target.size))

    def initialise(self, data: DataModule) -> None:
        """Also take the frequencies of the classes; each counts once more, as some may not occur."""
        super().initialise(data)
        assert data.train.y is not None
        counts = data.train.y.bincount(minlength=self.facts.target.size) + 1.0
        self.log_frequencies.copy_((counts / counts.sum()).log())

    def objective(self, batch: Batch) -> Terms:
        """Eq. 6 with the quadratic bound on log p(y_A): bound + (N - A) / (B - A) sum_{n in rest} log p(y_n | y_A)."""
        assert batch.y is not None
        z = self.features(batch.x)
        active, rest = quadratic_bound.log_densities(
            self.one_hot(batch.y), z, self.kernel, Classes(), self.active_size, self.iterations, self.log_frequencies
        )
        weight = (self.num_data - self.active_size) / (len(batch) - self.active_size)
        return self.per_value({"active": active, "rest": weight * rest})

    def one_hot(self, y: Tensor) -> Tensor:
        """Class ids [B] as rows [B, P]."""
        return one_hot(y, self.facts.target.size).to(self.log_frequencies)

    def condition(self, z: Tensor, y: Tensor) -> Conditioned:
        """The GP given classes y [A] at features z [A, Q]."""
        given = quadratic_bound.condition(self.one_hot(y), z, self.kernel, Logits(Classes(), self.log_frequencies))
        assert isinstance(given, Conditioned)  # classes are complete
        return given

    def predict(self, x: Tensor, given: Conditioned | None = None) -> ClassDistribution:
        """p(y | x, y_A) = E[softmax(f)]."""
        mean, variance = (given or self.given()).predict(self.features(x))
        return ClassDistribution(logits=Classes().predictive(mean, variance), validate_args=False)


def encoder_of(spec: Spec | None, facts: Facts, features: int | None) -> nn.Module | None:
    """The net of a deep kernel, or None if there are no features."""
    if (spec is None) != (features is None):
        raise UserError(
            f"model.features={features} with model.encoder={spec and spec['_target_']}: an encoder makes features, so "
            "set both or neither (model.features=null takes the inputs themselves)"
        )
    return None if spec is None else make(spec, shape=facts.shape, outputs=features)
