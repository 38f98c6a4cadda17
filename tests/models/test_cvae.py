"""CVAE: its bound, what it is told, and views made from the average of an object's training images."""

import math
from typing import Any

import pytest
import torch
from torch.distributions import Normal, kl_divergence

from src.data.images import Digits
from src.data.module import DataModule
from src.data.moving_ball import MovingBall
from src.data.rotated_mnist import RotatedMNIST
from src.models.cvae import CVAE
from src.runs.errors import UserError
from tests.models.builders import first_batch, started
from tests.models.rotated import OBJECTS, small_rotated_mnist

ROTATED = ("dataset=rotated_mnist", f"model.num_objects={OBJECTS}")


@pytest.fixture
def rotated(monkeypatch: pytest.MonkeyPatch) -> RotatedMNIST:
    return small_rotated_mnist(monkeypatch)


@pytest.fixture(scope="module")
def videos() -> MovingBall:
    data = MovingBall(batch_videos=2, steps_per_epoch=2, num_train_videos=3, num_test_videos=1)
    data.setup()
    return data


def built(data: DataModule, *overrides: str) -> CVAE:
    model: CVAE = started(data, "model=cvae", *overrides)
    return model


def test_the_bound_is_the_published_one_for_each_value(rotated: RotatedMNIST) -> None:
    """-(.5 / .01^2) SSE - KL, and the constant of the normal density."""
    model, batch = built(rotated, *ROTATED), first_batch(rotated)
    q = model.encode(batch.x, batch.index, batch.aux)
    z = Normal(q.mean[:, :16], q.stddev[:, :16])
    torch.manual_seed(0)
    sample = torch.cat([z.rsample(), q.mean[:, 16:]], 1)
    squares = (batch.x - model.decode(sample).mean).square().sum()
    kl = kl_divergence(z, Normal(0.0, 1.0)).sum()
    constant = -0.5 * batch.x.numel() * math.log(2 * math.pi * 0.01**2)
    torch.manual_seed(0)
    loss = model.objective(batch).loss
    torch.testing.assert_close(-loss * batch.x.numel(), -0.5 / 0.01**2 * squares - kl + constant, rtol=1e-4, atol=0)


def test_it_is_told_the_angle_and_sees_it_only_so(rotated: RotatedMNIST) -> None:
    model = built(rotated, *ROTATED)
    aux = torch.tensor([[3.0, 0.5], [4.0, 0.5 + 2 * math.pi], [3.0, 1.0]])
    told = model.told(aux)
    torch.testing.assert_close(told[0], torch.tensor([math.sin(0.5), math.cos(0.5)]))
    torch.testing.assert_close(told[0], told[1])
    x = rotated.test.x[:1].expand(3, -1, -1, -1)
    mean = model.encode(x, None, aux).mean
    torch.testing.assert_close(mean[0], mean[1], rtol=1e-4, atol=1e-4)
    assert not torch.allclose(mean[0, :16], mean[2, :16])
    z = mean[:1].expand(3, -1).clone()
    z[:, 16:] = told
    images = model.decode(z).mean
    assert not torch.allclose(images[0], images[2])


def test_a_view_is_made_from_the_average_over_an_objects_training_images(rotated: RotatedMNIST) -> None:
    model = built(rotated, *ROTATED)
    model.finalise(rotated)
    train = rotated.train
    assert train.aux is not None and rotated.test.aux is not None
    with torch.no_grad():
        q = model.generate(rotated.test.aux)
        row = 5
        own = train.aux[:, 0] == rotated.test.aux[row, 0]
        images = model.encode(train.x[own], None, train.aux[own])
    torch.testing.assert_close(q.mean[row, :16], images.mean[:, :16].mean(0), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(
        q.variance[row, :16], images.variance[:, :16].mean(0) / int(own.sum()), rtol=1e-4, atol=0
    )
    torch.testing.assert_close(q.mean[row, 16:], model.told(rotated.test.aux)[row])
    assert (q.variance[:, 16:] == 0).all() and set(rotated.scores(model)) == {"mse_sample", "mse_mean"}


def test_an_object_without_training_images_is_any(rotated: RotatedMNIST) -> None:
    model = built(rotated, *ROTATED)
    model.finalise(rotated)
    unseen = torch.tensor([[9.0, 0.0]])  # for monitoring only
    q = model.generate(unseen)
    assert (q.mean[:, :16] == 0).all() and (q.variance[:, :16] == 1).all()


def refused(data: Any, *overrides: str) -> str:
    with pytest.raises(UserError) as error:
        built(data, *overrides)
    return str(error.value)


def test_what_does_not_fit_is_refused(rotated: RotatedMNIST, videos: MovingBall) -> None:
    digits = Digits(batch_size=64, max_train=100, max_test=10)
    digits.setup()
    assert "CVAE needs auxiliary inputs" in refused(digits)
    assert "model.condition=time is not what RotatedMNIST has" in refused(rotated)
    assert "model.num_objects=7 must be the 20" in refused(rotated, ROTATED[0], "model.num_objects=7")
    assert "model.condition=angle is not what MovingBall has" in refused(videos, "model.condition=angle")
