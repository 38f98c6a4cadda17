"""Bernoulli and categorical likelihoods in every latent model that has them: what each must keep."""

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from torch.nn.functional import one_hot

from src.data.batch import split_of
from src.data.module import DataModule
from src.models.base import LatentModel, Model, build
from src.runs.errors import UserError
from tests.models.builders import Given, first_batch
from tests.models.direct import slopes
from tests.models.test_contract import NEED_VIDEOS, QUIET, dataset, small_spec

DECODERS = ["sas", "bayesian_sas", "gplvm"]
BERNOULLI = [*DECODERS, "bayesian_gplvm", "vae", "svgp_vae", "gp_vae", "cvae"]
CASES = [(name, "bernoulli") for name in BERNOULLI] + [(name, "categorical") for name in DECODERS]
SIZES = (2, 3, 4)


@cache
def data_of(name: str, likelihood: str, hidden: str | None = None) -> DataModule:
    """24 images of bits, or rows of three categories, for training; 5 for the test."""
    if name in NEED_VIDEOS:
        return dataset(name, hidden)
    missing = None if hidden is None else {"fraction": 0.3, "split": hidden}
    generator = torch.Generator().manual_seed(0)
    x = (torch.rand(30, 1, 4, 4, generator=generator) > 0.6).byte() * 255
    x[:, 0, 0, 0] = 0  # a pixel that is always black
    if likelihood == "categorical":
        ids = torch.randint(0, 12, (30, 3), generator=generator)
        x = torch.cat([one_hot(column % size, size) for column, size in zip(ids.mT, SIZES, strict=True)], 1).float()
    data = Given(x[:24], batch_size=12, test=split_of(x[24:29]), missing=missing)
    data.binary, data.one_hot = True, SIZES if likelihood == "categorical" else ()
    data.setup()
    return data


def model_of(name: str, likelihood: str, data: DataModule, **arguments: Any) -> LatentModel:
    torch.manual_seed(0)
    small = small_spec(name) | {"likelihood": likelihood} | arguments
    model: LatentModel = build(small, data.facts)
    model.check(data.facts)
    model.initialise(data)
    return model


@pytest.fixture(params=CASES, ids=[f"{name}-{likelihood}" for name, likelihood in CASES])
def case(request: pytest.FixtureRequest) -> tuple[str, str]:
    name_and_likelihood: tuple[str, str] = request.param
    return name_and_likelihood


def test_the_objective_reaches_every_parameter_with_the_right_slope(case: tuple[str, str]) -> None:
    data = data_of(*case)
    model, batch = model_of(*case, data), first_batch(data)
    loss = model.objective(batch).loss
    loss.backward()
    assert loss.isfinite() and [name for name, p in model.named_parameters() if p.grad is None] == []
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())
    if case[0] not in DECODERS:
        model.zero_grad()
        by_gradient, by_values = slopes(model.double(), batch)
        assert by_gradient == pytest.approx(by_values, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("likelihood", ["bernoulli", "categorical"])
@pytest.mark.parametrize("name", DECODERS)
def test_the_slope_of_a_decoder_at_the_fixed_point(name: str, likelihood: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it, psi counts as constant in the bound, which changes its slope but leaves it a bound."""
    monkeypatch.setattr("src.gp.quadratic_bound.ITERATIONS", 100)
    data = data_of(name, likelihood)
    by_gradient, by_values = slopes(model_of(name, likelihood, data).double(), first_batch(data))
    assert by_gradient == pytest.approx(by_values, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("hidden", [None, "both"])
def test_probabilities_are_decoded(case: tuple[str, str], hidden: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("src.models.refining.REFINING_STEPS", 2)
    data = data_of(*case, hidden)
    model, batch = model_of(*case, data), data.test.all()
    model.finalise(data)
    p = model.decode(model.encode(batch, seen=False).mean, model.given(), batch.aux)
    assert p.mean.shape == batch.x.shape and ((p.mean > 0) & (p.mean < 1)).all()
    if case[1] == "categorical":
        for part in p.mean.split(SIZES, 1):
            torch.testing.assert_close(part.sum(1), torch.ones(len(batch)))
    x = data.test.truth(torch.arange(len(batch)))
    x = model.as_float(x)
    log_p = x * p.mean.log() + (0 if case[1] == "categorical" else (1 - x) * (1 - p.mean).log())
    torch.testing.assert_close(p.log_prob(x), log_p, rtol=1e-3, atol=1e-4)


def test_what_is_hidden_has_no_part_in_training(case: tuple[str, str]) -> None:
    data = data_of(*case, "both")
    model, batch = model_of(*case, data), first_batch(data)
    assert batch.mask is not None
    other = torch.where(batch.mask, batch.x, 1 - batch.x.nan_to_num())
    losses = []
    for x in (batch.x, other):
        torch.manual_seed(0)
        losses.append(model.objective(replace(batch, x=x)).loss)
    assert losses[0].isfinite() and torch.equal(*losses)
    losses[0].backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("name", ["bayesian_sas", "bayesian_gplvm"])
def test_a_checkpoint_predicts_alone(name: str, tmp_path: Path) -> None:
    data = data_of(name, "bernoulli", "both")
    model = model_of(name, "bernoulli", data)
    model.train()
    trainer = Trainer(max_epochs=1, **QUIET)
    trainer.fit(model, datamodule=data)
    model.finalise(data)
    trainer.save_checkpoint(tmp_path / "model.ckpt", weights_only=True)
    again = Model.load_from_checkpoint(tmp_path / "model.ckpt")
    z = torch.randn(3, 2)
    with torch.no_grad():
        assert torch.equal(model.decode(z).mean, again.decode(z).mean)


@pytest.mark.parametrize("name", ["sas", "bayesian_gplvm", "vae", "cvae"])
def test_grey_values_are_no_bits(name: str) -> None:
    data = data_of(name, "bernoulli")
    with pytest.raises(UserError, match=r"likelihood=bernoulli needs binary values"):
        build(small_spec(name) | {"likelihood": "bernoulli"}, data.facts).check(replace(data.facts, binary=False))


def test_categories_need_one_hot_columns_and_a_decoder_with_an_active_set() -> None:
    data = data_of("sas", "bernoulli")
    with pytest.raises(UserError, match=r"model\.likelihood=categorical needs a table whose columns are all one-hot"):
        model_of("sas", "categorical", data)
    with pytest.raises(UserError, match=r"model\.likelihood=categorical does not fit BayesianGPLVM"):
        model_of("bayesian_gplvm", "categorical", data_of("sas", "categorical"))
    with pytest.raises(UserError, match=r"model\.likelihood=categorical needs model=sas, bayesian_sas or gplvm"):
        model_of("vae", "categorical", data_of("sas", "categorical"))
    with pytest.raises(UserError, match=r"model\.likelihood=gprn does not fit a GP decoder"):
        model_of("sas", "gprn", data)
    collapsed = {"bound": "collapsed"}
    with pytest.raises(
        UserError, match=r"model\.likelihood=bernoulli does not fit BayesianGPLVM with model\.bound=coll"
    ):
        model_of("bayesian_gplvm", "bernoulli", data, **collapsed)


@pytest.mark.parametrize("name", [*DECODERS, "bayesian_gplvm", "vae"])
def test_null_is_gaussian(name: str) -> None:
    data = data_of(name, "bernoulli")
    batch, losses = first_batch(data), []
    for likelihood in (None, "gaussian"):
        model = model_of(name, likelihood, data)  # type: ignore[arg-type]
        torch.manual_seed(0)
        losses.append(model.objective(batch).loss)
    assert torch.equal(*losses)
