"""SVGP-VAE: the bound that it shares with GP-VAE, GECO's iterates, and prediction from all training data."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from torch import Tensor

from src.data.images import Digits
from src.data.module import Batch, DataModule
from src.data.moving_ball import MovingBall
from src.data.rotated_mnist import RotatedMNIST
from src.models.auxiliary import Learned
from src.models.gp_vae import GPVAE
from src.models.svgp_vae import SVGPVAE
from src.runs.errors import UserError
from tests.configs import composed
from tests.models.builders import first_batch, started
from tests.models.rotated import OBJECTS, small_rotated_mnist

ROTATED = ("model=svgp_vae", "dataset=rotated_mnist", f"model.aux.num_objects={OBJECTS}")
BALL = ("model=svgp_vae", "dataset=moving_ball")


@pytest.fixture
def rotated(monkeypatch: pytest.MonkeyPatch) -> RotatedMNIST:
    return small_rotated_mnist(monkeypatch)


@pytest.fixture(scope="module")
def videos() -> MovingBall:
    data = MovingBall(batch_videos=2, steps_per_epoch=2, num_train_videos=3, num_test_videos=2)
    data.setup()
    return data


def test_inducing_points_at_all_times_give_the_bound_of_gp_vae(videos: MovingBall) -> None:
    """With Z = X and all frames of a video f_m is z, so that q and KL are the exact ones (1e-5, by the jitter)."""
    sparse: SVGPVAE = started(videos, *BALL, "model.num_inducing=30").double()
    exact: GPVAE = started(videos, "model=gp_vae", seed=1).double()
    exact.load_state_dict(sparse.state_dict(), strict=False)
    batch = first_batch(videos)
    torch.testing.assert_close(sparse.inducing.squeeze(1), torch.arange(30.0).double())
    losses, divergences = [], []
    for model in (sparse, exact):
        torch.manual_seed(0)
        loss, parts = model.objective(batch)
        loss.backward()
        losses.append(loss)
        divergences.append(parts["kl"])
    torch.testing.assert_close(*losses, rtol=1e-5, atol=0)
    torch.testing.assert_close(*divergences, rtol=1e-5, atol=0)
    for name, parameter in exact.named_parameters():
        torch.testing.assert_close(sparse.get_parameter(name).grad, parameter.grad, rtol=1e-3, atol=1e-7)


def test_fewer_inducing_points_give_less(videos: MovingBall) -> None:
    """The collapsed bound log Z of the pseudo-data lies below, and with it KL - E_q[log q~] above, the exact one."""
    exact: GPVAE = started(videos, "model=gp_vae").double()
    batch = first_batch(videos)
    values = []
    for model in (exact, *(started(videos, *BALL, f"model.num_inducing={m}").double() for m in (8, 15))):
        model.load_state_dict(exact.state_dict(), strict=False)
        pseudo = model.latents(model.as_float(batch.x))
        q, kl, _ = model.posterior(batch.x, batch.aux)
        expected = -((pseudo.mean - q.mean).square() + q.variance) / (2 * pseudo.variance)
        values.append((expected.sum() - kl).item())
    assert values[1] < values[2] < values[0]


@pytest.mark.parametrize("geco", ["0.02", "null"])
def test_gradients_reach_everything(rotated: RotatedMNIST, geco: str) -> None:
    model: SVGPVAE = started(rotated, *ROTATED, f"model.geco={geco}")
    batch = first_batch(rotated)
    model.objective(batch).loss.backward()
    frozen = ["likelihood.noise_covar.raw_noise"] if geco != "null" else []
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == frozen
    assert batch.aux is not None
    seen = model.aux.vectors.grad.any(1)  # type: ignore[operator, union-attr]
    assert set(seen.nonzero().flatten().tolist()) == set(batch.aux[:, 0].long().tolist())


def published_step(model: SVGPVAE, batch: Batch, adam: torch.optim.Adam, state: dict[str, Tensor]) -> None:
    """GECO as published: (b / N) KL + lambda (c + stopgrad(C - c)), with a lambda that grows without bound."""
    q, kl, _ = model.posterior(batch.x, batch.aux)
    error = (model.as_float(batch.x) - model.decoder(q.rsample())).square().flatten(1).mean(1)
    c = error.mean() - 0.02
    alpha = 0.99 if state else 0.0
    average = alpha * state.get("C", 0.0) + (1 - alpha) * c.detach()
    multiplier = state.get("lambda", torch.tensor(1.0))
    adam.zero_grad()
    (kl + multiplier * (c + (average - c).detach())).backward()
    adam.step()
    state |= {"C": average, "lambda": multiplier * average.exp()}


def test_geco_has_the_iterates_of_the_unbounded_recipe(rotated: RotatedMNIST) -> None:
    model: SVGPVAE = started(rotated, *ROTATED).double()
    reference = deepcopy(model)
    batch = first_batch(rotated)
    trained = [p for p in model.parameters() if p.requires_grad]
    ours = torch.optim.Adam(trained, lr=1e-3, eps=1e-40)  # so small that its scale does not matter
    theirs = torch.optim.Adam([p for p in reference.parameters() if p.requires_grad], lr=1e-3, eps=1e-40)
    state: dict[str, Tensor] = {}
    for step in range(12):
        torch.manual_seed(step)
        loss = model.objective(batch).loss
        ours.zero_grad()
        loss.backward()
        ours.step()
        model.raise_multiplier(ours)
        torch.manual_seed(step)
        published_step(reference, batch, theirs, state)
    assert model.constraint > 0.05  # so that the multiplier has grown
    torch.testing.assert_close(model.constraint, state["C"])
    torch.testing.assert_close(model.log_multiplier.exp(), state["lambda"])
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter, reference.get_parameter(name), rtol=1e-6, atol=1e-8, msg=name)


def trained(data: DataModule, epochs: int, resume: Path | None = None) -> tuple[SVGPVAE, Trainer]:
    model: SVGPVAE = started(data, *ROTATED)
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(max_epochs=epochs, accelerator="cpu", enable_checkpointing=False, **quiet)
    trainer.fit(model.train(), datamodule=data, ckpt_path=resume, weights_only=True)
    return model, trainer


def test_an_interrupted_run_with_geco_is_continued_exactly(rotated: RotatedMNIST, tmp_path: Path) -> None:
    whole, _ = trained(rotated, 3)
    first, trainer = trained(rotated, 1)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    resumed, _ = trained(rotated, 3, tmp_path / "last.ckpt")
    assert first.log_multiplier != 0 and resumed.log_multiplier > first.log_multiplier
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_geco_needs_normal_pixels(videos: MovingBall) -> None:
    with pytest.raises(UserError, match=r"model\.geco sets a squared error"):
        started(videos, *BALL, "model.geco=0.02")


def test_what_is_kept_is_equation_9_of_all_data(rotated: RotatedMNIST) -> None:
    """Whatever the chunks: the marginals at training points are those of a batch of all N."""
    model: SVGPVAE = started(rotated, *ROTATED).double()
    model.finalise(rotated)
    train = rotated.train
    with torch.no_grad():
        expected, _, _ = model.posterior(train.x, train.aux)
        seen = model.encode(train.x[:50], torch.arange(50), train.aux[:50])  # type: ignore[index]
        torch.testing.assert_close(seen.mean, expected.mean[:50])
        torch.testing.assert_close(seen.variance, expected.variance[:50])


def test_without_training_data_the_prediction_is_the_prior(rotated: RotatedMNIST) -> None:
    model: SVGPVAE = started(rotated, *ROTATED).double()
    assert rotated.test.aux is not None
    with torch.no_grad():
        q = model.generate(rotated.test.aux)
        prior = model.kernel(model.aux(rotated.test.x, rotated.test.aux), diag=True)
    assert (q.mean == 0).all()
    torch.testing.assert_close(q.variance, prior[:, None].expand_as(q.variance))


def test_an_unseen_image_adds_to_what_its_view_tells(rotated: RotatedMNIST) -> None:
    model: SVGPVAE = started(rotated, *ROTATED).double()
    model.finalise(rotated)
    x, aux = rotated.test.x, rotated.test.aux
    assert aux is not None
    with torch.no_grad():
        told, seen, pseudo = model.generate(aux), model.encode(x, None, aux), model.latents(model.as_float(x))
    torch.testing.assert_close(1 / seen.variance, 1 / told.variance + 1 / pseudo.variance)


def test_the_scores_of_rotated_mnist_are_those_of_unseen_views(rotated: RotatedMNIST) -> None:
    model: SVGPVAE = started(rotated, *ROTATED)
    model.finalise(rotated)
    with torch.no_grad():
        scores = rotated.scores(model)
        made = model.decode(model.generate(rotated.test.aux).mean).mean  # type: ignore[arg-type]
    assert scores["mse_mean"] == pytest.approx((made - rotated.test.x).square().mean().item())
    assert scores == rotated.scores(model) and scores["mse_sample"] != scores["mse_mean"]


def test_the_score_of_moving_ball_is_that_of_whole_videos(videos: MovingBall) -> None:
    model: SVGPVAE = started(videos, *BALL)
    with torch.no_grad():
        assert 0 < videos.scores(model)["path_rmse"] < 3


def test_object_vectors_start_at_their_scores_and_inducing_points_near_them(rotated: RotatedMNIST) -> None:
    model: SVGPVAE = started(rotated, *ROTATED)
    torch.testing.assert_close(model.aux.vectors, rotated.object_scores(8))
    angles = model.inducing[:, -1].detach()
    torch.testing.assert_close(angles, (torch.arange(32) % 16) * 2 * torch.pi / 16)
    scores = rotated.object_scores(8)
    nearest = torch.cdist(model.inducing[:, :-1].detach(), scores).min(1).values
    assert nearest.median() < torch.cdist(scores, scores).fill_diagonal_(torch.inf).min(1).values.median()
    again: SVGPVAE = started(rotated, *ROTATED)
    assert torch.equal(model.inducing, again.inducing)


def test_learned_inputs_start_with_mean_0_and_variance_1() -> None:
    data = Digits(batch_size=64, max_train=300, max_test=10)
    data.setup()
    model: SVGPVAE = started(data, "model=svgp_vae")
    assert isinstance(model.aux, Learned) and model.inducing.shape == (32, 2)
    inputs = model.aux(model.as_float(data.train.x), None)
    torch.testing.assert_close(inputs.mean(0), torch.zeros(2), atol=0.05, rtol=0)
    torch.testing.assert_close(inputs.std(0), torch.ones(2), atol=0.05, rtol=0)


def test_inputs_that_are_there_are_not_learned(videos: MovingBall) -> None:
    with pytest.raises(UserError, match=r"would ignore the auxiliary inputs of MovingBall"):
        started(videos, "model=svgp_vae")


def test_another_number_of_objects_is_refused(rotated: RotatedMNIST) -> None:
    with pytest.raises(UserError, match=r"model\.aux\.num_objects=400 must be the 20 of the dataset"):
        started(rotated, *ROTATED[:2])


def test_more_inducing_points_than_data_are_refused() -> None:
    data = Digits(batch_size=10, max_train=20, max_test=10)
    data.setup()
    with pytest.raises(UserError, match=r"model\.num_inducing=32 must not exceed the 20"):
        started(data, "model=svgp_vae")


def test_points_need_their_auxiliary_inputs(rotated: RotatedMNIST) -> None:
    with pytest.raises(UserError, match="needs the auxiliary inputs"):
        started(rotated, *ROTATED).encode(rotated.test.x)


def test_float32_is_near_float64(rotated: RotatedMNIST) -> None:
    model, batch = started(rotated, *ROTATED), first_batch(rotated)
    _, single, _ = model.posterior(batch.x, batch.aux)
    _, double, _ = model.double().posterior(batch.x, batch.aux)
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=0)


def test_objects_and_angles_make_no_tensor_on_another_device(rotated: RotatedMNIST, monkeypatch: Any) -> None:
    monkeypatch.setattr(torch, "equal", lambda a, b: a.shape == b.shape)
    model: SVGPVAE = started(rotated, *ROTATED).to("meta")
    loss = model.objective(first_batch(rotated).to(torch.device("meta"))).loss
    loss.backward()
    assert loss.device.type == "meta"


def test_the_settings_are_the_published_ones() -> None:
    rotated, ball = (composed(*overrides)["model"] for overrides in (ROTATED[:2], BALL))
    assert (rotated["latent_dim"], rotated["num_inducing"], rotated["geco"]) == (16, 32, 0.02)
    assert rotated["variance_range"] == [1e-3, 10] and rotated["optimizer"]["schedule"] == "constant"
    assert (ball["latent_dim"], ball["num_inducing"], ball["likelihood"]) == (2, 15, "bernoulli")
    assert all(setting["optimizer"]["lr"] == 1e-3 for setting in (rotated, ball))
