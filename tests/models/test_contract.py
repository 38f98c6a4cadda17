"""What every model must keep, run over every file in conf/model: a new model is tested by existing.

The models with latents are tested here, the predictors in `test_predictor_contract`.
"""

import os
import subprocess
import sys
from functools import cache
from importlib import import_module
from inspect import isabstract
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from torch.distributions import Normal

import conf
import src.models
from src.data.batch import Batch, split_of
from src.data.module import DataModule
from src.models.auxiliary import VideoTime
from src.models.base import LatentModel, Model, Predictor, build
from src.models.posterior import Amortised, Free
from src.runs.aliases import find_class
from src.runs.errors import UserError
from tests.models.builders import Given, far_curve, first_batch, rows, spec_of, started
from tests.models.direct import slopes
from tests.models.rotated import small_rotated_mnist

ROOT = Path(conf.__file__).parents[1]
MODELS = sorted(file.stem for file in (Path(conf.__file__).parent / "model").glob("*.yaml"))
LATENT = [name for name in MODELS if "latent_dim" in spec_of(f"model={name}")]
FORMS = {
    "amortised": [],
    "free": ["model.amortised=false"],
    "conv": ["encoder=conv"],
    "q3": ["model.latent_dim=3", "kernel=rbf_ard"],
}
SMALL = ("active_set.size=6", "encoder.hidden=[8]")
SMALL_CONV = ("active_set.size=6", "encoder=conv", "encoder.hidden=8", "encoder.channels=[3,4]")
NEED_VIDEOS = ("cvae", "gp_vae")  # since images alone have no auxiliary columns
NEED_VIEWS = ("casale_gp_vae",)
QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
}


@cache
def dataset(name: str, hidden: str | None = None) -> DataModule:
    """24 bytes images of three classes for training and 5 for the test, or bits in videos, or views of objects.

    `hidden` names the part that has holes.
    """
    missing = None if hidden is None else {"fraction": 0.3, "split": hidden}
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (30, 1, 8, 8), generator=generator).byte()
    y = torch.arange(30) % 3
    data = Given(images[:24], batch_size=12, y=y[:24], test=split_of(images[24:29], y[24:29]), missing=missing)
    if name in NEED_VIEWS:
        turns = torch.cartesian_prod(torch.arange(10), torch.arange(3)).float()
        unseen, views = split_of(images[24:29], aux=turns[24:29]), {"aux": ("object", "angle")}
        data = Given(images[:24], 12, aux=turns[:24], objects=images[::3], test=unseen, told=views, missing=missing)
    if name in NEED_VIDEOS:
        aux = torch.cartesian_prod(torch.arange(5), torch.arange(6)).float()
        bits, test = (images > 127).float(), slice(24, 30)
        told = {"aux": ("video", "time"), "group": "video", "group_size": 6, "binary": True}
        data = Given(bits[:24], aux=aux[:24], test=split_of(bits[test], aux=aux[test]), told=told, missing=missing)
    data.setup()
    return data


def model_class(name: str) -> type[LatentModel]:
    found: type[LatentModel] = find_class(spec_of(f"model={name}")["_target_"])
    return found


def small_spec(name: str, *overrides: str) -> dict[str, Any]:
    """The model with as many active or inducing points as the data allow."""
    small = SMALL_CONV if "encoder=conv" in overrides else SMALL
    spec = spec_of(f"model={name}", *small, *(o for o in overrides if o != "encoder=conv"))
    return spec | ({"num_inducing": 6} if "num_inducing" in spec else {})


def forms(name: str) -> dict[str, list[str]]:
    """The forms that a model has: not all have free latents, or an encoder of their own choice."""
    spec = spec_of(f"model={name}")
    chooses = spec["encoder"]["_target_"] == "src.nets.mlp.mlp"
    return {
        form: overrides
        for form, overrides in FORMS.items()
        if ("amortised" in spec or form != "free") and (chooses or form != "conv")
    }


CASES = [
    pytest.param(
        (name, [*overrides, f"model.posterior={kind}" if len(model_class(name).posteriors) > 1 else "seed=0"]),
        id=f"{name}-{form}-{kind}",
    )
    for name in LATENT
    for form, overrides in forms(name).items()
    for kind in model_class(name).posteriors
]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, list[str]]:
    name_and_overrides: tuple[str, list[str]] = request.param
    return name_and_overrides


@pytest.fixture
def data(case: tuple[str, list[str]]) -> DataModule:
    return dataset(case[0])


def model_of(case: tuple[str, list[str]], data: DataModule) -> LatentModel:
    """The model of a case, started on the data."""
    name, overrides = case
    torch.manual_seed(0)
    model: LatentModel = build(small_spec(name, *overrides), data.facts)
    model.check(data.facts)
    model.initialise(data)
    return model


@pytest.fixture
def model(case: tuple[str, list[str]], data: DataModule) -> LatentModel:
    return model_of(case, data)


def test_every_model_file_has_a_config() -> None:
    modules = [import_module(f"src.models.{m.name}") for m in iter_modules(src.models.__path__)]
    own = [c for m in modules for c in vars(m).values() if isinstance(c, type) and c.__module__ == m.__name__]
    models = {c for c in own if issubclass(c, Model) and not isabstract(c)}
    assert models == {model_class(name) for name in MODELS}


def test_the_objective_is_finite_and_reaches_every_parameter(model: LatentModel, data: DataModule) -> None:
    loss, parts = model.objective(first_batch(data))
    assert loss.shape == () and torch.isfinite(loss)
    assert not any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts.values())
    loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_the_objective_makes_no_tensor_on_another_device(
    model: LatentModel, data: DataModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All on the meta device, forward and backward: any CPU tensor made on the way is an error, as on a GPU."""
    monkeypatch.setattr(torch, "equal", lambda a, b: a.shape == b.shape)  # GPyTorch asks; meta tensors have no values
    batch = first_batch(data)
    if isinstance(getattr(model, "aux", None), VideoTime):
        pytest.skip("the frames of a video are found by the values of aux, which meta tensors do not have")
    on_meta = batch.to(torch.device("meta"))
    loss = model.to("meta").objective(on_meta).loss
    assert loss.device.type == "meta"
    if isinstance(model.latents, Amortised):
        loss.backward()
        assert all(p.grad is not None and p.grad.device.type == "meta" for p in model.parameters())


def test_unseen_and_seen_images_are_encoded_and_decoded(model: LatentModel, data: DataModule) -> None:
    for batch, seen in ((data.test.all(), False), (rows(data, 3, 20), True)):
        with torch.no_grad():
            q = model.encode(batch, seen)
            prediction = model.decode(q.mean, model.given(), batch.aux)
        assert q.mean.shape == (len(batch), model.latent_dim) and (q.variance >= 0).all()
        assert prediction.mean.shape == batch.x.shape
        assert (prediction.variance > 0).all() and torch.isfinite(prediction.mean).all()
        assert prediction.log_prob(model.as_float(batch.x)).shape == batch.x.shape
    assert all(p.grad is None for p in model.parameters())


def test_training_steps_lower_the_loss_and_touch_only_the_batchs_free_latents(
    model: LatentModel, data: DataModule
) -> None:
    batch = first_batch(data)
    before = model.latents.mean.weight.detach().clone() if isinstance(model.latents, Free) else None
    optimizer = model.make_optimizer()
    losses = []
    for _ in range(30):
        torch.manual_seed(0)
        loss = model.objective(batch).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    if isinstance(model.latents, Free) and before is not None:
        moved = torch.ne(model.latents.mean.weight, before).any(1)
        assert set(moved.nonzero().flatten().tolist()) == set(batch.index.tolist())


def test_one_cholesky_a_step(model: LatentModel, data: DataModule, cholesky_sizes: list[int]) -> None:
    model.objective(first_batch(data))
    assert len(cholesky_sizes) <= 1


def test_float64_by_one_switch(model: LatentModel, data: DataModule) -> None:
    model.double()
    assert model.objective(first_batch(data)).loss.dtype == torch.float64
    with torch.no_grad():
        few = rows(data, 2, 9)
        q = model.encode(few, seen=True)
        assert q.mean.dtype == model.decode(q.mean, aux=few.aux).mean.dtype == torch.float64


def test_the_gradient_is_the_slope_of_the_loss(model: LatentModel, data: DataModule) -> None:
    by_gradient, by_values = slopes(model.double(), first_batch(data))
    assert by_gradient == pytest.approx(by_values, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("name", ["casale_gp_vae", "cvae", "gp_vae", "svgp_vae"])
def test_views_train_with_the_published_nets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The settings of conf/pair on rotated digits in small: every parameter has a gradient that is not 0."""
    data = small_rotated_mnist(monkeypatch, "full" if name == "gp_vae" else 60)
    model = started(data, f"model={name}", "dataset=rotated_mnist")
    model.objective(first_batch(data)).loss.backward()
    without = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()]
    assert without == (["likelihood.learned.noise_covar.raw_noise"] if name == "svgp_vae" else [])  # GECO keeps it
    model.finalise(data)
    test = data.test.all()
    assert test.aux is not None
    with torch.no_grad():
        made = model.decode(model.generate(test.aux).mean, aux=test.aux).mean
    assert made.shape == test.x.shape and made.isfinite().all()


@pytest.mark.parametrize("name", MODELS)
def test_options_that_a_model_does_not_have_are_refused(name: str) -> None:
    spec = small_spec(name) | {"no_such_option": 3}
    with pytest.raises(UserError, match=rf"{model_class(name).__name__} has no option model\.no_such_option"):
        build(spec, dataset(name).facts)


FRESH_PROCESS = """
import sys, torch
from pathlib import Path
from src.data.batch import Batch
from src.models.base import Model
from src.models.vae import VAE

torch.set_num_threads(1)  # as in the tests: the order of sums is part of the numbers
for folder in Path(sys.argv[1]).iterdir():
    expected = torch.load(folder / "expected.pt")
    for caller in (Model, VAE):
        model = caller.load_from_checkpoint(folder / "model.ckpt", weights_only=True)
        assert type(model).__name__ == expected["class"], folder
        torch.manual_seed(0)
        with torch.no_grad():
            if "densities" in expected:
                assert torch.equal(model.predict(expected["x"]).log_prob(expected["y"]), expected["densities"]), folder
                continue
            batch = Batch.of(expected["x"], expected["aux"])
            z = model.encode(batch, seen=False).mean if caller is Model else expected["z"]
            mean = model.decode(z, aux=batch.aux).mean
        assert torch.equal(z, expected["z"]) and torch.equal(mean, expected["mean"]), folder
"""


def trained(model: Any, data: DataModule, folder: Path) -> Any:
    """A model after an epoch, whose checkpoint is in a folder."""
    model.initialise(data)
    model.train()
    trainer = Trainer(max_epochs=1, **QUIET)
    trainer.fit(model, datamodule=data)
    model.finalise(data)
    trainer.save_checkpoint(folder / "model.ckpt", weights_only=True)
    torch.manual_seed(0)
    return model


def test_checkpoints_alone_predict_in_a_fresh_process(tmp_path: Path) -> None:
    """Every model, amortised and free, and a predictor, whatever class loads them: one process, as starting is slow."""
    for name in LATENT:
        for form in forms(name).keys() & {"amortised", "free"}:
            data, folder = dataset(name), tmp_path / f"{name}-{form}"
            model = trained(build(small_spec(name, *FORMS[form]), data.facts), data, folder)
            test = data.test.all()
            with torch.no_grad():
                z = model.encode(test, seen=False).mean
                mean = model.decode(z, aux=test.aux).mean
            seen = {"x": test.x, "aux": test.aux, "class": type(model).__name__}
            torch.save({**seen, "z": z, "mean": mean}, folder / "expected.pt")
    predictor, test = trained(linear_gaussian(), linear_data(), tmp_path / "linear"), linear_data().test.all()
    expected = {"x": test.x, "y": test.y, "densities": predictor.predict(test.x).log_prob(test.y).detach()}
    torch.save({**expected, "class": "LinearGaussian"}, tmp_path / "linear" / "expected.pt")
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    fresh = subprocess.run([sys.executable, "-c", FRESH_PROCESS, str(tmp_path)], cwd=tmp_path, env=environment)
    assert fresh.returncode == 0


@cache
def linear_data() -> Given:
    x = far_curve(24, 4)
    y = x[:, :2] @ torch.tensor([[1.0, -1.0], [0.5, 2.0]]) + 3
    data = Given(x, batch_size=12, y=y)
    data.setup()
    return data


def linear_gaussian() -> Predictor:
    spec = {"_target_": "tests.models.linear_gaussian.LinearGaussian", "optimizer": spec_of("model=sas")["optimizer"]}
    torch.manual_seed(0)
    model: Predictor = build(spec | {"noise": 0.2}, linear_data().facts)
    return model


def test_a_predictor_predicts_the_target_of_its_facts() -> None:
    model, batch = linear_gaussian().double(), linear_data().train.all()
    model.check(linear_data().facts)
    assert batch.y is not None and linear_data().facts.target.size == 2
    loss, _ = model.objective(batch)
    prediction = model.predict(batch.x)
    assert prediction.mean.shape == (24, 2)
    density = Normal(prediction.mean, 0.2**0.5).log_prob(batch.y.double()).sum()
    torch.testing.assert_close(loss, -density / (24 * 2), rtol=1e-6, atol=0)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def test_a_predictors_mean_over_disjoint_batches_is_its_full_objective() -> None:
    model, data = linear_gaussian().double(), linear_data()
    losses = [model.objective(data.train[index]).loss for index in torch.arange(24).split(6)]
    torch.testing.assert_close(torch.stack(losses).mean(), model.objective(data.train.all()).loss)


def test_a_predictor_makes_no_tensor_on_another_device() -> None:
    model, batch = linear_gaussian().to("meta"), linear_data().train.all().to(torch.device("meta"))
    assert isinstance(batch, Batch)
    loss = model.objective(batch).loss
    loss.backward()
    assert loss.device.type == "meta" and model.predict(batch.x).mean.device.type == "meta"
