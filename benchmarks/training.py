"""Whole epochs on MNIST through Lightning beside a bare loop, and the loading of batches beside torchvision's."""

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from pytorch_lightning import Callback
from torch.utils.data import DataLoader

from benchmarks.examples import BATCH, composed, training_step
from benchmarks.rows import Row, faster, seconds, slower
from src.data.module import DataModule
from src.models.base import Model
from src.training.experiment import make_data, make_model
from src.training.history import History
from src.training.mixed_precision import MixedLayers
from src.training.trainer import make_trainer

EPOCHS = 8


class BareSteps(Callback):
    """Before every step of Lightning's, one of the bare loop on a model of its own; the seconds of both, by epoch."""

    def __init__(self, bare: Iterator[None]) -> None:
        self.bare = bare
        self.bare_seconds: list[float] = []
        self.lightning_seconds: list[float] = []
        self.ended = perf_counter()

    def on_train_epoch_start(self, *_: Any) -> None:
        """Of another epoch, to which what ended the one before is counted, its checkpoint included."""
        self.bare_seconds.append(0.0)
        self.lightning_seconds.append(0.0)

    def on_train_batch_start(self, *_: Any) -> None:
        """What passed since the last bare step was Lightning's."""
        started = perf_counter()
        self.lightning_seconds[-1] += started - self.ended
        next(self.bare)
        self.ended = perf_counter()
        self.bare_seconds[-1] += self.ended - started


def epochs() -> Iterator[Row]:
    """The first epoch warms up."""
    trainer_options = [f"trainer.max_epochs={EPOCHS}", "trainer.enable_progress_bar=false"]
    for name in ("sas", "bayesian_sas"):
        config = composed(f"model={name}", "dataset=mnist", "active_set=a200", *trainer_options)
        data = make_data(config)
        model, other = (started(config, data) for _ in range(2))
        callback = BareSteps(bare_steps(other, data))
        with TemporaryDirectory() as folder:
            trainer = make_trainer(config, History(Path(folder) / "history.csv"), Path(folder), callback)
            trainer.fit(model, datamodule=data)
        ours, bare = callback.lightning_seconds[1:], callback.bare_seconds[1:]
        yield slower(f"{name} epoch on MNIST, A=200, by Lightning", "the same in a bare loop", ours, bare, 1.05)


def started(config: dict[str, Any], data: DataModule) -> Model:
    """A model that is ready to train."""
    model = make_model(config, data)
    model.initialise(data)
    model.train()
    return model


def bare_steps(model: Model, data: DataModule) -> Iterator[None]:
    """Objective, backward and optimiser on one batch after the other, and nothing else."""
    optimizer, loader = model.make_optimizer(), data.train_dataloader()
    while True:
        for batch in loader:
            optimizer.zero_grad()
            model.objective(batch).loss.backward()
            optimizer.step()
            yield


def mixed_precision() -> Iterator[Row]:
    """A step of the exact GP-VAE on the moving ball, whose time is in the layers of its nets."""
    config = composed("model=gp_vae", "dataset=moving_ball")
    data = make_data(config)
    mixed, full = (started(config, data) for _ in range(2))
    MixedLayers("bf16-mixed", "cpu").convert_module(mixed)
    batch = next(iter(data.train_dataloader()))
    ours, other = seconds(*(training_step(model, lambda: batch) for model in (mixed, full)), repeats=25)
    yield slower("gp_vae step, moving ball, bf16-mixed", "the same in float32", ours, other, 0.5)


def loading() -> Iterator[Row]:
    """An epoch of float batches of MNIST."""
    from torchvision.datasets import MNIST
    from torchvision.transforms import ToTensor

    config = composed("model=sas", "dataset=mnist")
    data = make_data(config)
    model = make_model(config, data)
    theirs = DataLoader(MNIST(config["paths"]["data"], transform=ToTensor()), BATCH, shuffle=True, drop_last=True)

    def our_epoch() -> None:
        for batch in data.train_dataloader():
            model.as_float(batch.x)

    def their_epoch() -> None:
        for _ in theirs:
            pass

    ours, other = seconds(our_epoch, their_epoch, repeats=2, warm_up=1)
    yield faster("an epoch of MNIST's batches", "torchvision in a DataLoader", ours, other, 20)
