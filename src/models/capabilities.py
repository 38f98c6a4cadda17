"""What a model can do, for those who ask: the one way to find out is `isinstance(model, <capability>)`.

These protocols need no Lightning, so that a reader of results can know the tasks without loading it.
"""

from typing import Any, Protocol, runtime_checkable

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.distributions import Distribution, Independent

from src.data.batch import Batch, Split
from src.data.facts import Facts
from src.models.likelihoods import Likelihood
from src.models.posterior import Amortised, Free, Posterior
from src.models.warp import LogitWarp


@runtime_checkable
class HasLatents(Protocol):
    """Encodes observations to q(z) and decodes z to a distribution of observations."""

    facts: Facts
    latent_dim: int
    likelihood: Likelihood

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""

    @property
    def dtype(self) -> torch.dtype | str:
        """The precision of the parameters."""

    def as_float(self, x: Tensor) -> Tensor:
        """Observations in the model's precision."""

    def encode(self, batch: Batch, seen: bool) -> Posterior:
        """q(z) of a batch; `seen` tells whether its rows are those of the training split."""

    def decode(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Distribution:
        """The distribution of observations at z."""

    def given(self, batch: Batch | None = None) -> Any:
        """What `decode` conditions on."""


@runtime_checkable
class MayWarp(HasLatents, Protocol):
    """Models grey images as they are, or through a warp."""

    warp: LogitWarp | None


@runtime_checkable
class ConditionsOnPoints(HasLatents, Protocol):
    """Decodes given a number of training points, its active set."""

    active_size: int


@runtime_checkable
class CarriesPoints(HasLatents, Protocol):
    """Has some of its training points in its checkpoint."""

    def stored_active_set(self) -> Batch:
        """These points."""


@runtime_checkable
class HasEvidence(ConditionsOnPoints, Protocol):
    """Has log p(x | z) as the density of one Gaussian process, with the noise of its Gaussian likelihood."""

    kernel: Kernel

    def centred(self, x: Tensor) -> Tensor:
        """Observations as rows, less the training mean."""

    def slope_term(self, x: Tensor, mask: Tensor | None) -> dict[str, Tensor]:
        """What turns the density of N centred rows into that of intensities, if the model warps them."""

    def describe_gp(self) -> str:
        """The hyperparameters as a person reads them."""


@runtime_checkable
class HasMetric(HasLatents, Protocol):
    """Measures small steps in its latent space by what they change of f, the function behind observations."""

    def metric(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Tensor:
        """G [n, Q, Q] at z [n, Q]; `given` and `aux` are those of `decode`."""


@runtime_checkable
class Generates(HasLatents, Protocol):
    """Tells q(z) of points from their auxiliary columns alone."""

    def generate(self, aux: Tensor) -> Independent:
        """q(z | aux) of points that nobody has observed."""


@runtime_checkable
class Traced(Protocol):
    """Has numbers that are worth following through the training, cheap enough for every epoch."""

    def trace(self, data: Any) -> dict[str, float]:
        """These numbers now, by name."""


@runtime_checkable
class TracedClosely(Traced, Protocol):
    """Also has numbers that take a pass over the training data; `evaluation.watch_every` asks for them."""

    def trace_closely(self, data: Any) -> dict[str, float]:
        """These numbers now, by name."""


@runtime_checkable
class Refines(HasLatents, Protocol):
    """Has a bound of log p(x) for each point by itself, and finds the q(z) that is best for a point."""

    latents: Amortised | Free

    def recognise(self, batch: Batch) -> Posterior:
        """What the encoder says about z."""

    def refine(self, batch: Batch, start: Posterior, given: Any = None) -> Posterior:
        """The q(z) with the highest bound, from `start`, with the decoder frozen."""

    def lower_bound(self, batch: Batch, q: Posterior, given: Any = None, draws: int = 16) -> Tensor:
        """E_q[log p(x | z)] - KL[q(z) || p(z)] of the observed values of each point [B]."""


@runtime_checkable
class HasInducingLatents(HasLatents, Protocol):
    """Has inducing inputs among its latents, and a bound on log p(x) of its training data."""

    inducing: Tensor  # [M, Q]

    def distance_of_inducing(self, means: Tensor) -> Tensor:
        """KL[q_Z || q_X] between the inducing inputs and latent means [B, Q]."""

    def elbo(self, train: Split) -> float:
        """The bound on log p(x) of the training data, in nats per value."""


@runtime_checkable
class Predicts(Protocol):
    """Predicts targets from observations."""

    facts: Facts

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""

    def as_float(self, x: Tensor) -> Tensor:
        """Observations in the model's precision."""

    def predict(self, x: Tensor, given: Any = None) -> Distribution:
        """The distribution of y at observations x."""

    def given(self, batch: Batch | None = None) -> Any:
        """What `predict` conditions on."""


@runtime_checkable
class PredictsFunctions(Predicts, Protocol):
    """Also predicts the function behind the targets, which have noise."""

    def predict_function(self, x: Tensor, given: Any = None) -> Distribution:
        """The distribution of f at observations x."""


@runtime_checkable
class PredictsFromPoints(Predicts, Protocol):
    """Predicts given a number of training points, its active set."""

    active_size: int
