"""What every model must keep, run over every file in conf/model: a new model is tested by existing."""

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

import conf
import src.models
from src.data.images import Digits
from src.data.module import Batch, DataModule
from src.data.moving_ball import MovingBall
from src.models.base import Decoder
from src.posterior import Amortised, Free
from src.specs import make
from tests.configs import composed

MODELS = sorted(file.stem for file in (Path(conf.__file__).parent / "model").glob("*.yaml"))
FORMS = {
    "amortised": [],
    "free": ["model.amortised=false"],
    "conv": ["encoder=conv"],
    "q3": ["model.latent_dim=3", "kernel=rbf_ard"],
}
NUM_DATA, BATCH, ACTIVE = 150, 64, 20


NEED_AUX = ("cvae", "gp_vae")  # tested on videos, since digits have no auxiliary inputs


@cache
def dataset(name: str) -> DataModule:
    data: DataModule = Digits(batch_size=BATCH, max_train=NUM_DATA, max_test=12)
    if name in NEED_AUX:
        data = MovingBall(batch_videos=2, steps_per_epoch=2, num_train_videos=5, num_test_videos=1)
    data.setup()
    return data


def posteriors(name: str) -> tuple[str, ...]:
    return decoder_class(name).posteriors


def decoder_class(name: str) -> type[Decoder]:
    from hydra.utils import get_class

    return get_class(composed(f"model={name}")["model"]["_target_"])


def small_spec(name: str, *overrides: str) -> dict[str, Any]:
    """The model with as many active or inducing points as the data allow."""
    spec: dict[str, Any] = composed(f"model={name}", f"active_set.size={ACTIVE}", *overrides)["model"]
    return spec | ({"num_inducing": ACTIVE} if "num_inducing" in spec else {})


CASES = [
    pytest.param(
        (name, [*overrides, f"model.posterior={kind}" if kind != "point" else "seed=0"]), id=f"{name}-{form}-{kind}"
    )
    for name in MODELS
    for form, overrides in FORMS.items()
    for kind in posteriors(name)
]


@pytest.fixture(params=CASES)
def model(request: pytest.FixtureRequest, data: Digits) -> Decoder:
    name, overrides = request.param
    torch.manual_seed(0)
    spec = small_spec(name, *overrides)
    model: Decoder = make(spec, shape=data.shape, num_data=len(data.train), _recursive_=False)
    model.check(data)
    model.initialise(data)
    return model


def first_batch(data: Digits) -> Batch:
    return next(iter(data.train_dataloader()))


def test_every_model_file_has_a_config() -> None:
    modules = [import_module(f"src.models.{m.name}") for m in iter_modules(src.models.__path__)]
    own = [c for m in modules for c in vars(m).values() if isinstance(c, type) and c.__module__ == m.__name__]
    models = {c for c in own if issubclass(c, Decoder) and not isabstract(c)}
    assert models == {decoder_class(name) for name in MODELS}


def test_the_objective_is_finite_and_reaches_every_parameter(model: Decoder, data: Digits) -> None:
    loss, parts = model.objective(first_batch(data))
    assert loss.shape == () and torch.isfinite(loss)
    assert not any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts.values())
    loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_the_objective_makes_no_tensor_on_another_device(model: Decoder, data: Digits, monkeypatch: Any) -> None:
    """All on the meta device, forward and backward: any CPU tensor made on the way is an error, as on a GPU."""
    monkeypatch.setattr(torch, "equal", lambda a, b: a.shape == b.shape)  # GPyTorch asks; meta tensors have no values
    batch = first_batch(data)
    on_meta = Batch(batch.x.to("meta"), None, batch.index.to("meta"), None)
    loss = model.to("meta").objective(on_meta).loss
    assert loss.device.type == "meta"
    if isinstance(model.latents, Amortised):
        loss.backward()
        assert all(p.grad is not None and p.grad.device.type == "meta" for p in model.parameters())


def test_unseen_images_are_encoded_and_decoded(model: Decoder, data: Digits) -> None:
    with torch.no_grad():
        q = model.encode(data.test.x)
        prediction = model.decode(q.mean)
    assert q.mean.shape == (len(data.test), model.latent_dim)
    assert prediction.mean.shape == data.test.x.shape
    assert (prediction.variance > 0).all() and torch.isfinite(prediction.mean).all()
    assert all(p.grad is None for p in model.parameters())


def test_training_steps_lower_the_loss_and_touch_only_the_batchs_free_latents(model: Decoder, data: Digits) -> None:
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


def test_one_cholesky_a_step(model: Decoder, data: Digits, cholesky_sizes: list[int]) -> None:
    model.objective(first_batch(data))
    assert len(cholesky_sizes) <= 1


def test_float64_by_one_switch(model: Decoder, data: Digits) -> None:
    model.double()
    assert model.objective(first_batch(data)).loss.dtype == torch.float64
    with torch.no_grad():
        assert model.decode(model.encode(data.test.x[:2]).mean).mean.dtype == torch.float64


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("form", ["amortised", "free"])
def test_a_checkpoint_alone_predicts_in_a_fresh_process(name: str, form: str, data: Digits, tmp_path: Path) -> None:
    spec = small_spec(name, *FORMS[form])
    model: Decoder = make(spec, shape=data.shape, num_data=len(data.train), _recursive_=False)
    model.initialise(data)
    model.train()
    trainer = Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False
    )
    trainer.fit(model, datamodule=data)
    trainer.save_checkpoint(tmp_path / "model.ckpt")
    torch.manual_seed(0)
    with torch.no_grad():
        z = model.encode(data.test.x).mean
        torch.save({"x": data.test.x, "z": z, "mean": model.decode(z).mean}, tmp_path / "expected.pt")
    script = f"""
import sys, torch
from {type(model).__module__} import {type(model).__name__} as Model
model = Model.load_from_checkpoint(sys.argv[1] + "/model.ckpt", weights_only=True)
expected = torch.load(sys.argv[1] + "/expected.pt")
torch.manual_seed(0)
with torch.no_grad():
    z = model.encode(expected["x"]).mean
    assert torch.equal(z, expected["z"]) and torch.equal(model.decode(z).mean, expected["mean"])
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True, cwd=tmp_path)
