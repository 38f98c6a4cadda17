"""CVAE: its bound, what it is told, and views made from the average of an object's training images."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from src.data.batch import Batch
from src.models.cvae import CVAE
from src.runs.errors import UserError
from tests.models.builders import SMALL_NETS, Given, built, far_curve, little_videos, little_views, rows
from tests.models.direct import normal_kl, pseudo_observations


def cvae(data: Given, **arguments: Any) -> CVAE:
    model: CVAE = built(data, "cvae", **SMALL_NETS, **arguments)
    return model


def told_by_hand(data: Given, aux: Tensor) -> Tensor:
    """Sine and cosine of the angle, or the time as a part of the five frames of a video."""
    value = aux[:, 1].double()
    if "angle" in data.facts.aux:
        return torch.stack([torch.sin(value), torch.cos(value)], 1)
    return value[:, None] / 5


@pytest.mark.parametrize("data", [little_views(), little_videos()], ids=["views", "videos"])
def test_the_bound_is_the_published_one_for_each_value(data: Given) -> None:
    """-(.5 / noise) SSE - KL, and the constant of the normal density, at the same draw."""
    model = cvae(data, noise=0.04)
    batch = rows(data, 4, 1, 7, 0, 2)
    x, aux = batch.x.double(), batch.aux
    assert aux is not None
    c = told_by_hand(data, aux)
    mean, variance = pseudo_observations(model, x, c)
    torch.manual_seed(0)
    decoded = model.decoder(Normal(mean, variance.sqrt()).rsample(), c)
    constant = -0.5 * x.numel() * math.log(2 * math.pi * 0.04)
    fit = -0.5 / 0.04 * (x - decoded).square().sum() + constant
    torch.manual_seed(0)
    loss, parts = model.objective(batch)
    torch.testing.assert_close(loss, -(fit - normal_kl(mean, variance)) / x.numel())
    torch.testing.assert_close(parts["reconstruction"], fit.detach() / x.numel())
    torch.testing.assert_close(parts["kl"], -normal_kl(mean, variance).detach() / x.numel())


def test_the_mean_over_disjoint_batches_is_the_value_of_all() -> None:
    """In expectation: with encoder variances near 0 nothing is random."""
    data = little_views()
    model = cvae(data, variance_range=[1e-12, 1e-11])
    whole = model.objective(rows(data)).loss
    losses = [model.objective(rows(data, *index.tolist())).loss for index in torch.randperm(12).split(4)]
    torch.testing.assert_close(torch.stack(losses).mean(), whole, rtol=1e-4, atol=0)


def test_the_loss_is_per_value_whatever_the_number_of_data() -> None:
    """A batch that holds every point twice has the same divergence per value, and N does not enter."""
    data, larger = little_views(), little_views(num_train=24)
    once, other, batch = cvae(data), cvae(larger), rows(data)
    assert batch.aux is not None
    twice = Batch(batch.x.repeat(2, 1), batch.index.repeat(2), aux=batch.aux.repeat(2, 1))
    torch.testing.assert_close(once.objective(batch).parts["kl"], once.objective(twice).parts["kl"])
    torch.manual_seed(0)
    expected = once.objective(batch).loss
    torch.manual_seed(0)
    torch.testing.assert_close(other.objective(batch).loss, expected)


def test_it_is_told_the_angle_and_sees_it_only_so() -> None:
    data = little_views()
    model = cvae(data)
    aux = torch.tensor([[3.0, 0.5], [2.0, 0.5 + 2 * math.pi], [3.0, 1.0]])
    told = model.told(aux)
    torch.testing.assert_close(told[0], torch.tensor([math.sin(0.5), math.cos(0.5)]).double(), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(told[0], told[1], rtol=1e-5, atol=1e-5)
    same = Batch.of(data.test.all().x[:1].expand(3, -1), aux)
    mean = model.encode(same, seen=False).mean
    torch.testing.assert_close(mean[0], mean[1], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(mean[0], mean[2])
    images = model.decode(mean[:1].expand(3, -1), aux=aux).mean
    torch.testing.assert_close(images[0], images[1], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(images[0], images[2])


def test_time_is_told_as_a_part_of_the_video() -> None:
    """So that it stays below 1 and does not saturate the net's tanh units."""
    model = cvae(little_videos())
    told = model.told(torch.tensor([[7.0, 0.0], [7.0, 3.0], [2.0, 4.0]]))
    torch.testing.assert_close(told, torch.tensor([[0.0], [0.6], [0.8]]).double())


def test_seen_or_not_the_encoder_gives_q() -> None:
    data = little_views()
    model, batch = cvae(data), rows(data, 0, 5)
    assert batch.aux is not None
    mean, variance = pseudo_observations(model, batch.x.double(), told_by_hand(data, batch.aux))
    for seen in (True, False):
        q = model.encode(batch, seen)
        torch.testing.assert_close(q.mean, mean)
        torch.testing.assert_close(q.variance, variance)


def test_decoded_pixels_have_the_fixed_noise() -> None:
    model = cvae(little_views(), noise=0.04)
    prediction = model.decode(torch.zeros(2, 2).double(), aux=torch.tensor([[1.0, 0.0], [2.0, 1.0]]))
    torch.testing.assert_close(prediction.variance, torch.full((2, 6), 0.04).double())


def test_a_view_is_made_from_the_average_over_an_objects_training_images() -> None:
    data = little_views()
    model = cvae(data)
    model.finalise(data)
    train, aux = data.train.all(), data.test.aux
    assert train.aux is not None and aux is not None
    with torch.no_grad():
        q = model.generate(aux)
        for row in range(4):
            own = train.aux[:, 0] == aux[row, 0]
            images = model.encode(Batch.of(train.x[own], train.aux[own]), seen=True)
            torch.testing.assert_close(q.mean[row], images.mean.mean(0))
            torch.testing.assert_close(q.variance[row], images.variance.mean(0) / int(own.sum()))


def test_an_object_without_training_images_is_any() -> None:
    """Its q(z) is the prior."""
    data = little_views(objects=6)
    model = cvae(data)
    model.finalise(data)
    q = model.generate(torch.tensor([[5.0, 0.0]]))
    assert (q.mean == 0).all() and (q.variance == 1).all()
    assert model.known_mean[:4].all()


def test_videos_have_no_objects_to_average_over() -> None:
    model = cvae(little_videos())
    model.finalise(little_videos())
    assert model.known_mean.shape == (0, 2)
    q = model.generate(torch.zeros(3, 2))
    assert q.mean.shape == (3, 2) and (q.mean == 0).all() and (q.variance == 1).all()  # the prior


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="CVAE needs an auxiliary column `angle` or `time`"):
        cvae(Given(far_curve(12)))
    with pytest.raises(UserError, match="needs the auxiliary columns of its points: object and angle"):
        cvae(little_views()).decode(torch.zeros(1, 2).double())
