"""Views made from object and angle alone: the published score, recomputed."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Independent, Normal

from src.data.batch import Batch, split_of
from src.data.rotated_mnist import RotatedMNIST
from src.evaluation.generation import Generation
from src.evaluation.task import Subject
from tests.evaluation.subjects import SETTINGS, Known, MadeUp, built, subject
from tests.models.rotated import small_rotated_mnist

AUX = torch.tensor([[0.0, 0.5], [3.0, 1.5]])
X = torch.tensor([[0.5, 0.5, 0.0], [3.0, 2.0, 1.0]])


class Views(MadeUp):
    """Views of objects."""

    aux_names = ("object", "angle")


class Generating(Known):
    """q(z) has the auxiliary columns as its mean and an sd of 2, so that sd and variance differ."""

    def generate(self, aux: Tensor) -> Independent:
        return Independent(Normal(aux, 2.0), 1)

    def encode(self, batch: Batch, seen: bool) -> Independent:
        raise AssertionError("the images of test views are not to be seen")


DATA = Views(split_of(X, aux=AUX))


def test_errors_of_the_mean_and_of_one_sample_with_seed_0() -> None:
    scores = Generation().scores(subject(Generating, DATA, seed=5))
    noise = torch.randn(2, 2, generator=torch.Generator().manual_seed(0))
    sample = torch.cat([AUX + 2.0 * noise, torch.zeros(2, 1)], 1)
    assert scores["mse_mean"] == pytest.approx((0.5**2 + 0.5**2 + 1.0**2) / 6)
    assert scores["mse_sample"] == pytest.approx((sample - X).square().mean().item())
    assert scores.keys() == {"mse_mean", "mse_sample"}


def test_missing_values_count_in_nothing() -> None:
    x = X.clone()
    x[1, 2] = math.nan
    scores = Generation().scores(subject(Generating, Views(split_of(x, aux=AUX, mask=~x.isnan()))))
    assert scores["mse_mean"] == pytest.approx((0.5**2 + 0.5**2) / 5)


def test_the_first_views_are_kept() -> None:
    arrays = Generation().artifacts(subject(Generating, DATA))
    assert np.array_equal(arrays["views"], X)
    assert np.array_equal(arrays["generated_views"], torch.cat([AUX, torch.zeros(2, 1)], 1))


def test_hidden_pixels_of_views_are_shown_but_not_scored() -> None:
    hidden = torch.zeros_like(X, dtype=torch.bool)
    hidden[0, 2] = True
    data = Views(split_of(X, aux=AUX, mask=~hidden, hidden=hidden))
    arrays = Generation().artifacts(subject(Generating, data))
    assert np.array_equal(arrays["views"], X)


def test_it_takes_views_of_objects_and_a_model_that_generates() -> None:
    assert Generation().fits(Generating(DATA.facts), DATA)
    assert not Generation().fits(Known(DATA.facts), DATA)
    assert not Generation().fits(Generating(DATA.facts), MadeUp(split_of(X)))


@pytest.fixture
def rotated(monkeypatch: pytest.MonkeyPatch) -> RotatedMNIST:
    return small_rotated_mnist(monkeypatch, "full")


@torch.no_grad()
@pytest.mark.parametrize("name", ["cvae", "svgp_vae"])
def test_the_scores_of_real_models(name: str, rotated: RotatedMNIST) -> None:
    model = built(rotated, f"model={name}", "dataset=rotated_mnist")
    known = Subject(model, rotated, SETTINGS)
    aux, x = rotated.test.aux, rotated.test.all().x
    assert aux is not None and Generation().fits(model, rotated)
    q = model.generate(aux)
    z = q.mean + q.variance.sqrt() * torch.randn(q.mean.shape, generator=torch.Generator().manual_seed(0)).to(q.mean)
    scores, arrays = Generation().scores(known), Generation().artifacts(known)
    assert scores["mse_sample"] == pytest.approx((model.decode(z, None, aux).mean - x).square().mean().item())
    made = model.decode(q.mean, None, aux).mean
    assert scores["mse_mean"] == pytest.approx((made - x).square().mean().item())
    np.testing.assert_allclose(arrays["generated_views"], made[:10], atol=1e-6)
    np.testing.assert_array_equal(arrays["views"], x[:10])


class Encoding(Known):
    """Also encodes its training views."""

    def generate(self, aux: Tensor) -> Independent:
        return Independent(Normal(aux, 2.0), 1)


def test_latents_of_training_views_are_kept_in_their_principal_plane_with_angle_and_label() -> None:
    """In two dimensions the plane is the latent space, turned and centred."""
    x = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    aux = torch.stack([torch.arange(12.0) % 4, torch.arange(12.0)], 1)
    arrays = Generation().artifacts(subject(Encoding, Views(split_of(x, torch.arange(12) % 3, aux=aux))))
    angles = torch.from_numpy(arrays["view_angles"])
    plane, z = torch.from_numpy(arrays["view_latents"]), x[angles.long(), :2]
    assert sorted(angles.tolist()) == list(range(12))
    torch.testing.assert_close(torch.cdist(plane, plane), torch.cdist(z, z), rtol=1e-4, atol=1e-4)
    assert plane[:, 0].var() > plane[:, 1].var()
    assert (arrays["view_labels"] == angles.numpy() % 3).all()
