"""What every model shares: a model writes its objective and how it predicts, the rest is written once, here."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import gpytorch
import torch
from torch import Tensor
from torch.distributions import Distribution
from torch.nn import Parameter
from torch.optim import Optimizer

from src.data.batch import Batch, Split
from src.data.facts import Facts
from src.gp.linalg import NotPositiveDefiniteError
from src.models.lean import LeanModule
from src.models.likelihoods import Likelihood, masked_log_prob
from src.models.optimizers import Rates, optimizer_of, rates_left
from src.models.options import LatentOptions, LearningOptions, arguments
from src.models.phases import Phase, position
from src.models.posterior import Amortised, Free, Kind, Posterior, fit
from src.runs.errors import NumericalError, UserError
from src.runs.specs import Spec, find_class, make

if TYPE_CHECKING:
    from src.data.module import DataModule


class Terms(NamedTuple):
    """The loss to minimise and its named parts, in nats per observed value."""

    loss: Tensor
    parts: dict[str, Tensor | float]


class Model(LeanModule, ABC):
    """A model of a dataset with known facts.

    A checkpoint holds the spec and the facts as plain values, and all that prediction needs: it predicts in a fresh
    process, without config or data.
    """

    spec: Spec = {}  # noqa: RUF012  # what it was built from; set by `build`, which writes it whole
    phases: tuple[Phase, ...] = (Phase(),)
    num_steps: int | None = None  # of the whole training; None while nothing trains

    def __init__(self, facts: Facts, learning: LearningOptions) -> None:
        super().__init__()
        self.facts, self.num_data = facts, facts.num_train
        self.learning, self.seed = learning, learning.seed

    @abstractmethod
    def objective(self, batch: Batch) -> Terms:
        """The loss of one batch, whose points come in random order."""

    def check(self, facts: Facts) -> None:
        """Raise a UserError that names the reason if the model cannot be trained on such data."""
        if not facts.complete:
            raise UserError(f"{type(self).__name__} needs complete data, but values are missing (NaN)")

    def initialise(self, data: "DataModule") -> None:
        """Take what the model starts from; needed once before training."""

    def finalise(self, data: "DataModule") -> None:
        """Keep, once training has ended, what prediction needs of the training data."""

    def as_float(self, x: Tensor) -> Tensor:
        """Observations [B, *shape] in the model's precision; bytes 0..255 become 0..1."""
        x_float = x.to(self.dtype)
        return x_float.div_(255) if x.dtype == torch.uint8 else x_float  # in place: fresh memory costs more than this

    def per_value(self, terms: Mapping[str, Tensor], jitter: float = 0.0) -> Terms:
        """The loss, minus the sum of these terms in nats, for each of the N D observed values."""
        parts = {name: term / (self.num_data * math.prod(self.facts.shape)) for name, term in terms.items()}
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

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor | float]:
        """The objective of the phase with its parts; an error if it is not a number.

        Random numbers are a function of seed, step and rank, whatever happened before; an optimiser that evaluates a
        step several times sees the same ones each time.
        """
        self.seed_step()
        try:
            loss, parts = getattr(self, self.phase.objective)(batch)
        except NotPositiveDefiniteError as error:
            raise NumericalError(f"{error}; {self.describe_gp()}") from error
        if not math.isfinite(loss.item()):
            raise NumericalError(f"the loss is {loss.item()} at step {self.global_step}; {self.describe_gp()}")
        return {"loss": loss, **parts}

    @property
    def phase(self) -> Phase:
        """The phase that the training is in."""
        return self.phases[position(self.phases, self.current_epoch).phase if len(self.phases) > 1 else 0]

    def seed_step(self) -> None:
        """Seed all random numbers of this step."""
        seed = self.step_seed(self.seed, self.global_step, self.global_rank)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed keeps a stack trace per call without CUDA
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Set the rates of this step, a function of the step alone.

        A scheduler of torch's does the same through Lightning, for almost a hundredth of a step's time.
        """
        if self.num_steps is not None:
            left = rates_left(self.global_step / self.num_steps, self.learning.optimizer["schedule"])
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = left * group["initial_lr"]

    def configure_optimizers(self) -> Optimizer:
        """The optimiser of all phases, with the rates that it starts from."""
        self.num_steps = self.count_steps()
        return self.make_optimizer()

    def count_steps(self) -> int:
        """Of the whole training. Asking Lightning would make the loader before a checkpoint can set its position."""
        data = getattr(self.trainer, "datamodule", None)
        if data is None:
            return int(self.trainer.estimated_stepping_batches)
        return (self.trainer.max_epochs or 0) * len(data.train_dataloader())

    def make_optimizer(self) -> Optimizer:
        """The optimiser that trains the model's parameters, each at its own rate."""
        return optimizer_of(self.learning.optimizer, self.rates())

    def rates(self) -> Rates:
        """Which parameters learn at the rate of nets, which at that of the GP, and which are rows of free latents."""
        gp, rows = self.gp_parameters(), self.row_parameters()
        special = {id(p) for p in [*gp, *rows]}
        return Rates([p for p in self.parameters() if id(p) not in special], gp, rows)

    def gp_parameters(self) -> list[Parameter]:
        """What learns at the GP's rate: the hyperparameters of kernel and noise."""
        return [parameter for _, parameter, _ in gpytorch_parameters(self)]

    def row_parameters(self) -> list[Parameter]:
        """Parameters with one row per data point, of which a step touches only the rows of its batch."""
        return []

    def describe_gp(self) -> str:
        """The hyperparameters of kernel and noise as a person reads them."""
        values = [
            f"{name.replace('raw_', '')} = {constraint.transform(p).detach().flatten().tolist()}"
            for name, p, constraint in gpytorch_parameters(self)
        ]
        return "hyperparameters: " + ", ".join(values)


class LatentModel(Model, ABC):
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

        Free latents of unseen points are optimised with the decoder frozen.
        """
        if self.latents.free and not seen:
            return self.embed(batch)
        return self.encode_centred(self.centred(batch.x), batch.index)

    def encode_centred(self, x: Tensor, index: Tensor) -> Posterior:
        """q(z) of rows [B, D] that are centred already."""
        return self.latents(x.unflatten(1, self.shape), index)

    @torch.enable_grad()
    def embed(self, batch: Batch, steps: int = 200, lr: float = 0.05) -> Posterior:
        """q(z) of unseen points with the decoder frozen, from the known latent that decodes to the nearest image."""
        assert isinstance(self.latents, Free)
        x = self.as_float(batch.x)
        with torch.no_grad():
            given = self.given()
            known = self.latents.mean.weight[:: math.ceil(self.num_data / 1000)].detach()
            images = self.decode(known, given).mean
            start = known[
                nearest(x.flatten(1), images.flatten(1), None if batch.mask is None else batch.mask.flatten(1))
            ]

        def log_likelihood(z: Tensor) -> Tensor:
            return masked_log_prob(self.decode(z, given, batch.aux), x, batch.mask).flatten(1).sum(1)

        return fit(self.latents.kind, start, log_likelihood, steps, lr)

    def check(self, facts: Facts) -> None:
        """Free latents belong to stored rows; the likelihood must fit the values."""
        super().check(facts)
        if self.latents.free and facts.fresh:
            raise UserError("model.amortised=false needs the same data in every epoch: set dataset.fresh=false")
        self.likelihood.check(facts)

    def initialise(self, data: "DataModule") -> None:
        """Take the mean of the training data, and PCA scores for free latents."""
        total = torch.zeros_like(self.data_mean, dtype=torch.float64)
        for chunk in data.train.chunks(4096):
            total += self.as_float(chunk.x).flatten(1).sum(0)
        self.data_mean.copy_(total / len(data.train))
        if isinstance(self.latents, Free):
            self.latents.start_at(self.principal_components(data.train))

    def principal_components(self, train: Split) -> Tensor:
        """Whitened PCA scores [N, Q] of the data, with axes from at most 10,000 points."""
        from sklearn.decomposition import PCA

        pca = PCA(self.latent_dim, whiten=True, svd_solver="covariance_eigh")
        pca.fit(self.centred(train.draw(10_000, self.seed).x))
        scores = self.data_mean.new_empty(len(train), self.latent_dim)
        for chunk in train.chunks(4096):
            scores[chunk.index] = torch.as_tensor(pca.transform(self.centred(chunk.x)), dtype=scores.dtype)
        return scores

    def centred(self, x: Tensor) -> Tensor:
        """Observations as rows [B, D], less the training mean."""
        x_float = self.as_float(x).flatten(1)
        return x_float.sub_(self.data_mean) if x.dtype == torch.uint8 else x_float - self.data_mean

    def uncentred(self, mean: Tensor) -> Tensor:
        """Centred rows [B, D] as observations [B, *shape]."""
        return (mean + self.data_mean).unflatten(1, self.shape)

    def row_parameters(self) -> list[Parameter]:
        """Free latents."""
        return list(self.latents.parameters()) if self.latents.free else []


class Predictor(Model, ABC):
    """A supervised model: `predict` gives the distribution of the target y at observations x."""

    likelihood: Likelihood

    @abstractmethod
    def predict(self, x: Tensor) -> Distribution:
        """The predictive distribution of y at observations x [B, *shape]."""

    def check(self, facts: Facts) -> None:
        """There must be something to predict."""
        super().check(facts)
        if facts.target.kind == "none":
            raise UserError(f"{type(self).__name__} predicts a target, but the dataset has none")


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
    return Amortised(
        kind, options.latent_dim, lambda outputs: make(options.encoder, shape=facts.shape, outputs=outputs)
    )


def nearest(x: Tensor, images: Tensor, mask: Tensor | None) -> Tensor:
    """For each row of x [B, D] the nearest of the images [K, D], by the values that the mask [B, D] calls observed."""
    if mask is None:
        return torch.cdist(x, images).argmin(1)
    values = torch.where(mask, x, 0.0)
    return (mask.to(x) @ images.square().mT - 2 * values @ images.mT).argmin(1)  # less |x|^2, the same for all images


def gpytorch_parameters(module: torch.nn.Module) -> list[tuple[str, Parameter, Any]]:
    """Name, raw parameter and constraint of every GPyTorch hyperparameter in a module."""
    return [
        (f"{prefix}.{name}", parameter, owner.constraint_for_parameter_name(name))
        for prefix, owner in module.named_modules()
        if isinstance(owner, gpytorch.Module)
        for name, parameter in owner.named_parameters(recurse=False)
    ]
