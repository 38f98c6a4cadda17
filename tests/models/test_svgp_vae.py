"""SVGP-VAE: its bound by dense matrices, its batches, GECO's iterates, and prediction from all training data."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_lightning import Trainer
from torch import Tensor
from torch.distributions import Bernoulli, Normal

from src.data.batch import Batch
from src.models.gp_vae import GPVAE
from src.models.svgp_vae import SVGPVAE
from src.runs.errors import UserError
from tests.configs import composed
from tests.models.builders import (
    OBJECT_ANGLE,
    SMALL_NETS,
    Given,
    built,
    far_curve,
    first_batch,
    little_videos,
    little_views,
    rows,
    started,
)
from tests.models.direct import (
    object_angle,
    pseudo_observations,
    rbf,
    set_hyperparameters,
    slopes,
    sparse_posterior,
    with_jitter,
)

VIDEOS: dict[str, Any] = {
    **SMALL_NETS,
    "aux": {"_target_": "src.models.auxiliary.VideoTime"},
    "kernel": {"_target_": "src.gp.kernels.rbf"},
    "likelihood": "bernoulli",
}
VIEWS: dict[str, Any] = {**SMALL_NETS, **OBJECT_ANGLE, "num_inducing": 4}


def of_views(data: Given, **arguments: Any) -> Any:
    model = built(data, "svgp_vae", **VIEWS, **arguments)
    return set_hyperparameters(model, noise=0.3 if model.geco is None else None)


def of_videos(num_inducing: int, seed: int = 0) -> Any:
    model = built(little_videos(), "svgp_vae", **VIDEOS, num_inducing=num_inducing, seed=seed)
    return set_hyperparameters(model, noise=None)


def inputs_of(model: Any, aux: Tensor) -> Tensor:
    """The vector of an object, then its angle."""
    return torch.cat([model.aux.vectors[aux[:, 0].long()], aux[:, 1:].double()], 1)


def directly(
    model: Any, x: Tensor, inputs: Tensor, kernel: Callable[..., Tensor], repeats: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of q(z) and sum_l KL[q(f_m) || p(f_m)] from points that count `repeats` times."""
    y, s2 = pseudo_observations(model, x)
    k_mm = with_jitter(kernel(model.kernel, model.inducing, model.inducing))
    k_bm, k_bb = kernel(model.kernel, inputs, model.inducing), kernel(model.kernel, inputs, inputs).diagonal()
    channels = [sparse_posterior(k_mm, k_bm, k_bb, y[:, c], s2[:, c], repeats) for c in range(y.shape[1])]
    mean, variance, kl = (torch.stack(parts, -1) for parts in zip(*channels, strict=True))
    return mean, variance, kl.sum()


def videos_directly(model: Any, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """The same for videos, each with a function of its own that is there as a whole."""
    assert batch.aux is not None
    mean, variance = (torch.zeros(len(batch), 2, dtype=torch.float64) for _ in range(2))
    total = torch.zeros((), dtype=torch.float64)
    for video in batch.aux[:, 0].unique():
        own = batch.aux[:, 0] == video
        mean[own], variance[own], kl = directly(model, batch.x[own].double(), batch.aux[own, 1:].double(), rbf, 1.0)
        total = total + kl
    return mean, variance, total


def test_the_loss_of_a_batch_of_views_is_the_bound() -> None:
    """E_q[log p(x | z)] - (b / N) sum_l KL, per value, with q from a batch that counts N / b times."""
    data = little_views(batch_size=4)
    model = of_views(data)
    for index in ([0, 5, 2, 9], [3, 11, 1, 6]):
        batch = rows(data, *index)
        assert batch.aux is not None
        x = batch.x.double()
        mean, variance, kl = directly(model, x, inputs_of(model, batch.aux), object_angle, 12 / 4)
        torch.manual_seed(0)
        decoded = model.decoder(Normal(mean, variance.sqrt()).rsample())
        fit = Normal(decoded, 0.3**0.5).log_prob(x).sum()
        torch.manual_seed(0)
        loss, parts = model.objective(batch)
        torch.testing.assert_close(loss, (4 / 12 * kl - fit) / (4 * 6), rtol=1e-6, atol=0)
        torch.testing.assert_close(parts["kl"], -(4 / 12 * kl).detach() / (4 * 6), rtol=1e-6, atol=0)


def test_the_loss_of_videos_is_the_bound_of_each() -> None:
    model = of_videos(3)
    data = little_videos()
    data.setup()
    batch = rows(data)
    mean, variance, kl = videos_directly(model, batch)
    torch.manual_seed(0)
    logits = model.decoder(Normal(mean, variance.sqrt()).rsample())
    fit = Bernoulli(logits=logits).log_prob(batch.x.double()).sum()
    torch.manual_seed(0)
    torch.testing.assert_close(model.objective(batch).loss, (kl - fit) / (8 * 6), rtol=1e-6, atol=0)


def test_the_loss_with_geco_is_the_error_and_the_weighted_divergence() -> None:
    """(mse - geco) + (b / N) KL / lambda, with KL summed over points and channels; lambda is no parameter."""
    data = little_views(batch_size=4)
    model = of_views(data, geco=0.02)
    model.log_multiplier.fill_(0.7)
    batch = rows(data, 0, 5, 2, 9)
    assert batch.aux is not None
    mean, variance, kl = directly(model, batch.x.double(), inputs_of(model, batch.aux), object_angle, 12 / 4)
    torch.manual_seed(0)
    decoded = model.decoder(Normal(mean, variance.sqrt()).rsample())
    error = ((batch.x.double() - decoded) ** 2).sum() / (4 * 6)
    torch.manual_seed(0)
    loss, parts = model.objective(batch)
    expected = error - 0.02 + torch.exp(torch.tensor(-0.7).double()) * 4 / 12 * kl
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(parts["mse"], error.detach(), rtol=1e-6, atol=0)
    torch.testing.assert_close(parts["kl"], -(4 / 12 * kl).detach() / (4 * 6), rtol=1e-6, atol=0)
    assert parts["log_multiplier"].item() == pytest.approx(0.7)


def test_a_batch_of_n_over_k_points_is_that_batch_tiled_k_times() -> None:
    """The same q, and 1 / k of the divergence."""
    data = little_views(batch_size=4)
    model = of_views(data)
    batch = rows(data, 0, 5, 2, 9)
    assert batch.aux is not None
    tiled = Batch.of(batch.x.repeat(3, 1), batch.aux.repeat(3, 1))  # N = 12 points
    q, kl, _ = model.posterior(batch)
    expected, whole, _ = model.posterior(tiled)
    torch.testing.assert_close(q.mean.repeat(3, 1), expected.mean)
    torch.testing.assert_close(q.variance.repeat(3, 1), expected.variance)
    torch.testing.assert_close(3 * kl, whole)
    torch.testing.assert_close(model.objective(batch).parts["kl"], model.objective(tiled).parts["kl"])


def test_twice_the_data_make_q_sharper_and_a_batchs_share_of_the_divergence_smaller() -> None:
    """A batch of b among 2 N points counts 2 N / b times, and stands for b / (2 N) of the divergence."""
    data, doubled = little_views(batch_size=4), little_views(batch_size=4, num_train=24)
    model, larger = of_views(data), of_views(doubled)
    larger.load_state_dict(model.state_dict())
    batch = rows(data, 0, 5, 2, 9)
    assert batch.aux is not None
    _, variance, kl = directly(model, batch.x.double(), inputs_of(model, batch.aux), object_angle, 24 / 4)
    q, part, _ = larger.posterior(batch)
    torch.testing.assert_close(q.variance, variance, rtol=1e-6, atol=0)
    torch.testing.assert_close(part, 4 / 24 * kl, rtol=1e-6, atol=0)
    assert (q.variance < model.posterior(batch)[0].variance).all()


def test_inducing_points_at_all_times_give_the_bound_of_gp_vae() -> None:
    """With all times of a video among Z its f_m is z and more, so q and KL are the exact ones (1e-5, by the jitter)."""
    sparse = of_videos(5)
    exact: GPVAE = set_hyperparameters(built(little_videos(), "gp_vae", **SMALL_NETS), noise=None)
    exact.load_state_dict(sparse.state_dict(), strict=False)
    data = little_videos()
    data.setup()
    batch = rows(data)
    torch.testing.assert_close(sparse.inducing.squeeze(1), torch.arange(5.0).double())
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


def test_fewer_inducing_points_give_less() -> None:
    """The collapsed bound log Z of the pseudo-data lies below, and with it KL - E_q[log q~] above, the exact one."""
    exact: GPVAE = set_hyperparameters(built(little_videos(), "gp_vae", **SMALL_NETS), noise=None)
    data = little_videos()
    data.setup()
    batch = rows(data)
    values = []
    for model in (exact, of_videos(2), of_videos(4)):
        model.load_state_dict(exact.state_dict(), strict=False)
        pseudo = model.latents(model.as_float(batch.x))
        q, kl, _ = model.posterior(batch)
        expected = -((pseudo.mean - q.mean).square() + q.variance) / (2 * pseudo.variance)
        values.append((expected.sum() - kl).item())
    assert values[1] < values[2] < values[0]


@pytest.mark.parametrize("geco", [0.02, None])
def test_gradients_reach_everything(geco: float | None) -> None:
    data = little_views(batch_size=4)
    model = of_views(data, geco=geco)
    batch = rows(data, 0, 1, 2, 3)
    model.objective(batch).loss.backward()
    frozen = ["likelihood.learned.noise_covar.raw_noise"] if geco is not None else []
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == frozen
    assert batch.aux is not None
    seen = model.aux.vectors.grad.any(1)
    assert set(seen.nonzero().flatten().tolist()) == set(batch.aux[:, 0].long().tolist())


@pytest.mark.parametrize("geco", [0.02, None])
def test_the_gradient_is_the_slope_of_the_loss(geco: float | None) -> None:
    """Of the inducing points too, which enter through two covariances."""
    data = little_views(batch_size=4)
    model = of_views(data, geco=geco)
    by_gradient, by_values = slopes(model, rows(data, 0, 5, 2, 9))
    assert by_gradient == pytest.approx(by_values, rel=1e-5)


def test_geco_sets_the_noise_of_a_pixel_and_keeps_it() -> None:
    model = of_views(little_views(), geco=0.02)
    assert model.likelihood.noise.item() == pytest.approx(0.02, rel=1e-5)
    assert not any(p.requires_grad for p in model.likelihood.parameters())
    decoded = model.decode(torch.zeros(1, 2).double())
    torch.testing.assert_close(decoded.variance, torch.full((1, 6), 0.02).double(), rtol=1e-5, atol=0)


def published_step(model: Any, batch: Batch, adam: torch.optim.Adam, state: dict[str, Tensor]) -> None:
    """GECO as published: (b / N) KL + lambda (c + stopgrad(C - c)), with a lambda that grows without bound."""
    q, kl, _ = model.posterior(batch)
    error = (model.as_float(batch.x) - model.decoder(q.rsample())).square().flatten(1).mean(1)
    c = error.mean() - 0.02
    alpha = 0.99 if state else 0.0
    average = alpha * state.get("C", torch.zeros(())) + (1 - alpha) * c.detach()
    multiplier = state.get("lambda", torch.tensor(1.0))
    adam.zero_grad()
    (kl + multiplier * (c + (average - c).detach())).backward()
    adam.step()
    state |= {"C": average, "lambda": multiplier * average.exp()}


def test_geco_has_the_iterates_of_the_unbounded_recipe() -> None:
    data = little_views(batch_size=4)
    model = of_views(data, geco=0.02)
    reference, batch = deepcopy(model), rows(data, 0, 5, 2, 9)
    ours, theirs = (
        torch.optim.Adam([p for p in m.parameters() if p.requires_grad], lr=1e-3, eps=1e-40)  # whose scale is nothing
        for m in (model, reference)
    )
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


def trained(data: Given, epochs: int, resume: Path | None = None) -> tuple[SVGPVAE, Trainer]:
    model: SVGPVAE = started(data, "model=svgp_vae", "optimizer.schedule=constant", **VIEWS, geco=0.02)
    quiet: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = Trainer(max_epochs=epochs, accelerator="cpu", enable_checkpointing=False, **quiet)
    trainer.fit(model.train(), datamodule=data, ckpt_path=resume, weights_only=True)
    return model, trainer


def test_an_interrupted_run_with_geco_is_continued_exactly(tmp_path: Path) -> None:
    data = little_views(batch_size=4)
    whole, _ = trained(data, 3)
    first, trainer = trained(data, 1)
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    resumed, _ = trained(data, 3, tmp_path / "last.ckpt")
    assert first.log_multiplier != 0 and resumed.log_multiplier > first.log_multiplier
    for name, value in whole.state_dict().items():
        assert torch.equal(value, resumed.state_dict()[name]), name


def test_what_geco_cannot_work_with_is_refused() -> None:
    with pytest.raises(UserError, match=r"model\.geco sets a squared error"):
        built(little_videos(), "svgp_vae", **VIDEOS, num_inducing=3, geco=0.02)
    sgd = composed("model=svgp_vae")["model"]["optimizer"] | {
        "algorithm": {"_target_": "torch.optim.SGD", "_partial_": True}
    }
    with pytest.raises(UserError, match=r"rescales the moments of Adam.*use optimizer=adam or optimizer=adamw"):
        of_views(little_views(), geco=0.02, optimizer=sgd)
    of_views(little_views(), optimizer=sgd)


def test_what_is_kept_is_equation_9_of_all_data() -> None:
    """The marginals at training points are those of a batch of all N, and unseen views follow by Eq. 3."""
    data = little_views(batch_size=4)
    model = of_views(data)
    model.finalise(data)
    train, test = data.train.all(), data.test.all()
    assert train.aux is not None and test.aux is not None
    x = train.x.double()
    with torch.no_grad():
        mean, variance, _ = directly(model, x, inputs_of(model, train.aux), object_angle, 1.0)
        seen = model.encode(Batch(train.x[:5], train.index[:5], aux=train.aux[:5]), seen=True)
        told = model.generate(test.aux)
        y, s2 = pseudo_observations(model, x)
        k_mm = with_jitter(object_angle(model.kernel, model.inducing, model.inducing))
        k_bm = object_angle(model.kernel, inputs_of(model, train.aux), model.inducing)
        k_xm = object_angle(model.kernel, inputs_of(model, test.aux), model.inducing)
        for channel in range(2):
            sigma = k_mm + k_bm.mT @ (k_bm / s2[:, channel, None])
            expected = k_xm @ torch.linalg.solve(sigma, k_bm.mT @ (y[:, channel] / s2[:, channel]))
            torch.testing.assert_close(told.mean[:, channel], expected, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(seen.mean, mean[:5], rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(seen.variance, variance[:5], rtol=1e-6, atol=1e-8)


def test_without_training_data_the_prediction_is_the_prior() -> None:
    data = little_views()
    model = of_views(data)
    assert data.test.aux is not None
    with torch.no_grad():
        q = model.generate(data.test.aux)
        at = inputs_of(model, data.test.aux)
        prior = object_angle(model.kernel, at, at).diagonal()
    assert (q.mean == 0).all()
    torch.testing.assert_close(q.variance, prior[:, None].expand_as(q.variance))


def test_object_vectors_start_at_their_scores_and_inducing_points_near_them() -> None:
    data = little_views()
    model, again = (of_views(data) for _ in range(2))
    pixels = data.objects.double() / 255  # type: ignore[union-attr]
    u, s, _ = torch.linalg.svd(pixels - pixels.mean(0), full_matrices=False)
    torch.testing.assert_close(model.aux.vectors.abs(), (u * s)[:, :2].abs(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.inducing[:, -1].detach(), torch.arange(4).double() * torch.pi / 2)
    assert torch.equal(model.inducing, again.inducing)


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match=r"would ignore the auxiliary columns video and time"):
        built(little_videos(), "svgp_vae")
    with pytest.raises(UserError, match=r"model\.num_inducing=13 must not exceed the 12 training points"):
        built(Given(far_curve(12)), "svgp_vae", num_inducing=13)


def test_float32_is_near_float64() -> None:
    data = little_views()
    model = of_views(data)
    double = model.posterior(rows(data))[1]
    single = model.float().posterior(rows(data))[1]
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=0)


def test_objects_and_angles_make_no_tensor_on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "equal", lambda a, b: a.shape == b.shape)
    data = little_views(batch_size=4)
    model = of_views(data).to("meta")
    loss = model.objective(first_batch(data).to(torch.device("meta"))).loss
    loss.backward()
    assert loss.device.type == "meta"


def test_the_settings_are_the_published_ones() -> None:
    rotated, ball = (
        composed("model=svgp_vae", f"dataset={name}")["model"] for name in ("rotated_mnist", "moving_ball")
    )
    assert (rotated["latent_dim"], rotated["num_inducing"], rotated["geco"]) == (16, 32, 0.02)
    assert rotated["variance_range"] == [1e-3, 10] and rotated["optimizer"]["schedule"] == "constant"
    assert (ball["latent_dim"], ball["num_inducing"], ball["likelihood"]) == (2, 15, "bernoulli")
    assert all(setting["optimizer"]["lr"] == 1e-3 for setting in (rotated, ball))


@pytest.mark.parametrize("size", [4, 5, 12])
def test_the_bias_is_that_of_the_mean_of_eq_9_over_batches(size: int) -> None:
    """mu_b = (N / b) K_mm Sigma_b^-1 K_mb (y / s2) of whole batches, against b = N, by explicit inverses."""
    data = little_views(size)
    model = of_views(data)
    train = data.train.all()
    assert train.aux is not None
    with torch.no_grad():
        y, s2 = pseudo_observations(model, train.x.double())
        k_mm = with_jitter(object_angle(model.kernel, model.inducing, model.inducing))
        k_mb = object_angle(model.kernel, model.inducing, inputs_of(model, train.aux))

        def mu(rows: Tensor) -> Tensor:
            k, scale = k_mb[:, rows], 12 / len(rows)
            sigma = [k_mm + scale * (k / s2[rows, c]) @ k.mT for c in range(2)]
            shift = [scale * k @ (y[rows, c] / s2[rows, c]) for c in range(2)]
            return torch.stack([k_mm @ torch.linalg.inv(s) @ b for s, b in zip(sigma, shift, strict=True)], 1)

        order = torch.randperm(12, generator=torch.Generator().manual_seed(0))
        batches = [mu(rows) for rows in order.split(size) if len(rows) == size]
        difference = torch.stack(batches).mean(0) - mu(torch.arange(12))
        traced = model.trace_closely(data)
    assert traced["bias"] == pytest.approx((difference.abs().sum(0).mean() / 4).item(), rel=1e-4, abs=1e-9)
    assert traced.keys() == {"bias"}
    assert model.trace(data).keys() == {"kernel_variance", "lengthscale", "noise", "noise_share"}
    assert (traced["bias"] < 1e-9) == (size == 12)


def test_length_scale_and_inducing_times_of_videos_are_traced_in_order() -> None:
    model = of_videos(3)
    with torch.no_grad():
        model.inducing.copy_(torch.tensor([[3.0], [0.5], [1.5]]))
    expected = {
        "lengthscale": 0.8,
        "inducing_0": 0.5,
        "inducing_1": 1.5,
        "inducing_2": 3.0,
    }
    data = little_videos()
    data.setup()
    assert model.trace(data) == pytest.approx(expected)
    assert model.trace_closely(data) == {}
