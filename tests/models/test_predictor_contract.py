"""What every predictor must keep, run over the files of conf/model: a new predictor is tested by existing."""

import os
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from pytorch_lightning import Trainer

from src.data.batch import split_of
from src.data.module import DataModule
from src.models.base import Predictor, build
from src.models.capabilities import Predicts, PredictsFromPoints
from src.runs.errors import UserError
from tests.models.builders import Given, first_batch, spec_of
from tests.models.direct import slopes
from tests.models.test_contract import MODELS, QUIET, ROOT, model_class

Kind = Literal["class", "real"]
PREDICTORS = [name for name in MODELS if issubclass(model_class(name), Predictor)]
ONLY: dict[str, list[Kind]] = {
    "sparse_regression": ["real"],
    "sas_regression": ["real"],
    "sas_classifier": ["class"],
}  # the targets of a predictor that does not take all
SMALL = ("active_set.size=6", "encoder.hidden=[8]")
BOTH: list[Kind] = ["class", "real"]
CASES = [(name, kind) for name in PREDICTORS for kind in ONLY.get(name, BOTH)]


@cache
def dataset(kind: Kind) -> DataModule:
    """24 byte images for training and 5 for the test, with one of three classes or two real targets."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randint(0, 256, (29, 1, 8, 8), generator=generator).byte()
    classes = torch.arange(29) % 3
    y = classes if kind == "class" else torch.stack([classes * 2.0 + 100, x[:, 0, 0, 0] / 255], 1)
    data = Given(x[:24], batch_size=12, y=y[:24], test=split_of(x[24:], y[24:]))
    data.setup()
    return data


def small_spec(name: str) -> dict[str, Any]:
    spec = spec_of(f"model={name}", *SMALL)
    return spec | ({"num_inducing": 6} if "num_inducing" in spec else {})


def small_model(name: str, kind: Kind, dtype: torch.dtype = torch.float64) -> Any:
    torch.manual_seed(0)
    model = build(small_spec(name), dataset(kind).facts).to(dtype)
    model.check(dataset(kind).facts)
    model.initialise(dataset(kind))
    return model


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_objective_is_finite_and_reaches_every_parameter(name: str, kind: Kind) -> None:
    model = small_model(name, kind, torch.float32)
    loss, parts = model.objective(first_batch(dataset(kind)))
    assert loss.shape == () and torch.isfinite(loss)
    assert not any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts.values())
    loss.backward()
    unused = ["q_raw_weights"] if name == "autogp" else []  # of a mixture with one component
    assert [n for n, p in model.named_parameters() if p.grad is None and n not in unused] == []


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_the_gradient_is_the_slope_of_the_loss(name: str, kind: Kind) -> None:
    model = small_model(name, kind)
    if name == "sas_classifier":
        model.iterations = 500  # the bound's gradient takes them to have converged
    by_gradient, by_values = slopes(model, first_batch(dataset(kind)))
    assert by_gradient == pytest.approx(by_values, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_it_predicts_what_the_facts_say(name: str, kind: Kind) -> None:
    model, test = small_model(name, kind), dataset(kind).test.all()
    assert isinstance(model, Predicts) and test.y is not None
    with torch.no_grad():
        p: Any = model.predict(model.as_float(test.x), model.given())
        assert p.log_prob(test.y).shape == test.y.shape and p.log_prob(test.y).isfinite().all()
        if kind == "class":
            torch.testing.assert_close(p.probs.sum(-1), torch.ones(5, dtype=torch.float64))
            assert p.probs.shape == (5, 3)
        else:
            assert p.mean.shape == (5, 2) and (p.mean[:, 0] - 100).abs().max() < 10  # in the units of the data
        if isinstance(model, PredictsFromPoints):
            train = dataset(kind).train
            few, all_points = (model.predict(model.as_float(test.x), model.given(train.draw(n, 0))) for n in (2, 24))
            if kind == "real":
                assert (all_points.stddev <= few.stddev + 1e-9).all()


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_no_tensor_is_made_on_another_device(name: str, kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "equal", lambda a, b: a.shape == b.shape)  # GPyTorch asks; meta tensors have no values
    batch = first_batch(dataset(kind)).to(torch.device("meta"))
    loss = small_model(name, kind).to("meta").objective(batch).loss
    loss.backward()
    assert loss.device.type == "meta"


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_training_lowers_the_loss(name: str, kind: Kind) -> None:
    model, batch = small_model(name, kind, torch.float32), first_batch(dataset(kind))
    optimizer, losses = model.make_optimizer(), []
    for _ in range(30):
        torch.manual_seed(0)
        loss = model.objective(batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("name", PREDICTORS)
def test_data_without_targets_or_with_holes_are_refused(name: str) -> None:
    facts = dataset(ONLY.get(name, BOTH)[0]).facts
    model = build(small_spec(name), facts)
    for change, reason in (
        ({"complete": False}, "needs complete data, but values are missing"),
        ({"target": {"kind": "none", "size": 0}}, "predicts a target, but the dataset has none"),
    ):
        with pytest.raises(UserError, match=reason):
            model.check(type(facts).from_plain(facts.plain() | change))


FRESH_PROCESS = """
import sys, torch
from pathlib import Path
from src.models.base import Model

torch.set_num_threads(1)  # as in the tests: the order of sums is part of the numbers
for folder in Path(sys.argv[1]).iterdir():
    expected = torch.load(folder / "expected.pt")
    model = Model.load_from_checkpoint(folder / "model.ckpt", weights_only=True)
    with torch.no_grad():
        assert torch.equal(model.predict(expected["x"]).log_prob(expected["y"]), expected["log_prob"]), folder
"""


def test_checkpoints_alone_predict_in_a_fresh_process(tmp_path: Path) -> None:
    for name, kind in CASES:
        data, folder, test = dataset(kind), tmp_path / f"{name}-{kind}", dataset(kind).test.all()
        model = small_model(name, kind, torch.float32).train()
        trainer = Trainer(max_epochs=1, **QUIET)
        trainer.fit(model, datamodule=data)
        model.finalise(data)
        trainer.save_checkpoint(folder / "model.ckpt", weights_only=True)
        with torch.no_grad():
            log_prob = model.eval().predict(test.x).log_prob(test.y)
        torch.save({"x": test.x, "y": test.y, "log_prob": log_prob}, folder / "expected.pt")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    fresh = subprocess.run([sys.executable, "-c", FRESH_PROCESS, str(tmp_path)], cwd=tmp_path, env=environment)
    assert fresh.returncode == 0
