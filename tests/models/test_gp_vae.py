"""GP-VAE: Pearce's bound by dense matrices, whatever the order of the frames, and what it refuses."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Bernoulli, MultivariateNormal, Normal, kl_divergence

from src.data.batch import Batch
from src.models.gp_vae import GPVAE
from src.runs.errors import UserError
from tests.models.builders import OBJECT_ANGLE, SMALL_NETS, Given, built, far_curve, little_videos, little_views, rows
from tests.models.direct import object_angle, posterior_of_channel, pseudo_observations, rbf, set_hyperparameters


def of_videos(**arguments: Any) -> GPVAE:
    model: GPVAE = set_hyperparameters(built(little_videos(), "gp_vae", **SMALL_NETS, **arguments), noise=None)
    return model


def of_views(data: Given, **arguments: Any) -> GPVAE:
    options = {**SMALL_NETS, **OBJECT_ANGLE, "likelihood": "gaussian", **arguments}
    model: GPVAE = set_hyperparameters(built(data, "gp_vae", **options))
    return model


class Direct:
    """q(z) of a batch in its own order, and KL[q || GP] as Pearce's two terms, group by group, channel by channel."""

    def __init__(self, model: GPVAE, batch: Batch, groups: list[list[int]], inputs: Tensor, kernel: Any) -> None:
        y, s2 = pseudo_observations(model, batch.x.double())
        self.mean, self.variance = torch.empty_like(y), torch.empty_like(y)
        log_z = torch.zeros((), dtype=torch.float64)
        for group in groups:
            k = kernel(model.kernel, inputs[group], inputs[group])
            for channel in range(y.shape[1]):
                mean, covariance = posterior_of_channel(k, y[group, channel], s2[group, channel])
                self.mean[group, channel], self.variance[group, channel] = mean, covariance.diagonal()
                evidence = MultivariateNormal(torch.zeros_like(mean), k + s2[group, channel].diag())
                log_z = log_z + evidence.log_prob(y[group, channel])
        self.kl = (Normal(y, s2.sqrt()).log_prob(self.mean) - self.variance / (2 * s2)).sum() - log_z


def videos_directly(model: GPVAE, batch: Batch) -> Direct:
    assert batch.aux is not None
    numbers = batch.aux[:, 0]
    groups = [(numbers == video).nonzero().flatten().tolist() for video in numbers.unique()]
    return Direct(model, batch, groups, batch.aux[:, 1:].double(), rbf)


def views_directly(model: Any, batch: Batch) -> Direct:
    assert batch.aux is not None
    return Direct(model, batch, [list(range(len(batch)))], inputs_of(model, batch.aux), object_angle)


def inputs_of(model: Any, aux: Tensor) -> Tensor:
    """The vector of an object, then its angle."""
    return torch.cat([model.aux.vectors[aux[:, 0].long()], aux[:, 1:].double()], 1)


def test_the_loss_of_videos_is_the_bound_with_the_bernoulli_density_of_torch() -> None:
    model, batch = of_videos(), rows(loaded(little_videos()))
    direct = videos_directly(model, batch)
    torch.manual_seed(0)
    logits = model.decoder(Normal(direct.mean, direct.variance.sqrt()).rsample())
    fit = Bernoulli(logits=logits).log_prob(batch.x.double()).sum()
    torch.manual_seed(0)
    loss, parts = model.objective(batch)
    torch.testing.assert_close(loss, (direct.kl - fit) / (8 * 6))
    torch.testing.assert_close(parts["reconstruction"], fit.detach() / (8 * 6))
    torch.testing.assert_close(parts["kl"], -direct.kl.detach() / (8 * 6))


def test_the_loss_of_views_is_the_bound_of_one_gp() -> None:
    data = little_views()
    model = of_views(data)
    batch = rows(data)
    direct = views_directly(model, batch)
    torch.manual_seed(0)
    decoded = model.decoder(Normal(direct.mean, direct.variance.sqrt()).rsample())
    fit = Normal(decoded, 0.3**0.5).log_prob(batch.x.double()).sum()
    torch.manual_seed(0)
    torch.testing.assert_close(model.objective(batch).loss, (direct.kl - fit) / (12 * 6), rtol=1e-6, atol=1e-8)


def loaded(data: Given) -> Given:
    data.setup()
    return data


def test_the_divergence_is_that_of_two_gaussians() -> None:
    """Pearce's two terms, E_q[log N(z | y, s2)] - log Z, are KL[q || GP], summed over videos and channels."""
    model, batch = of_videos(), rows(loaded(little_videos()))
    assert batch.aux is not None
    y, s2 = pseudo_observations(model, batch.x.double())
    expected = torch.zeros((), dtype=torch.float64)
    for video in (3, 7):
        own = batch.aux[:, 0] == video
        k = rbf(model.kernel, batch.aux[own, 1:].double(), batch.aux[own, 1:].double())
        prior = MultivariateNormal(torch.zeros(len(k)).double(), k)
        for channel in range(2):
            q = MultivariateNormal(*posterior_of_channel(k, y[own, channel], s2[own, channel]))
            expected = expected + kl_divergence(q, prior)
    q_of_batch, kl, jitter = model.posterior(batch)
    direct = videos_directly(model, batch)
    torch.testing.assert_close(kl, expected)
    torch.testing.assert_close(kl, direct.kl)
    torch.testing.assert_close(q_of_batch.mean, direct.mean)
    torch.testing.assert_close(q_of_batch.variance, direct.variance)
    assert jitter == 0


def test_the_order_of_the_frames_does_not_matter() -> None:
    model, batch = of_videos(), rows(loaded(little_videos()))
    shuffle = torch.randperm(8, generator=torch.Generator().manual_seed(1))
    assert batch.aux is not None
    q, kl, _ = model.posterior(batch)
    shuffled, same, _ = model.posterior(Batch.of(batch.x[shuffle], batch.aux[shuffle]))
    torch.testing.assert_close(kl, same)
    torch.testing.assert_close(q.mean[shuffle], shuffled.mean)
    torch.testing.assert_close(q.variance[shuffle], shuffled.variance)


def test_videos_that_are_not_whole_are_encoded_by_the_frames_there_are() -> None:
    model, everything = of_videos(), rows(loaded(little_videos()))
    assert everything.aux is not None
    for number in (3, 7):
        own = everything.aux[:, 0] == number
        alone = Batch.of(everything.x[own], everything.aux[own])
        for seen in (True, False):
            q = model.encode(alone, seen)
            torch.testing.assert_close(q.mean, model.encode(everything, seen).mean[own])
            torch.testing.assert_close(q.variance, model.encode(everything, seen).variance[own])


def test_frames_of_a_video_inform_each_other() -> None:
    model, batch = of_videos(), rows(loaded(little_videos()))
    assert batch.aux is not None
    with torch.no_grad():
        together = model.encode(batch, seen=False).variance
        frames = [Batch.of(batch.x[i : i + 1], batch.aux[i : i + 1]) for i in range(8)]
        alone = torch.cat([model.encode(frame, seen=False).variance for frame in frames])
    assert (together < alone).all()


def test_the_mean_over_batches_of_videos_is_the_loss_of_all() -> None:
    """Videos share nothing: divergences add up, and per value the loss of all is the mean of those of equal batches."""
    model, batch = of_videos(), rows(loaded(little_videos()))
    assert batch.aux is not None
    parts = [batch.aux[:, 0] == video for video in (3, 7)]
    kls = [model.posterior(Batch.of(batch.x[own], batch.aux[own]))[1] for own in parts]
    torch.testing.assert_close(torch.stack(kls).sum(), model.posterior(batch)[1])
    again = batch.aux + torch.tensor([10.0, 0.0])  # the same frames as other videos
    both = Batch.of(batch.x.repeat(2, 1), torch.cat([batch.aux, again]))
    torch.testing.assert_close(model.objective(both).parts["kl"], model.objective(batch).parts["kl"])


def test_the_number_of_data_does_not_enter_the_bound_of_whole_videos() -> None:
    data = little_videos()
    data.told |= {"num_train": 800}
    larger: GPVAE = set_hyperparameters(built(data, "gp_vae", **SMALL_NETS), noise=None)
    batch = rows(data)
    torch.testing.assert_close(larger.objective(batch).parts["kl"], of_videos().objective(batch).parts["kl"])


def test_float32_is_near_float64() -> None:
    model, batch = of_videos(), rows(loaded(little_videos()))
    double = model.posterior(batch)[1]
    single = model.float().posterior(batch)[1]
    torch.testing.assert_close(single.double(), double, rtol=1e-3, atol=0)


def test_a_whole_set_is_one_gp_that_the_checkpoint_keeps() -> None:
    """Unseen views are predicted from all training views by GP regression, of which nothing is known before."""
    data = little_views()
    model: Any = of_views(data)
    model.objective(rows(data)).loss.backward()
    assert [n for n, p in model.named_parameters() if p.grad is None or not p.grad.any()] == []
    train, test = data.train.all(), data.test.all()
    assert train.aux is not None and test.aux is not None
    with torch.no_grad():
        before = model.generate(test.aux)
        model.finalise(data)
        told = model.generate(test.aux)
        y, s2 = pseudo_observations(model, train.x.double())
        inputs, at = (inputs_of(model, aux) for aux in (train.aux, test.aux))
        k, k_x = object_angle(model.kernel, inputs, inputs), object_angle(model.kernel, inputs, at)
        prior = object_angle(model.kernel, at, at).diagonal()
    assert (before.mean == 0).all()
    torch.testing.assert_close(before.variance, prior[:, None].expand(4, 2))
    for channel in range(2):
        gain = torch.linalg.solve(k + s2[:, channel].diag(), k_x).mT
        torch.testing.assert_close(told.mean[:, channel], gain @ y[:, channel])
        torch.testing.assert_close(told.variance[:, channel], prior - (gain * k_x.mT).sum(1))
    direct = views_directly(model, train)
    some = Batch(train.x[:5], train.index[:5], aux=train.aux[:5])
    with torch.no_grad():
        seen, unseen = model.encode(some, seen=True), model.encode(test, seen=False)
    torch.testing.assert_close(seen.mean, direct.mean[:5].detach())
    torch.testing.assert_close(seen.variance, direct.variance[:5].detach())
    assert (unseen.variance < told.variance).all()


def test_a_set_that_is_too_large_or_comes_in_batches_is_refused() -> None:
    with pytest.raises(UserError, match=r"exact GP of all 12 points at once.*dataset\.batch_size=full"):
        of_views(little_views(batch_size=6))
    with pytest.raises(UserError, match="at most 5000 points"):
        large = little_views(num_train=60_000)
        large.told["batch_size"] = 60_000
        of_views(large)


def test_grey_values_are_refused_as_bits() -> None:
    with pytest.raises(UserError, match="needs binary values"):
        of_views(little_views(), likelihood="bernoulli")


def test_data_without_auxiliary_columns_or_with_others_are_refused() -> None:
    with pytest.raises(UserError, match="needs the auxiliary columns video and time; the dataset has none"):
        built(Given(far_curve(12)), "gp_vae", **SMALL_NETS)
    with pytest.raises(UserError, match="the dataset has object and angle, so no video"):
        built(little_views(), "gp_vae", **SMALL_NETS)
    with pytest.raises(UserError, match="the dataset has video and time, so no object"):
        built(little_videos(), "gp_vae", **SMALL_NETS, **OBJECT_ANGLE)
