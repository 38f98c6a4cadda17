"""A predictor small enough for the tests of the contract: y = w x + b + noise."""

import torch
from torch import Tensor, nn
from torch.distributions import Distribution

from src.data.batch import Batch
from src.data.facts import Facts
from src.models.base import Predictor, Terms
from src.models.likelihoods import Gaussian
from src.models.options import LearningOptions


class LinearGaussian(Predictor):
    """Linear regression with a Gaussian likelihood, fitted by the training like any other model."""

    def __init__(self, facts: Facts, learning: LearningOptions, noise: float = 0.1) -> None:
        super().__init__(facts, learning)
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(int(torch.tensor(facts.shape).prod()), facts.target.size))
        self.likelihood: Gaussian = Gaussian(noise)

    def objective(self, batch: Batch) -> Terms:
        """-(N / B) sum_n log p(y_n | x_n), for each target."""
        assert batch.y is not None
        f = self.net(self.as_float(batch.x))
        fit = self.likelihood.log_prob(batch.y.to(f), f).sum()
        return self.per_value({"fit": self.num_data / len(batch) * fit})

    def predict(self, x: Tensor, given: None = None) -> Distribution:
        """N(w x + b, noise)."""
        return self.likelihood.given(self.net(self.as_float(x)))
