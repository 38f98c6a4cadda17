"""What every model shares: a model writes its objective and how it predicts, the rest is written once, here."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor
from torch.distributions import Distribution, Normal
from torch.nn import Parameter

from src.data.batch import Batch, Split
from src.data.facts import Facts
from src.models.diagnosis import Diagnosed
from src.models.learning import Learner, Terms
from src.models.likelihoods import Likelihood, masked
from src.models.metric import PulledBackMetric
from src.models.needs import needs_of, require, target_problem
from src.models.options import LatentOptions, LearningOptions, arguments
from src.models.posterior import Amortised, Free, Kind, Posterior
from src.models.refining import Refines
from src.models.warp import Warped, Warps
from src.runs.aliases import find_class
from src.runs.errors import UserError
from src.runs.specs import Spec, make

if TYPE_CHECKING:
    from src.data.module import DataModule

# What an encoder sees at a missing value: at 1 the holes drown the image, and q(z) collapses to the prior.
MISSING = 0.1


class Model(Diagnosed, Learner, ABC):
    """A model of a dataset with known facts.

    A checkpoint holds the spec and the facts as plain values, and all that prediction needs: it predicts in a fresh
    process, without config or data.
    """

    spec: Spec = {}  # noqa: RUF012  # what it was built from; set by `build`, which writes it whole

    def __init__(self, facts: Facts, learning: LearningOptions) -> None:
        super().__init__(learning)
        self.facts, self.num_data = facts, facts.num_train

    def check(self, facts: Facts) -> None:
        """Raise a UserError that names the reason if the model cannot be trained on such data."""
        self.check_learning(facts)

    def as_float(self, x: Tensor) -> Tensor:
        """Observations [B, *shape] in the model's precision; bytes 0..255 become 0..1."""
        x_float = x.to(self.dtype)
        return x_float.div_(255) if x.dtype == torch.uint8 else x_float  # in place: fresh memory costs more than this

    @property
    def num_values(self) -> int:
        """How many values the model explains: all that were observed, of which complete data have N D."""
        return self.facts.observed

    def per_value(self, terms: Mapping[str, Tensor], jitter: float = 0.0) -> Terms:
        """The loss, minus the sum of these terms in nats, for each value that the model explains."""
        parts = {name: term / self.num_values for name, term in terms.items()}
        loss = -torch.stack(list(parts.values())).sum()
        return Terms(loss, {**{name: part.detach() for name, part in parts.items()}, "jitter": jitter})

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Add what it takes to build the model again."""
        checkpoint["model"] = {"spec": self.spec, "facts": self.facts.plain()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the checkpoint's precision, so that a float64 model predicts in float64."""
        self.to(next(t.dtype for t in checkpoint["state_dict"].values() if t.is_floating_point()))

    @classmethod
    def load_from_checkpoint(  # type: ignore[override]  # any class loads any checkpoint
        cls, checkpoint_path: Any, map_location: Any = "cpu", **_: Any
    ) -> Any:
        """The model of a checkpoint, whatever its class, ready to predict; no code of the file is run."""
        checkpoint = torch.load(checkpoint_path, map_location=map_location, weights_only=True)
        model = build(checkpoint["model"]["spec"], Facts.from_plain(checkpoint["model"]["facts"]))
        model.on_load_checkpoint(checkpoint)
        model.load_state_dict(checkpoint["state_dict"])
        return model.to(map_location).eval()


class LatentModel(PulledBackMetric, Warps, Refines, Model, ABC):
    """A latent-variable model: `encode` gives q(z) of observations, `decode` the distribution of observations at z."""

    posteriors: ClassVar[tuple[Kind, ...]]  # the forms of q(z) that fit the model, the default first
    latents: Amortised | Free  # q(z), made by the subclass
    likelihood: Likelihood
    data_mean: Tensor  # [D]

    def __init__(self, facts: Facts, learning: LearningOptions, latent_dim: int) -> None:
        super().__init__(facts, learning)
        self.shape, self.latent_dim = tuple(facts.shape), latent_dim
        self.register_buffer("data_mean", torch.zeros(math.prod(self.shape)))

    @abstractmethod
    def decode(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Distribution:
        """The predictive distribution of observations [B, *shape] at z [B, Q].

        `given` is what `given()` returned; models that are told the auxiliary columns of a point also need `aux`.
        """

    def given(self, batch: Batch | None = None) -> Any:
        """What `decode` conditions on: these training points, or those of the checkpoint; here nothing."""
        return None

    def encode(self, batch: Batch, seen: bool) -> Posterior:
        """q(z) of a batch. `seen` tells whether its rows are those of the training split.

        Unseen points are refined with the decoder frozen if their latents are free, or if values are missing.
        """
        if self.latents.free and not seen:
            return self.refine(batch, self.nearest_known(batch))
        q = self.recognise(batch)
        return q if seen else self.refine_incomplete(batch, q)

    def recognise(self, batch: Batch) -> Posterior:
        """What the encoder, or the row of a free latent, says about z."""
        return self.encode_centred(*self.observed(batch), batch.index)

    def encode_centred(self, x: Tensor, mask: Tensor | None, index: Tensor) -> Posterior:
        """q(z) of rows [B, D] that `observed` gave."""
        return self.latents(self.encoder_input(x.unflatten(1, self.shape), mask), index)

    def held_to_prior(self, batch: Batch) -> Posterior | None:
        """q(z) of training points."""
        return self.recognise(batch)

    def noisy_values(self, batch: Batch) -> Tensor | None:
        """The observed values, less their training mean."""
        x, mask = self.observed(batch)
        return x if mask is None else x[mask]

    def encoder_input(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Observations [B, *shape]; if training data have holes, an encoder sees the mask as further channels."""
        if self.facts.complete:
            return x
        missing = torch.zeros_like(x) if mask is None else MISSING * (~mask).view_as(x).to(x)
        return torch.cat([x, missing], 1)

    def check(self, facts: Facts) -> None:
        """Free latents belong to stored rows; likelihood and warp must fit the values."""
        super().check(facts)
        self.check_warp(facts)
        if self.latents.free and facts.fresh:
            raise UserError("model.amortised=false needs the same data in every epoch: set dataset.fresh=false")
        self.likelihood.check(facts)

    def initialise(self, data: "DataModule") -> None:
        """Take the mean of the observed training data, and PCA scores for free latents."""
        super().initialise(data)
        total, count = (torch.zeros_like(self.data_mean, dtype=torch.float64) for _ in range(2))
        for chunk in data.train.chunks(4096):
            total += masked(self.modelled(chunk.x), chunk.mask).flatten(1).sum(0)
            count += len(chunk) if chunk.mask is None else chunk.mask.flatten(1).sum(0)
        self.data_mean.copy_(total / count.clamp_min(1))
        if isinstance(self.latents, Free):
            self.latents.start_at(self.principal_components(data.train))

    def principal_components(self, train: Split) -> Tensor:
        """Whitened PCA scores [N, Q] of the data, with axes from at most 10,000 points.

        They are where latents start, so missing values may count as the mean here.
        """
        from sklearn.decomposition import PCA

        pca = PCA(self.latent_dim, whiten=True, svd_solver="covariance_eigh")
        pca.fit(self.observed(train.draw(10_000, self.seed))[0])
        scores = self.data_mean.new_empty(len(train), self.latent_dim)
        for chunk in train.chunks(4096):
            scores[chunk.index] = torch.as_tensor(pca.transform(self.observed(chunk)[0]), dtype=scores.dtype)
        return scores

    def observed(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Centred rows [B, D], 0 where nothing was observed, and their mask [B, D] or None."""
        x = self.centred(batch.x)
        if batch.mask is None or batch.mask.all():
            return x, None
        mask = batch.mask.flatten(1)
        return masked(x, mask), mask

    def filled(self, batch: Batch) -> Tensor:
        """Observations [B, *shape] for an encoder, with the training mean where nothing was observed."""
        x = self.as_float(batch.x)
        return x if batch.mask is None else torch.where(batch.mask, x, self.data_mean.view(self.shape))

    def centred(self, x: Tensor) -> Tensor:
        """Observations as rows [B, D], warped or not, less their training mean."""
        x_float = self.modelled(x).flatten(1)
        return x_float.sub_(self.data_mean) if x.dtype == torch.uint8 else x_float - self.data_mean

    def uncentred(self, mean: Tensor) -> Tensor:
        """Centred rows [B, D] as what the model explains [B, *shape]."""
        return (mean + self.data_mean).unflatten(1, self.shape)

    def normal(self, mean: Tensor, variance: Tensor) -> Normal | Warped:
        """Observations [B, *shape] from centred means [B, D] and one variance per point [B] or per value [B, D]."""
        scale = variance.sqrt()
        shape = [1] * len(self.shape) if scale.ndim == 1 else self.shape
        return self.unwarped(Normal(self.uncentred(mean), scale.view(-1, *shape), validate_args=False))

    def row_parameters(self) -> list[Parameter]:
        """Free latents."""
        return list(self.latents.parameters()) if self.latents.free else []


class Predictor(Model, ABC):
    """A supervised model: `predict` gives the distribution of the target y at observations x."""

    likelihood: Likelihood

    @abstractmethod
    def predict(self, x: Tensor, given: Any = None) -> Distribution:
        """The predictive distribution of y at observations x [B, *shape]; `given` is what `given()` returned."""

    def given(self, batch: Batch | None = None) -> Any:
        """What `predict` conditions on: these training points, or those of the checkpoint; here nothing."""
        return None

    @property
    def num_values(self) -> int:
        """N classes, or N P real numbers."""
        return self.num_data * (self.facts.target.size if self.facts.target.kind == "real" else 1)

    def check(self, facts: Facts) -> None:
        """There must be a target of the model's kind, and complete observations."""
        super().check(facts)
        needs = needs_of(*(kind.__name__ for kind in type(self).__mro__))
        complete = facts.complete and facts.complete_test
        require(target_problem(type(self).__name__, needs, facts.target.kind, complete))


def build(spec: Spec, facts: Facts) -> Any:
    """The model that a flat spec describes, for data with these facts."""
    model_class = find_class(spec["_target_"])
    try:
        model = model_class(facts, **arguments(model_class, spec))
    except TypeError as error:
        raise UserError(f"{model_class.__name__}: {error}") from error
    model.spec = spec
    return model


def latents_of(options: LatentOptions, facts: Facts, kinds: tuple[Kind, ...], name: str) -> Amortised | Free:
    """q(z) by a net, or with one row per data point."""
    kind = options.posterior or kinds[0]
    if kind not in kinds:
        raise UserError(f"model.posterior={kind} does not fit {name}: {' or '.join(kinds)}")
    if not options.amortised:
        return Free(kind, options.latent_dim, facts.num_train)
    shape = encoder_shape(facts)
    return Amortised(kind, options.latent_dim, lambda outputs: make(options.encoder, shape=shape, outputs=outputs))


def encoder_shape(facts: Facts) -> tuple[int, ...]:
    """What an encoder sees of a point: its values and, if training data have holes, as many channels of a mask."""
    first, *others = facts.shape
    return (first if facts.complete else 2 * first, *others)
