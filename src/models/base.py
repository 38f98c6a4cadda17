"""What every model shares: a model writes `objective` and `decode`, the rest is written once, here."""

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

import gpytorch
import torch
from pytorch_lightning import LightningModule
from torch import Tensor
from torch.distributions import Normal
from torch.nn import Parameter
from torch.optim import Optimizer, SparseAdam

from src.data.module import Batch, DataModule, Split
from src.gp.linalg import NotPositiveDefiniteError
from src.models.optimizers import WithSparseRows
from src.models.posterior import Amortised, Free, Kind, Posterior, fit
from src.runs.errors import NumericalError, UserError
from src.runs.randomness import stream
from src.runs.specs import Spec, make

FALL_FROM = {"cosine": 0.0, "late": 0.8, "constant": 1.0}  # the part of the training after which the rates fall


class Terms(NamedTuple):
    """The loss to minimise and its named parts, in nats per observed value."""

    loss: Tensor
    parts: dict[str, Tensor | float]


class Decoder(LightningModule, ABC):
    """A latent-variable model of N observations of a given shape, with q(z) amortised by a net or free.

    All arguments are plain values and stand in the checkpoint, as do the data mean and what prediction conditions on:
    `load_from_checkpoint(path)` predicts without config or data.
    """

    data_mean: Tensor  # [D]
    active_size: int | None = None  # how many training points `decode` conditions on; None where it needs none
    posteriors: ClassVar[tuple[Kind, ...]]  # the forms of q(z) that fit the model, the default first
    seeds: Mapping[int, int] = MappingProxyType({})  # of the next steps
    num_steps: int | None = None  # of the training; None where a model has an optimiser, and rates, of its own

    def __init__(
        self,
        shape: Sequence[int],
        num_data: int,
        latent_dim: int,
        posterior: Kind | None,
        amortised: bool,
        encoder: Spec,
        optimizer: Spec,
        seed: int,
    ) -> None:
        super().__init__()
        self.save_hyperparameters()
        kind = posterior or self.posteriors[0]
        if kind not in self.posteriors:
            raise UserError(
                f"model.posterior={kind} does not fit {type(self).__name__}: {' or '.join(self.posteriors)}"
            )
        self.shape, self.num_data, self.latent_dim, self.seed = tuple(shape), num_data, latent_dim, seed
        self.optimizer_spec = optimizer
        self.register_buffer("data_mean", torch.zeros(math.prod(shape)))
        self.latents = self.make_latents(kind, encoder, amortised)

    def make_latents(self, kind: Kind, encoder: Spec, amortised: bool) -> Amortised | Free:
        """q(z), by a net or with a row a data point."""
        if not amortised:
            return Free(kind, self.latent_dim, self.num_data)
        return Amortised(kind, self.latent_dim, lambda outputs: make(encoder, shape=self.shape, outputs=outputs))

    @abstractmethod
    def objective(self, batch: Batch) -> Terms:
        """The loss of one batch, which comes in random order."""

    @abstractmethod
    def decode(self, z: Tensor, given: Any = None) -> Normal:
        """The predictive distribution of the observations [B, *shape] at z [B, Q]."""

    def given(self, batch: Batch | None = None) -> Any:
        """What `decode` conditions on: these training points, or those of the checkpoint; here nothing."""
        return None

    def check(self, data: DataModule) -> None:
        """Refuse, with the reason, data that this model cannot be trained on."""
        if isinstance(self.latents, Free) and data.fresh:
            raise UserError("model.amortised=false needs the same data in every epoch: set dataset.fresh=false")

    def finalise(self, data: DataModule) -> None:
        """Keep, once training has ended, what prediction needs of the training data."""

    def encode(self, x: Tensor, index: Tensor | None = None, aux: Tensor | None = None) -> Posterior:
        """q(z) of images, seen (`index` gives their rows) or unseen: free latents of unseen images are optimised."""
        if isinstance(self.latents, Free) and index is None:
            return self.embed(x)
        return self.encode_centred(self.centred(x), index)

    def encode_centred(self, x: Tensor, index: Tensor | None) -> Posterior:
        """q(z) of rows [B, D] that are centred already."""
        return self.latents(x.unflatten(1, self.shape), index)

    @torch.enable_grad()
    def embed(self, x: Tensor, steps: int = 200, lr: float = 0.05) -> Posterior:
        """q(z) of unseen images with the decoder frozen, from the known latent that decodes to the nearest image."""
        assert isinstance(self.latents, Free)
        x = self.as_float(x)
        with torch.no_grad():
            given = self.given()
            known = self.latents.mean.weight[:: math.ceil(self.num_data / 1000)].detach()
            nearest = torch.cdist(x.flatten(1), self.decode(known, given).mean.flatten(1)).argmin(1)

        def log_likelihood(z: Tensor) -> Tensor:
            return self.decode(z, given).log_prob(x).flatten(1).sum(1)

        return fit(self.latents.kind, known[nearest], log_likelihood, steps, lr)

    def __setattr__(self, name: str, value: Any) -> None:
        """Lightning writes down every hook that it calls, 46 times a step; torch would look for a parameter first."""
        if name == "_current_fx_name":
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: Optimizer) -> None:
        """As torch does it, without its record for a profiler."""
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def per_value(self, terms: dict[str, Tensor], jitter: float = 0.0) -> Terms:
        """The loss, minus the sum of these terms in nats, for each of the N D observed values."""
        parts = {name: term / (self.num_data * self.data_mean.numel()) for name, term in terms.items()}
        loss = -torch.stack(list(parts.values())).sum()
        return Terms(loss, {**{name: part.detach() for name, part in parts.items()}, "jitter": jitter})

    def normal(self, mean: Tensor, variance: Tensor) -> Normal:
        """Pixels [B, *shape] from centred means [B, D] and one variance an observation [B]."""
        scale = variance.sqrt().view(-1, *[1] * len(self.shape))
        return Normal((mean + self.data_mean).unflatten(1, self.shape), scale, validate_args=False)

    def as_float(self, x: Tensor) -> Tensor:
        """Observations [B, *shape] in the model's precision; bytes 0..255 become 0..1."""
        x_float = x.to(self.data_mean.dtype)
        return x_float.div_(255) if x.dtype == torch.uint8 else x_float  # in place: fresh memory costs more than this

    def centred(self, x: Tensor) -> Tensor:
        """Observations as rows [B, D], less the training mean."""
        x_float = self.as_float(x).flatten(1)
        return x_float.sub_(self.data_mean) if x.dtype == torch.uint8 else x_float - self.data_mean

    def initialise(self, data: DataModule) -> None:
        """Take what the model starts from: the mean of the training data, and PCA for free latents."""
        total = torch.zeros_like(self.data_mean, dtype=torch.float64)
        for chunk in data.train.chunks(4096):
            total += self.as_float(chunk.x).flatten(1).sum(0)
        self.data_mean.copy_(total / len(data.train))
        if isinstance(self.latents, Free):
            self.latents.start_at(self.principal_components(data.train))

    def principal_components(self, train: Split) -> Tensor:
        """Whitened PCA scores [N, Q] of the data, with axes from at most 10,000 of them."""
        from sklearn.decomposition import PCA

        pca = PCA(self.latent_dim, whiten=True, svd_solver="covariance_eigh")
        pca.fit(self.centred(train.draw(10_000, self.seed).x))
        scores = self.data_mean.new_empty(len(train), self.latent_dim)
        for chunk in train.chunks(4096):
            scores[chunk.index] = torch.as_tensor(pca.transform(self.centred(chunk.x)), dtype=scores.dtype)
        return scores

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the checkpoint's precision, so that a float64 model predicts in float64."""
        self.to(checkpoint["state_dict"]["data_mean"].dtype)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Make the step's rates and random numbers a function of step, seed and rank, whatever happened before."""
        step = self.global_step
        if self.num_steps is not None:
            left = fallen(step / self.num_steps, FALL_FROM[self.optimizer_spec["schedule"]])
            for group in self.trainer.optimizers[0].param_groups:
                group["lr"] = left * group["initial_lr"]
        if step not in self.seeds:  # many at once, since one takes ten times as long between a step's matrices
            self.seeds = {later: stream(self.seed, later, self.global_rank) for later in range(step, step + 100)}
        seed = self.seeds[step]
        torch.default_generator.manual_seed(seed)  # torch.manual_seed keeps a stack trace a call where CUDA is not used
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor | float]:
        """One objective, returned with its parts; stop where it is not a number."""
        try:
            loss, parts = self.objective(batch)
        except NotPositiveDefiniteError as error:
            raise NumericalError(f"{error}; {self.describe_gp()}") from error
        if not math.isfinite(loss.item()):
            raise NumericalError(f"the loss is {loss.item()} at step {self.global_step}; {self.describe_gp()}")
        return {"loss": loss, **parts}

    def describe_gp(self) -> str:
        """The hyperparameters of kernel and noise as a person reads them."""
        values = [
            f"{name.replace('raw_', '')} = {constraint.transform(p).detach().flatten().tolist()}"
            for name, p, constraint in gpytorch_parameters(self)
        ]
        return "hyperparameters: " + ", ".join(values)

    def gp_parameters(self) -> list[Parameter]:
        """What learns at the GP's rate: the hyperparameters of kernel and noise."""
        return [parameter for _, parameter, _ in gpytorch_parameters(self)]

    def configure_optimizers(self) -> Optimizer:
        """The optimiser, with the rates that it starts from; `on_train_batch_start` lets them fall.

        A scheduler of torch's does the same through Lightning, for almost a hundredth of a step's time.
        """
        if self.optimizer_spec["schedule"] not in FALL_FROM:
            raise UserError(f"optimizer.schedule={self.optimizer_spec['schedule']} is none of {', '.join(FALL_FROM)}")
        self.num_steps = self.count_steps()
        optimizer = self.make_optimizer()
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
        return optimizer

    def count_steps(self) -> int:
        """Of the whole training. Asking Lightning would make the loader before a checkpoint can say where to go on."""
        data = getattr(self.trainer, "datamodule", None)
        if data is None:
            return int(self.trainer.estimated_stepping_batches)
        return (self.trainer.max_epochs or 0) * len(data.train_dataloader())

    def make_optimizer(self) -> Optimizer:
        """Nets learn at `lr`, kernel and noise at `gp_lr_factor` times it, free latents at `latent_lr_factor` times."""
        if not torch.cuda.is_available():  # as Lightning sets it, Adam looks for NVIDIA's library on disk in every step
            os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "0"
        spec = self.optimizer_spec
        gp = self.gp_parameters()
        rows = list(self.latents.parameters()) if isinstance(self.latents, Free) else []
        special = {id(p) for p in [*gp, *rows]}
        nets = [p for p in self.parameters() if id(p) not in special]
        groups = [{"params": nets, "lr": spec["lr"]}, {"params": gp, "lr": spec["lr"] * spec["gp_lr_factor"]}]
        dense: Optimizer = make(spec["algorithm"])([group for group in groups if group["params"]])
        if not rows:
            return dense
        return WithSparseRows(dense, SparseAdam(rows, lr=spec["lr"] * spec["latent_lr_factor"]))


def fallen(part: float, start: float) -> float:
    """What is left of a rate after a part of the training: all, then half a cosine down to nothing at the end."""
    return 1.0 if part <= start else 0.5 + 0.5 * math.cos(math.pi * (part - start) / (1 - start))


def gpytorch_parameters(module: torch.nn.Module) -> list[tuple[str, Parameter, Any]]:
    """Name, raw parameter and constraint of every GPyTorch hyperparameter in a module."""
    return [
        (f"{prefix}.{name}", parameter, owner.constraint_for_parameter_name(name))
        for prefix, owner in module.named_modules()
        if isinstance(owner, gpytorch.Module)
        for name, parameter in owner.named_parameters(recurse=False)
    ]
