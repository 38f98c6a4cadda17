"""Casale's GP-VAE: its bound by dense matrices, the expansion of its prior, its phases and its predictions."""

import math
from itertools import pairwise
from typing import Any

import pytest
import torch
from pytorch_lightning import Callback, Trainer
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence

from src.data.batch import Batch
from src.models.casale_gp_vae import CasaleGPVAE
from src.runs.errors import UserError
from tests.models.builders import OBJECT_ANGLE, SMALL_NETS, Given, built, little_videos, little_views, rows
from tests.models.direct import object_angle, pseudo_observations, set_hyperparameters
from tests.models.test_contract import QUIET

VALUES = 12 * 6
ALPHA = 0.4


def views(batch_size: int | None = None) -> Given:
    """Twelve views of four objects at three of four angles, and the fourth for the test."""
    data = little_views()
    for split in (data.given, data.other):
        assert split.aux is not None
        split.aux[:, 1] *= math.pi  # of multiples of .5
    return Given(
        data.given.all().x, batch_size, aux=data.given.aux, objects=data.objects, test=data.other, told=data.told
    )


def of(data: Given, **arguments: Any) -> CasaleGPVAE:
    model: Any = set_hyperparameters(built(data, "casale_gp_vae", **SMALL_NETS, **OBJECT_ANGLE, **arguments))
    model.latent_noise.learned.noise = ALPHA
    model.initialise(data)
    assert isinstance(model, CasaleGPVAE)
    return model


def inputs_of(model: CasaleGPVAE, aux: Tensor | None) -> Tensor:
    """The vector of an object, then its angle."""
    assert aux is not None
    return torch.cat([model.aux.vectors[aux[:, 0].long()], aux[:, 1:].double()], 1)


def prior_covariance(model: CasaleGPVAE, batch: Batch) -> Tensor:
    inputs = inputs_of(model, batch.aux)
    return object_angle(model.kernel, inputs, inputs) + ALPHA * torch.eye(len(batch)).double()


def bound_directly(model: CasaleGPVAE, batch: Batch) -> dict[str, Tensor]:
    """The three terms, with -KL of dense Gaussians for the sum of prior and entropy of each channel."""
    mean, variance = pseudo_observations(model, batch.x.double())
    prior = MultivariateNormal(torch.zeros(len(batch)).double(), prior_covariance(model, batch))
    kl = torch.stack(
        [kl_divergence(MultivariateNormal(mean[:, p], variance[:, p].diag()), prior) for p in range(mean.shape[1])]
    )
    torch.manual_seed(0)
    x = model.decoder(Normal(mean, variance.sqrt()).rsample())
    fit = Normal(x, 0.3**0.5).log_prob(batch.x.double()).sum()
    return {"reconstruction": fit, "divergence": kl.sum()}


def losses(model: CasaleGPVAE, batch: Batch, objective: str = "objective") -> Tensor:
    torch.manual_seed(0)
    loss: Tensor = getattr(model, objective)(batch).loss
    return loss


def gradients(model: CasaleGPVAE, batch: Batch, objective: str = "objective") -> dict[str, Tensor]:
    found = torch.autograd.grad(losses(model, batch, objective), list(model.parameters()), materialize_grads=True)
    return dict(zip((name for name, _ in model.named_parameters()), found, strict=True))


@pytest.mark.parametrize("prior", ["exact", "taylor"])
def test_the_loss_is_the_bound_with_dense_divergences(prior: str) -> None:
    """The expansion has the exact value where it was made."""
    data = views()
    model, batch = of(data, prior=prior), rows(data)
    direct = bound_directly(model, batch)
    expected = (direct["divergence"] - direct["reconstruction"]) / VALUES
    torch.testing.assert_close(losses(model, batch), expected, rtol=1e-6, atol=1e-7)
    parts = model.objective(batch).parts
    assert not any(isinstance(part, Tensor) and part.requires_grad for part in parts.values())
    prior_and_entropy = float(parts["prior"]) + float(parts["entropy"])
    assert prior_and_entropy == pytest.approx(-direct["divergence"].item() / VALUES, rel=1e-6)


def test_products_of_rows_are_the_kernel_also_of_an_unseen_view() -> None:
    data = views()
    model = of(data)
    inputs = torch.cat([inputs_of(model, split.all().aux) for split in (data.train, data.test)])
    v = model.rows_at(inputs)
    assert v.shape == (16, 4 * 2)
    expected = object_angle(model.kernel, inputs, inputs)
    torch.testing.assert_close(v @ v.mT, expected, rtol=1e-5, atol=1e-5 * expected.abs().max().item())


@pytest.mark.parametrize("objective", ["objective", "gp_bound"])
def test_the_gradient_of_the_expansion_is_the_exact_one_in_all_parameters(objective: str) -> None:
    data = views()
    data.setup()
    batch = rows(data)
    exact, taylor = (gradients(of(data, prior=prior), batch, objective) for prior in ("exact", "taylor"))
    assert {name for name, gradient in exact.items() if gradient.any()} >= {"aux.vectors", "kernel.raw_outputscale"}
    for name, gradient in exact.items():
        torch.testing.assert_close(taylor[name], gradient, rtol=1e-5, atol=1e-9, msg=name)


def test_the_mean_over_batches_is_the_full_objective() -> None:
    data = views()
    model = of(data)
    order = torch.randperm(12, generator=torch.Generator().manual_seed(1))
    parts = [model.gp_bound(data.train[index]).loss for index in order.split(4)]
    torch.testing.assert_close(torch.stack(parts).mean(), model.gp_bound(rows(data)).loss)


def test_the_expansion_is_a_constant_until_it_is_made_again() -> None:
    """After a step the gradient is still that of the point of expansion; a new expansion is exact again."""
    data = views()
    model, batch = of(data), rows(data)
    before = gradients(model, batch, "gp_bound")["latent_noise.learned.noise_covar.raw_noise"]
    with torch.no_grad():
        model.kernel.base_kernel.raw_lengthscale.add_(0.5)
    stale = gradients(model, batch, "gp_bound")["latent_noise.learned.noise_covar.raw_noise"]
    torch.testing.assert_close(stale, before)
    model.expand_prior(data.train)
    exact = of(data, prior="exact")
    exact.load_state_dict({k: v for k, v in model.state_dict().items() if "taylor" not in k}, strict=False)
    for name, gradient in gradients(exact, batch, "gp_bound").items():
        torch.testing.assert_close(gradients(model, batch, "gp_bound")[name], gradient, rtol=1e-5, atol=1e-9)


def test_the_bound_of_the_vae_has_a_standard_normal_prior() -> None:
    data = views()
    model, batch = of(data), rows(data)
    mean, variance = pseudo_observations(model, batch.x.double())
    kl = kl_divergence(Normal(mean, variance.sqrt()), Normal(torch.zeros_like(mean), 1.0)).sum()
    expected = (kl - bound_directly(model, batch)["reconstruction"]) / VALUES
    torch.testing.assert_close(losses(model, batch, "vae_bound"), expected)


def test_unseen_views_are_predicted_by_gp_regression_of_uncertain_latents() -> None:
    data = views()
    model = of(data)
    train, test = data.train.all(), data.test.all()
    assert test.aux is not None
    at, known = inputs_of(model, test.aux), inputs_of(model, train.aux)
    prior = object_angle(model.kernel, at, at).diagonal()
    with torch.no_grad():
        before = model.generate(test.aux)
        model.finalise(data)
        told = model.generate(test.aux)
        mean, variance = pseudo_observations(model, train.x.double())
    gain = torch.linalg.solve(prior_covariance(model, train), object_angle(model.kernel, known, at)).mT
    regression = prior - (gain * object_angle(model.kernel, at, known)).sum(1)
    expected = regression[:, None] + gain.square() @ variance
    assert (before.mean == 0).all()
    torch.testing.assert_close(before.variance, prior[:, None].expand(4, 2), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(told.mean, gain @ mean, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(told.variance, expected, rtol=1e-5, atol=1e-5)


def test_with_certain_latents_it_predicts_as_the_exact_gp_vae_with_observations_of_that_noise() -> None:
    """q(z) without variance, here; pseudo-observations of variance alpha, there."""
    data = views()
    one_channel = {"latent_dim": 1}
    model = of(data, variance_range=[1e-12, 1e-12], **one_channel)
    options = {**SMALL_NETS, **OBJECT_ANGLE, **one_channel, "likelihood": "gaussian"}
    other: Any = built(data, "gp_vae", **options, variance_range=[ALPHA, ALPHA])
    shared = {name: value for name, value in model.state_dict().items() if not name.startswith(("taylor", "known"))}
    other.load_state_dict(shared, strict=False)
    test = data.test.all()
    assert test.aux is not None
    with torch.no_grad():
        for each in (model, other):
            each.finalise(data)
        ours, theirs = model.generate(test.aux), other.generate(test.aux)
    torch.testing.assert_close(ours.mean, theirs.mean, rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(ours.variance, theirs.variance, rtol=1e-5, atol=1e-6)


def test_views_between_the_angles_keep_the_variance_that_the_rows_leave_out() -> None:
    model = of(views())
    aux = torch.tensor([[2.0, 0.7]])
    inputs = inputs_of(model, aux)
    assert model.rows_at(inputs).square().sum() < 0.999 * object_angle(model.kernel, inputs, inputs)
    with torch.no_grad():
        variance = model.generate(aux).variance
    torch.testing.assert_close(variance, object_angle(model.kernel, inputs, inputs).expand(1, 2))


def test_the_encoder_is_q_of_seen_and_unseen_points() -> None:
    data = views()
    model = of(data)
    for split, seen in ((data.train, True), (data.test, False)):
        q = model.encode(split.all(), seen)
        mean, variance = pseudo_observations(model, split.all().x.double())
        torch.testing.assert_close((q.mean, q.variance), (mean, variance))


def test_unseen_points_with_holes_are_refined_towards_what_the_training_data_say() -> None:
    data = views()
    model = of(data)
    model.finalise(data)
    test = data.test.all()
    nothing = Batch(test.x, test.index, aux=test.aux, mask=torch.zeros(4, 6, dtype=torch.bool))
    assert test.aux is not None
    q, f = model.encode(nothing, seen=False), model.generate(test.aux)
    assert isinstance(q, Independent)
    told = Independent(Normal(f.mean, (f.variance + ALPHA).sqrt()), 1)  # z has the latent noise, too
    assert (kl_divergence(q, told) < 0.01 * kl_divergence(model.recognise(nothing), told)).all()


def trained(data: Given, epochs: int, **arguments: Any) -> tuple[CasaleGPVAE, list[dict[str, Tensor]]]:
    """A model, and its parameters at the start and after every epoch."""
    model = of(data, **arguments)
    kept: list[dict[str, Tensor]] = []

    class Keep(Callback):
        def on_train_epoch_start(self, *_: Any) -> None:
            kept.append({name: p.detach().clone() for name, p in model.named_parameters()})

        def on_train_end(self, *_: Any) -> None:
            self.on_train_epoch_start()

    Trainer(max_epochs=epochs, callbacks=[Keep()], **QUIET).fit(model.train(), datamodule=data)
    return model, kept


def test_the_phases_train_the_vae_then_the_gp_then_everything() -> None:
    """Of each epoch: which parameters it moved."""
    model, kept = trained(views(6), 3, vae_epochs=1, gp_epochs=1)
    gp = {name for name, _ in model.named_parameters() if name.startswith(("kernel", "aux", "latent_noise"))}
    everything = {name for name, _ in model.named_parameters()}
    moved = [{n for n in everything if not torch.equal(a[n], b[n])} for a, b in pairwise(kept)]
    assert moved == [everything - gp, gp, everything]


def test_each_epoch_expands_the_prior_anew_unless_it_trains_the_vae(monkeypatch: pytest.MonkeyPatch) -> None:
    data, epochs = views(6), []
    model = of(data, vae_epochs=2)
    monkeypatch.setattr(model, "expand_prior", lambda train: epochs.append(model.current_epoch))
    Trainer(max_epochs=4, **QUIET).fit(model.train(), datamodule=data)
    assert epochs == [2, 3]


def test_object_vectors_learn_at_the_rate_of_the_gp() -> None:
    model = of(views())
    gp = {id(p) for p in model.rates(model.phases[0]).gp}
    assert {name for name, p in model.named_parameters() if id(p) in gp} == {
        "aux.vectors",
        "kernel.raw_outputscale",
        "kernel.base_kernel.raw_lengthscale",
        "latent_noise.learned.noise_covar.raw_noise",
    }


def test_what_it_cannot_do_is_refused() -> None:
    with pytest.raises(UserError, match=r"model\.prior=exact needs all 12 points in every batch"):
        of(views(6), prior="exact")
    with pytest.raises(UserError, match=r"model\.prior=best is neither taylor nor exact"):
        of(views(), prior="best")
    with pytest.raises(UserError, match=r"set model\.vae_epochs too"):
        of(views(), gp_epochs=3)
    with pytest.raises(UserError, match="needs the kernel ObjectAngleKernel on inputs ObjectAngle"):
        built(views(), "casale_gp_vae", **SMALL_NETS, kernel={"_target_": "src.gp.kernels.rbf"})
    with pytest.raises(UserError, match="the dataset has video and time, so no object"):
        built(little_videos(), "casale_gp_vae", **SMALL_NETS)
