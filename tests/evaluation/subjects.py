"""Models whose answers are known by hand, made-up data, and small real models."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import Bernoulli, Distribution, MultivariateNormal, Normal, kl_divergence

from src.data.batch import Batch, Split, split_of
from src.data.facts import Facts
from src.data.module import DataModule
from src.evaluation.task import Subject
from src.models.base import build
from src.models.likelihoods import Bernoulli as Bits
from src.models.likelihoods import Gaussian, Likelihood, masked, masked_log_prob
from src.models.posterior import Amortised, Point, Posterior
from tests.configs import composed

SETTINGS: dict[str, Any] = {
    "active_sets": 3,
    "condition_on": 2,
    "exact_evidence": False,
    "evidence_points": None,
    "evidence_precision": "float64",
    "refine": None,
}


class MadeUp(DataModule):
    """Two given splits."""

    def __init__(self, train: Split, test: Split | None = None, batch_size: int | None = None) -> None:
        super().__init__(batch_size or "full")
        self.splits = train, test or train
        self.setup()

    def load(self) -> tuple[Split, Split]:
        return self.splits


class Known:
    """Encodes an observation as its first two values; decodes to (z, level), the level being what it is given.

    `encoded` lists what was encoded, as pairs of `seen` and the number of points. Latents of seen points are moved by
    `if_seen`, so that it shows whether `seen` was right.
    """

    latent_dim, sd, if_seen = 2, 0.5, 0.0
    device, dtype = torch.device("cpu"), torch.float32
    likelihood: Likelihood = Gaussian(0.25, learned=False)

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.encoded: list[tuple[bool, int]] = []

    def as_float(self, x: Tensor) -> Tensor:
        return x.float()

    def encode(self, batch: Batch, seen: bool) -> Posterior:
        self.encoded.append((seen, len(batch)))
        return Point(batch.x.flatten(1)[:, :2].to(self.dtype) + self.if_seen * seen)

    def given(self, batch: Batch | None = None) -> float:
        return 0.0 if batch is None else float(batch.x.mean())

    def decode(self, z: Tensor, given: float | None = None, aux: Tensor | None = None) -> Distribution:
        level = torch.full((len(z), 1), given or 0.0)
        return Normal(torch.cat([z, level], 1), self.sd)


class KnownActive(Known):
    """Conditions on the mean of its active set."""

    active_size = 1


class KnownBits(Known):
    """Each value is 1 with probability sigmoid(z_1)."""

    likelihood: Likelihood = Bits()

    def decode(self, z: Tensor, given: float | None = None, aux: Tensor | None = None) -> Bernoulli:
        return Bernoulli(logits=z[:, :1].expand(-1, 3))


class LinearDecoder(Known):
    """x = W z + b + noise with exact posteriors, so that everything about hidden values has a closed form.

    W has rows [[1, 0], [0, 1], [1, 1], ...]; `encode` gives q(z | observed values), whatever `seen` says.
    """

    dtype, sd = torch.float64, 0.5
    likelihood: Likelihood = Gaussian(0.25, learned=False)
    weight = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0], [2.0, -1.0], [0.5, 0.3]], dtype=torch.float64)
    offset = torch.tensor([0.0, 1.0, -1.0, 0.5, 2.0], dtype=torch.float64)

    def as_float(self, x: Tensor) -> Tensor:
        return x.double()

    def encode(self, batch: Batch, seen: bool) -> Posterior:
        return self.exact(batch)

    def exact(self, batch: Batch) -> MultivariateNormal:
        """p(z | observed values) of each point."""
        mask = torch.ones_like(batch.x, dtype=torch.bool) if batch.mask is None else batch.mask
        x = torch.where(mask, batch.x.double() - self.offset, 0.0)
        precision = torch.eye(2).double() + (self.weight.mT * mask.unsqueeze(1)) @ self.weight / self.sd**2
        mean = torch.linalg.solve(precision, (x @ self.weight).unsqueeze(-1) / self.sd**2).squeeze(-1)
        return MultivariateNormal(mean, precision_matrix=precision)

    def decode(self, z: Tensor, given: float | None = None, aux: Tensor | None = None) -> Normal:
        return Normal(z @ self.weight.mT + self.offset, self.sd)

    latents = Amortised("full", 2, lambda outputs: torch.nn.Identity())

    def recognise(self, batch: Batch) -> Posterior:
        """An encoder that has learned nothing: the prior."""
        return MultivariateNormal(torch.zeros(len(batch), 2).double(), torch.eye(2).double())

    def refine(self, batch: Batch, start: Posterior, given: Any = None) -> Posterior:
        return self.exact(batch)

    def lower_bound(self, batch: Batch, q: Posterior, given: Any = None, draws: int = 16) -> Tensor:
        """E_q[log p(x | z)] - KL[q || N(0, I)] over the observed values, in closed form."""
        assert isinstance(q, MultivariateNormal)
        p = self.decode(q.mean)
        spread = (self.weight @ q.covariance_matrix @ self.weight.mT).diagonal(dim1=-2, dim2=-1)
        fit = masked_log_prob(p, batch.x.double(), batch.mask) - masked(spread / (2 * self.sd**2), batch.mask)
        prior = MultivariateNormal(torch.zeros(2).double(), torch.eye(2).double())
        return fit.sum(1) - kl_divergence(q, prior)

    def marginal(self) -> tuple[Tensor, Tensor]:
        """Mean [D] and covariance [D, D] of an observation."""
        return self.offset, self.weight @ self.weight.mT + self.sd**2 * torch.eye(5).double()


def incomplete(num_data: int, kept: float = 0.5) -> Split:
    """Draws of the linear decoder's model with random hidden values."""
    generator = torch.Generator().manual_seed(0)
    mean, covariance = LinearDecoder.marginal(LinearDecoder)  # type: ignore[arg-type]
    noise = torch.randn(num_data, 5, generator=generator, dtype=torch.float64)
    x = mean + noise @ torch.linalg.cholesky(covariance).mT
    mask = torch.rand(num_data, 5, generator=generator) < kept
    return split_of(x, mask=mask, hidden=~mask)


def subject(model_class: type[Known], data: DataModule, seed: int = 0, **settings: Any) -> Subject:
    """A made-up model on made-up data."""
    return Subject(model_class(data.facts), data, SETTINGS | settings, seed)


def built(data: DataModule, *overrides: str, dtype: torch.dtype = torch.float32, seed: int = 0) -> Any:
    """A real model as the command line composes it, started on the data, ready to predict."""
    data.setup()
    torch.manual_seed(seed)
    model = build(composed(*overrides)["model"], data.facts)
    model.to(dtype).check(data.facts)
    model.initialise(data)
    model.finalise(data)
    return model.eval()


def noisy_curve(num_data: int = 60, outputs: int = 5) -> Tensor:
    """Points near a curve in D dimensions."""
    generator = torch.Generator().manual_seed(0)
    t = torch.linspace(-2, 2, num_data)[:, None]
    x = torch.cat([torch.sin((d + 1) * t / 2) for d in range(outputs)], 1)
    return x + 0.1 * torch.randn(x.shape, generator=generator)
