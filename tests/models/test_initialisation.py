"""A model that is trained by Lightning's own `fit` initialises and finalises itself, or refuses to train."""

from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer

from src.models.base import Model
from src.runs.errors import UserError
from src.training.experiment import make_data, make_model
from src.training.history import History
from src.training.trainer import fit, make_trainer
from tests.configs import composed

SMALL = ["dataset.max_train=120", "dataset.max_test=20", "dataset.batch_size=full", "trainer.enable_progress_bar=false"]
QUICK = [*SMALL, "trainer.max_epochs=2"]
FREE = ["model=sas", "active_set.size=20", "model.amortised=false"]
COLLAPSED = ["model=bayesian_gplvm", "model.bound=collapsed", "model.num_inducing=15"]
AUTOGP = ["model=autogp", "model.num_inducing=10"]


def new(*overrides: str) -> tuple[Any, Any]:
    """A new model of a few digits, and its data."""
    config = composed(*overrides, *QUICK)
    data = make_data(config)
    torch.manual_seed(0)
    return make_model(config, data), data


def lightning() -> Trainer:
    """Lightning's trainer as a person would make it."""
    silent: dict[str, Any] = dict.fromkeys(
        ("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False
    )
    return Trainer(max_epochs=2, accelerator="cpu", **silent)


@pytest.mark.parametrize("overrides", [FREE, COLLAPSED, AUTOGP], ids=["sas", "bayesian_gplvm", "autogp"])
def test_lightnings_own_fit_gives_the_numbers_of_a_run(overrides: list[str], tmp_path: Path) -> None:
    model, data = new(*overrides)
    lightning().fit(model, datamodule=data)
    of_run, data = new(*overrides)
    config = composed(*overrides, *QUICK)
    fit(make_trainer(config, History(tmp_path / "history.csv"), tmp_path), of_run, data, tmp_path)
    stored = torch.load(tmp_path / "model.ckpt", weights_only=True)["state_dict"]
    assert stored.keys() == model.state_dict().keys()
    for name, value in model.state_dict().items():
        assert torch.equal(stored[name], value), name


def test_a_new_model_refuses_to_train_without_its_data() -> None:
    model, data = new(*FREE)
    with pytest.raises(UserError, match=r"SAS starts from its training data: .*datamodule=data"):
        lightning().fit(model, data.train_dataloader())
    model.initialise(data)
    lightning().fit(model.train(), data.train_dataloader())


@pytest.mark.parametrize("overrides", [FREE, AUTOGP], ids=["sas", "autogp"])
def test_a_model_that_has_learned_is_not_initialised_again(overrides: list[str], tmp_path: Path) -> None:
    model, data = new(*overrides)
    trainer = lightning()
    trainer.fit(model, datamodule=data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    by_state, _ = new(*overrides)
    by_state.load_state_dict(model.state_dict())
    for learned in (model, by_state, Model.load_from_checkpoint(tmp_path / "model.ckpt")):
        learned.trainer = trainer
        learned.setup("fit")
        assert all(torch.equal(value, model.state_dict()[name]) for name, value in learned.state_dict().items())
    start, _ = new(*overrides)
    start.initialise(data)
    assert not all(torch.equal(value, model.state_dict()[name]) for name, value in start.state_dict().items())


def test_a_collapsed_bound_can_predict_after_lightnings_own_fit() -> None:
    model, data = new(*COLLAPSED)
    lightning().fit(model, datamodule=data)
    found = model.q_mean.clone()
    assert model.training
    model.eval().finalise(data)
    assert torch.allclose(found, model.q_mean, atol=1e-6)
