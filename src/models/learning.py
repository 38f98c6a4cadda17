"""How a model learns: the steps of a training and their random numbers, phases, optimisers and rates."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import gpytorch
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from src.data.batch import Batch
from src.data.facts import Facts
from src.gp.linalg import NotPositiveDefiniteError
from src.models.lean import LeanModule
from src.models.optimizers import Phased, Rates, check_optimizer, needs_full_batches, optimizer_of, rates_left
from src.models.options import LearningOptions
from src.models.phases import Phase, Switch, check_phases, position
from src.runs.errors import NumericalError, UserError
from src.runs.specs import Spec

if TYPE_CHECKING:
    from src.data.module import DataModule

FEW_VALUES = 10  # of a hyperparameter, that a message lists one by one


class Terms(NamedTuple):
    """The loss to minimise and its named parts, in nats per observed value."""

    loss: Tensor
    parts: dict[str, Tensor | float]


class Learner(LeanModule, ABC):
    """What Lightning trains: an objective, in phases, each with its own parameters and optimiser."""

    phases: tuple[Phase, ...] = (Phase(),)  # repeated until the end of the training
    initialised: bool = False  # whether it has what it starts from, by `initialise` or from a checkpoint
    num_steps: int | None = None  # of the whole training; None while nothing trains
    evaluated: int | None = None  # the step that `step_values` belongs to
    step_values: Mapping[str, Tensor | float]  # loss and parts at the parameters that the present step starts from

    def __init__(self, learning: LearningOptions) -> None:
        super().__init__()
        self.learning, self.seed = learning, learning.seed

    @abstractmethod
    def objective(self, batch: Batch) -> Terms:
        """The loss of one batch, whose points come in random order."""

    def initialise(self, data: "DataModule") -> None:
        """Take what the model starts from; Lightning's `fit` does it for a model that is new."""
        self.initialised = True

    def finalise(self, data: "DataModule") -> None:
        """Keep, once training has ended, what prediction needs of the training data; Lightning's `fit` ends with it."""

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **options: Any) -> Any:
        """As torch has it; a model with a state has what it starts from."""
        found = super().load_state_dict(state_dict, *args, **options)
        self.initialised = True
        return found

    def setup(self, stage: str) -> None:
        """Before a training: initialise a new model. Without our datamodule that is impossible, and an error."""
        if stage == "fit" and not self.initialised:
            self.initialise(self.training_data())
            self.train()  # all GPyTorch kernels share a module, which an earlier model may have set to eval mode

    def on_fit_end(self) -> None:
        """After a training: finalise, in eval mode as for any prediction."""
        if getattr(self.trainer, "datamodule", None) is not None:
            mode = self.training
            self.eval().finalise(self.training_data())
            self.train(mode)

    def training_data(self) -> "DataModule":
        """The datamodule that Lightning trains on."""
        data: DataModule | None = getattr(self.trainer, "datamodule", None)
        if data is None:
            raise UserError(
                f"{type(self).__name__} starts from its training data: pass trainer.fit(model, datamodule=data), or "
                "call model.initialise(data) first"
            )
        return data

    def check_learning(self, facts: Facts) -> None:
        """Raise a UserError if a phase or its optimiser cannot work on such data."""
        check_phases(self, self.phases)
        for spec in map(self.optimizer_spec, self.phases):
            check_optimizer(spec)
            if needs_full_batches(spec) and facts.fresh:
                raise UserError("L-BFGS needs the same data in every step: set dataset.fresh=false")
            if needs_full_batches(spec) and facts.batch_size < facts.num_train:
                raise UserError(
                    f"L-BFGS needs all {facts.num_train} points in every batch (dataset.batch_size=full), "
                    f"not {facts.batch_size}; optimizer=adam takes mini-batches"
                )

    def dequantised(self, batch: Batch) -> Batch:
        """What the objective sees of a training batch: here the batch itself."""
        return batch

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Tensor | float]:
        """The objective of the phase with its parts; an error if it is not a number.

        Random numbers are a function of seed, step and rank, whatever happened before; an optimiser that evaluates a
        step several times sees the same ones each time.
        """
        step = self.global_step
        self.seed_step(step)
        try:
            loss, parts = getattr(self, self.phase.objective)(self.dequantised(batch))
        except NotPositiveDefiniteError as error:
            raise NumericalError(f"{error}; {self.describe_gp()}") from error
        if not math.isfinite(loss.item()):
            raise NumericalError(f"the loss is {loss.item()} at step {step}; {self.describe_gp()}")
        if step != self.evaluated:  # an optimiser that evaluates a step several times starts with its first parameters
            self.evaluated, self.step_values = step, {"loss": loss.detach(), **parts}
        return {"loss": loss, **parts}

    @property
    def phase_number(self) -> int:
        """The number of the phase that the training is in."""
        return position(self.phases, self.current_epoch).phase if len(self.phases) > 1 else 0

    @property
    def phase(self) -> Phase:
        """The phase that the training is in."""
        return self.phases[self.phase_number]

    def on_train_start(self) -> None:
        """Enter the phase that a checkpoint was written in: an epoch that continues has no start of its own."""
        self.evaluated, self.switch = None, Switch(self.named_parameters())
        self.enter_phase()

    def on_train_epoch_start(self) -> None:
        """Enter the phase of this epoch."""
        self.enter_phase()

    def on_train_end(self) -> None:
        """Leave the last phase."""
        self.switch.leave()

    def enter_phase(self) -> None:
        """Train the parameters of the current phase, and no others, by its own optimiser."""
        self.switch.enter(self.phase)
        optimizer = self.trainer.optimizers[0]
        if isinstance(optimizer, Phased):
            optimizer.enter(self.phase_number)

    def seed_step(self, step: int) -> None:
        """Seed all random numbers of a step."""
        seed = self.step_seed(self.seed, step, self.global_rank)
        torch.default_generator.manual_seed(seed)  # torch.manual_seed keeps a stack trace per call without CUDA
        if self.device.type != "cpu":
            torch.get_device_module(self.device).manual_seed(seed)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        """Set the rates of this step, a function of the step alone.

        A scheduler of torch's does the same through Lightning, for almost a hundredth of a step's time.
        """
        schedule = self.optimizer_spec(self.phase)["schedule"]
        if self.num_steps is not None and schedule != "constant":
            left = rates_left(self.global_step / self.num_steps, schedule)
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
        """The optimiser of the model's parameters, each at its own rate; if there are several phases, one for each."""
        optimizers = [optimizer_of(self.optimizer_spec(phase), self.rates(phase)) for phase in self.phases]
        return optimizers[0] if len(optimizers) == 1 else Phased(optimizers)

    def optimizer_spec(self, phase: Phase) -> Spec:
        """What a phase is optimised by."""
        return self.learning.optimizer if phase.optimizer is None else phase.optimizer

    def rates(self, phase: Phase) -> Rates:
        """Which parameters learn at the rate of nets, which at that of the GP, and which are rows of free latents."""
        trained = {id(p): p for name, p in self.named_parameters() if phase.has(name)}
        gp, rows = ([p for p in kind if id(p) in trained] for kind in (self.gp_parameters(), self.row_parameters()))
        special = {id(p) for p in [*gp, *rows]}
        return Rates([p for p in trained.values() if id(p) not in special], gp, rows)

    def gp_parameters(self) -> list[Parameter]:
        """What learns at the GP's rate: the hyperparameters of kernel and noise."""
        return [parameter for _, parameter, _ in gpytorch_parameters(self)]

    def row_parameters(self) -> list[Parameter]:
        """Parameters with one row per data point, of which a step touches only the rows of its batch."""
        return []

    def describe_gp(self) -> str:
        """The hyperparameters of kernel and noise as a person reads them."""
        values = [
            f"{name.replace('raw_', '')} = {shown(constraint.transform(p).detach().flatten())}"
            for name, p, constraint in gpytorch_parameters(self)
        ]
        return "hyperparameters: " + ", ".join(values)


def shown(values: Tensor) -> str:
    """A few values one by one, many by their range."""
    if len(values) <= FEW_VALUES:
        return str(values.tolist())
    return f"{values.min().item():.3g} to {values.max().item():.3g} ({len(values)} values)"


def gpytorch_parameters(module: torch.nn.Module) -> list[tuple[str, Parameter, Any]]:
    """Name, raw parameter and constraint of every GPyTorch hyperparameter in a module."""
    return [
        (f"{prefix}.{name}", parameter, owner.constraint_for_parameter_name(name))
        for prefix, owner in module.named_modules()
        if isinstance(owner, gpytorch.Module)
        for name, parameter in owner.named_parameters(recurse=False)
    ]
