"""What the decoders predict that condition on training points, against GP regression by dense matrices."""

from typing import Any

import pytest
import torch
from torch import Tensor

from src.data.batch import Batch, split_of
from tests.models.builders import Given, built, far_curve, rows
from tests.models.direct import bits_predicted, rbf, regression, set_hyperparameters

LINEAR = {"_target_": "src.nets.mlp.mlp", "hidden": []}


def far_data(**options: Any) -> Given:
    """A test split that is not the training split."""
    return Given(far_curve(16), test=split_of(far_curve(20) - 3), **options)


def decoder(data: Given, name: str = "sas", *overrides: str, **arguments: Any) -> Any:
    return set_hyperparameters(built(data, name, "active_set.size=6", *overrides, encoder=LINEAR, **arguments))


def directly(model: Any, data: Given, index: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance of x at z given the rows `index` of the training split at their own latent means."""
    x = data.train.all().x.double()
    mean = x.mean(0)
    layer = model.latents.mean
    known = layer.weight if model.latents.free else (x - mean) @ layer[1].weight.mT + layer[1].bias
    k = rbf(model.kernel, known[index], known[index]) + model.likelihood.noise * torch.eye(len(index))
    predicted, covariance = regression(k, rbf(model.kernel, known[index], z), rbf(model.kernel, z, z), x[index] - mean)
    return predicted + mean, covariance.diagonal() + model.likelihood.noise


@pytest.mark.parametrize("name", ["sas", "bayesian_sas", "gplvm"])
@pytest.mark.parametrize("amortised", [True, False])
def test_predictions_are_the_regression_on_the_active_set(name: str, amortised: bool) -> None:
    """The data lie far from 0, and it is the latents of the active rows that count."""
    data = far_data()
    model = decoder(data, name, amortised=amortised)
    z = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        prediction = model.decode(z)
        mean, variance = directly(model, data, model.active_index, z)
    torch.testing.assert_close(prediction.mean, mean)
    torch.testing.assert_close(prediction.variance, variance[:, None].expand(4, 3))


@pytest.mark.parametrize("amortised", [True, False])
def test_other_points_to_condition_on_can_be_given(amortised: bool) -> None:
    data = far_data()
    model = decoder(data, amortised=amortised)
    z = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        prediction = model.decode(z, model.given(rows(data, 9, 2, 14)))
        mean, variance = directly(model, data, torch.tensor([9, 2, 14]), z)
        own = model.decode(z)
    torch.testing.assert_close(prediction.mean, mean)
    torch.testing.assert_close(prediction.variance[:, 0], variance)
    assert not torch.allclose(own.mean, prediction.mean)


def test_the_active_set_is_a_seeded_draw_of_the_training_split() -> None:
    data = far_data()
    model, again = decoder(data), decoder(data)
    other = decoder(data, "sas", "seed=1")
    index = model.active_index.tolist()
    assert len(set(index)) == 6 and all(0 <= row < 16 for row in index)
    assert torch.equal(model.active_x, data.train.all().x[index].double())
    assert torch.equal(again.active_index, model.active_index) and sorted(other.active_index.tolist()) != sorted(index)


def test_bytes_are_kept_as_the_model_sees_them() -> None:
    x = (10 * far_curve(16)).byte()
    model = decoder(Given(x))
    torch.testing.assert_close(model.active_x, x[model.active_index].double() / 255)
    as_float = decoder(Given(x.float() / 255))
    z = torch.zeros(1, 2).double()
    torch.testing.assert_close(model.decode(z).mean, as_float.decode(z).mean, rtol=1e-6, atol=1e-6)


def test_a_random_size_predicts_from_half_of_the_data() -> None:
    data = Given(far_curve(16))
    model = built(data, "sas", "active_set=random")
    assert model.active_size == 8 and model.active_x.shape == (8, 3)


def test_images_keep_their_shape() -> None:
    data = Given(far_curve(16, 12).reshape(16, 3, 2, 2))
    model = decoder(data)
    prediction = model.decode(torch.zeros(5, 2).double())
    assert prediction.mean.shape == (5, 3, 2, 2) and prediction.variance.shape == (5, 3, 2, 2)
    flat = decoder(Given(far_curve(16, 12)))
    flat.load_state_dict({**model.state_dict(), "active_x": model.active_x.flatten(1)})
    torch.testing.assert_close(flat.decode(torch.zeros(5, 2).double()).mean, prediction.mean.flatten(1))


def test_predicted_variance_is_a_variance() -> None:
    """The sd of the decoded Normal is the root of the GP's predictive variance."""
    model = decoder(far_data())
    z = torch.zeros(3, 2, dtype=torch.float64)
    mean, variance = model.given().predict(z)
    torch.testing.assert_close(model.decode(z).variance[:, 0], variance)
    torch.testing.assert_close(model.decode(z).mean, mean + model.data_mean)


def test_the_factor_is_made_once_for_many_points(cholesky_sizes: list[int]) -> None:
    model = decoder(far_data(), amortised=False)
    given = model.given()
    cholesky_sizes.clear()
    model.decode(torch.zeros(2, 2).double(), given)
    assert cholesky_sizes == []


def test_unseen_points_are_not_taken_for_training_rows() -> None:
    """Free latents of unseen points are found from their images: their rows are those of another split."""
    data = far_data()
    model = decoder(data, amortised=False)
    unseen = Batch(data.test.all().x[:2], torch.tensor([5, 11]))
    with torch.no_grad():
        q = model.encode(unseen, seen=False)
        seen = model.encode(unseen, seen=True)
    torch.testing.assert_close(seen.mean, model.latents.mean.weight[[5, 11]])
    assert not torch.allclose(q.mean, seen.mean, atol=1e-3)


@pytest.mark.parametrize("name", ["sas", "bayesian_sas", "gplvm"])
def test_bits_are_predicted_from_the_mode_given_any_points(name: str) -> None:
    x = (torch.rand(20, 5, generator=torch.Generator().manual_seed(2)) > 0.6).float()
    data = Given(x, told={"binary": True})
    model = built(data, name, "active_set.size=6", encoder=LINEAR, likelihood="bernoulli")
    model = set_hyperparameters(model, noise=None)
    z, t = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).double(), x.double()
    layer = model.latents.mean[1]
    latents = (t - t.mean(0)) @ layer.weight.mT + layer.bias
    for batch, index in ((None, model.active_index), (rows(data, 9, 2, 14), torch.tensor([9, 2, 14]))):
        at = torch.cat([latents[index], z])
        p = bits_predicted(t[index], rbf(model.kernel, at, at), model.offset, 500)
        prediction = model.decode(z, model.given(batch))
        torch.testing.assert_close(prediction.mean, p, rtol=0, atol=2e-4)
        torch.testing.assert_close(prediction.log_prob(torch.ones(4, 5).double()).exp(), prediction.mean)


def test_holes_of_bits_are_predicted_output_by_output() -> None:
    x = (torch.rand(20, 3, generator=torch.Generator().manual_seed(2)) > 0.6).float()
    data = Given(x, told={"binary": True}, missing={"fraction": 0.34, "split": "both"})
    model = built(data, "sas", "active_set.size=6", encoder=LINEAR, likelihood="bernoulli")
    model = set_hyperparameters(model, noise=None)
    z = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).double()
    batch = model.stored_active_set()
    latents = model.recognise(batch).mean.detach()
    assert batch.mask is not None and not batch.mask.all()
    prediction = model.decode(z)
    for output in range(3):
        seen = batch.mask[:, output]
        at = torch.cat([latents[seen], z])
        t = batch.x[seen][:, [output]].double()
        p = bits_predicted(t, rbf(model.kernel, at, at), model.offset[[output]], 500)
        torch.testing.assert_close(prediction.mean[:, [output]], p, rtol=0, atol=2e-4)
