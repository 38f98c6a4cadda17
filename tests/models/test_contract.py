"""What every model must keep, run over every file in conf/model: a new model is tested by existing."""

import subprocess
import sys
from functools import cache
from importlib import import_module
from inspect import isabstract
from itertools import product
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
from src.models.auxiliary import VideoTime
from src.models.base import Decoder
from src.models.posterior import Amortised, Free
from src.runs.specs import make
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


def forms(name: str) -> dict[str, list[str]]:
    """The forms that a model has: not all have free latents."""
    free = "amortised" in composed(f"model={name}")["model"]
    return {form: overrides for form, overrides in FORMS.items() if free or form != "free"}


CASES = [
    pytest.param(
        (name, [*overrides, f"model.posterior={kind}" if len(posteriors(name)) > 1 else "seed=0"]),
        id=f"{name}-{form}-{kind}",
    )
    for name in MODELS
    for form, overrides in forms(name).items()
    for kind in posteriors(name)
]


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> tuple[str, list[str]]:
    name_and_overrides: tuple[str, list[str]] = request.param
    return name_and_overrides


@pytest.fixture
def data(case: tuple[str, list[str]]) -> DataModule:
    return dataset(case[0])


@pytest.fixture
def model(case: tuple[str, list[str]], data: DataModule) -> Decoder:
    name, overrides = case
    torch.manual_seed(0)
    spec = small_spec(name, *overrides)
    model: Decoder = make(spec, shape=data.shape, num_data=len(data.train), _recursive_=False)
    model.check(data)
    model.initialise(data)
    return model


def first_batch(data: DataModule) -> Batch:
    return next(iter(data.train_dataloader()))


def test_every_model_file_has_a_config() -> None:
    modules = [import_module(f"src.models.{m.name}") for m in iter_modules(src.models.__path__)]
    own = [c for m in modules for c in vars(m).values() if isinstance(c, type) and c.__module__ == m.__name__]
    models = {c for c in own if issubclass(c, Decoder) and not isabstract(c)}
    assert models == {decoder_class(name) for name in MODELS}


def test_the_objective_is_finite_and_reaches_every_parameter(model: Decoder, data: DataModule) -> None:
    loss, parts = model.objective(first_batch(data))
    assert loss.shape == () and torch.isfinite(loss)
    assert not any(isinstance(part, torch.Tensor) and part.requires_grad for part in parts.values())
    loss.backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_the_objective_makes_no_tensor_on_another_device(model: Decoder, data: DataModule, monkeypatch: Any) -> None:
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


def test_unseen_images_are_encoded_and_decoded(model: Decoder, data: DataModule) -> None:
    with torch.no_grad():
        q = model.encode(data.test.x, None, data.test.aux)
        prediction = model.decode(q.mean)
    assert q.mean.shape == (len(data.test), model.latent_dim)
    assert prediction.mean.shape == data.test.x.shape
    assert (prediction.variance > 0).all() and torch.isfinite(prediction.mean).all()
    assert all(p.grad is None for p in model.parameters())


def test_training_steps_lower_the_loss_and_touch_only_the_batchs_free_latents(model: Decoder, data: DataModule) -> None:
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


def test_one_cholesky_a_step(model: Decoder, data: DataModule, cholesky_sizes: list[int]) -> None:
    model.objective(first_batch(data))
    assert len(cholesky_sizes) <= 1


def test_float64_by_one_switch(model: Decoder, data: DataModule) -> None:
    model.double()
    assert model.objective(first_batch(data)).loss.dtype == torch.float64
    with torch.no_grad():
        few = data.test[torch.arange(2)]
        assert model.decode(model.encode(few.x, None, few.aux).mean).mean.dtype == torch.float64


FRESH_PROCESS = """
import sys, torch
from pathlib import Path
from hydra.utils import get_class

for folder in Path(sys.argv[1]).iterdir():
    expected = torch.load(folder / "expected.pt")
    model = get_class(expected["class"]).load_from_checkpoint(folder / "model.ckpt", weights_only=True)
    torch.manual_seed(0)
    with torch.no_grad():
        z = model.encode(expected["x"], None, expected["aux"]).mean
        assert torch.equal(z, expected["z"]) and torch.equal(model.decode(z).mean, expected["mean"]), folder
"""


def test_checkpoints_alone_predict_in_a_fresh_process(tmp_path: Path) -> None:
    """Every model, amortised and free: one process for all, since to start it takes longest."""
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    for name, form in product(MODELS, ("amortised", "free")):
        if form not in forms(name):
            continue
        data, spec = dataset(name), small_spec(name, *FORMS[form])
        model: Decoder = make(spec, shape=data.shape, num_data=len(data.train), _recursive_=False)
        model.initialise(data)
        model.train()
        trainer = Trainer(max_epochs=1, **quiet)  # type: ignore[arg-type]
        trainer.fit(model, datamodule=data)
        model.finalise(data)
        folder = tmp_path / f"{name}-{form}"
        trainer.save_checkpoint(folder / "model.ckpt", weights_only=True)
        torch.manual_seed(0)
        with torch.no_grad():
            z = model.encode(data.test.x, None, data.test.aux).mean
            seen = {"x": data.test.x, "aux": data.test.aux}
            expected = {**seen, "z": z, "mean": model.decode(z).mean, "class": class_path(model)}
        torch.save(expected, folder / "expected.pt")
    fresh = subprocess.run([sys.executable, "-c", FRESH_PROCESS, str(tmp_path)], cwd=tmp_path)
    assert fresh.returncode == 0


def class_path(model: Decoder) -> str:
    return f"{type(model).__module__}.{type(model).__name__}"
