"""SAS regression and classification: whole objectives and predictions against direct computations."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import one_hot

from src.data.batch import Batch, split_of
from src.gp.labels import Classes
from src.gp.quadratic_bound import bound, factor, posterior_mean
from src.models.base import build
from src.runs.errors import UserError
from tests.models.builders import Given, built, far_curve, first_batch, rows, spec_of
from tests.models.direct import log_density, log_density_of_rest, rbf, set_hyperparameters

N, A = 12, 5
PLAIN = ("model.features=null",)
FEATURES = ("model.features=2", "encoder.hidden=[7]")


def regression_data(batch_size: int | None = None) -> Given:
    """Three inputs far from 0 on different scales, and two targets of them far from 0."""
    x = far_curve(N) * torch.tensor([1.0, 10.0, 0.1])
    y = torch.stack([x[:, 0] * x[:, 2] + 50, 100 - x[:, 1]], 1)
    return Given(x, batch_size, y=y)


def class_data(batch_size: int | None = None) -> Given:
    x = far_curve(N)
    return Given(x, batch_size, y=(x[:, 0] > x[:, 0].median()).long() + (x[:, 1] > x[:, 1].quantile(0.8)).long())


def regression(*overrides: str, data: Given | None = None, active: int = A) -> Any:
    options = overrides or PLAIN
    return set_hyperparameters(built(data or regression_data(), "sas_regression", *options, active_set=active))


def classifier(*overrides: str, data: Given | None = None, **arguments: Any) -> Any:
    options = overrides or PLAIN
    model = built(data or class_data(), "sas_classifier", *options, active_set=A, **arguments)
    return set_hyperparameters(model, noise=None)


def z_scores(x: Tensor) -> Tensor:
    x = x.double()
    return (x - x.mean(0)) / x.std(0, correction=0)


def whole(data: Given) -> Batch:
    return data.train.all()


def test_real_targets_have_the_estimate_of_eq_6() -> None:
    data = regression_data(batch_size=8)
    model, batch = regression(data=data), first_batch(data)
    assert batch.y is not None and data.train.y is not None
    z = z_scores(whole(data).x)[batch.index]
    k = rbf(model.kernel, z, z) + 0.3 * torch.eye(8, dtype=torch.float64)
    y = z_scores(data.train.y)[batch.index]
    active, rest = log_density(y[:A], k[:A, :A]), log_density_of_rest(y, k, A)
    expected = -(active + (N - A) / (8 - A) * rest) / (N * 2)
    loss, parts = model.objective(batch)
    torch.testing.assert_close(loss, expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(parts["active"], active / (N * 2), rtol=1e-6, atol=0)


@pytest.mark.parametrize("overrides", [PLAIN, FEATURES])
def test_regression_on_all_but_one_is_exact(overrides: tuple[str, ...]) -> None:
    data = regression_data()
    model, batch = regression(*overrides, data=data, active=N - 1), rows(data)
    assert batch.y is not None
    z = model.features(batch.x).detach()
    k = rbf(model.kernel, z, z) + 0.3 * torch.eye(N, dtype=torch.float64)
    exact = log_density(z_scores(batch.y), k)
    torch.testing.assert_close(model.objective(batch).loss, -exact / (N * 2), rtol=1e-6, atol=0)


def test_real_predictions_are_those_of_an_exact_gp_in_the_units_of_the_data() -> None:
    data = regression_data()
    model, batch = regression(data=data), rows(data)
    assert batch.y is not None
    z, y = z_scores(batch.x), z_scores(batch.y)
    noisy = rbf(model.kernel, z, z) + 0.3 * torch.eye(N, dtype=torch.float64)
    new = batch.x[:3].double() + 0.01
    standardised = (new - batch.x.double().mean(0)) / batch.x.double().std(0, correction=0)
    k = rbf(model.kernel, standardised, z)
    p = model.predict(new, model.given(batch))
    y_mean, y_sd = batch.y.double().mean(0), batch.y.double().std(0, correction=0)
    torch.testing.assert_close(p.mean, y_mean + y_sd * (k @ torch.linalg.solve(noisy, y)), rtol=1e-5, atol=0)
    variance = 1.7 + 0.3 - (k * torch.linalg.solve(noisy, k.mT).mT).sum(1)
    torch.testing.assert_close(p.stddev, y_sd * variance.sqrt()[:, None], rtol=1e-5, atol=0)


def test_classes_have_the_bound_and_the_rest_weighted_as_in_eq_6() -> None:
    data = class_data(batch_size=8)
    model, batch = classifier(data=data, iterations=4), first_batch(data)
    assert batch.y is not None and data.train.y is not None
    counts = data.train.y.bincount().double() + 1
    offset = (counts / counts.sum()).log()
    torch.testing.assert_close(model.log_frequencies, offset, rtol=1e-6, atol=0)
    z, t = z_scores(whole(data).x)[batch.index], one_hot(batch.y, 3).double()
    k = rbf(model.kernel, z, z)
    chol = factor(k[:A, :A], Classes())
    psi = posterior_mean(chol, t[:A], Classes(), offset, 4)
    active = bound(chol, psi, t[:A], Classes(), offset)
    y = psi + 2 * (t[:A] - (psi + offset).softmax(-1))
    noisy = k[:A, :A] + 2 * torch.eye(A, dtype=torch.float64)
    mean = k[A:, :A] @ torch.linalg.solve(noisy, y) + offset
    variance = 1.7 - (k[A:, :A] * torch.linalg.solve(noisy, k[:A, A:]).mT).sum(1)
    rest = (t[A:] * Classes().predictive(mean, variance)).sum()
    loss, parts = model.objective(batch)
    torch.testing.assert_close(loss, -(active + (N - A) / (8 - A) * rest) / N, rtol=1e-5, atol=0)
    torch.testing.assert_close(parts["active"], active / N, rtol=1e-5, atol=0)


def test_predicted_classes_condition_on_the_points_that_are_given() -> None:
    """Near a labelled point its class is likely; far from all, classes have their frequencies."""
    data = class_data()
    model, batch = classifier(data=data), rows(data)
    assert batch.y is not None
    model.kernel.outputscale, model.kernel.base_kernel.lengthscale = 300.0, 0.3
    near = model.predict(batch.x.double(), model.given(batch))
    assert (near.probs.argmax(1) == batch.y).all() and near.log_prob(batch.y).exp().min() > 0.5
    model.kernel.outputscale = 1e-4
    far = model.predict(batch.x.double() + 100, model.given(batch))
    torch.testing.assert_close(far.logits, model.log_frequencies.expand(N, 3), rtol=0, atol=1e-3)
    few = model.predict(batch.x.double(), model.given(rows(data, 0, 1)))
    assert not torch.allclose(few.probs, near.probs)


@pytest.mark.parametrize("name", ["sas_regression", "sas_classifier"])
def test_alone_it_predicts_from_the_active_set_of_the_checkpoint(name: str) -> None:
    data = regression_data() if name == "sas_regression" else class_data()
    model = built(data, name, *PLAIN, active_set=A)
    index = [int((data.train.all().x.double() == x).all(1).nonzero()) for x in model.active_x]
    assert len(set(index)) == A
    x = data.train.all().x.double() + 0.1
    alone, given = model.predict(x), model.predict(x, model.given(rows(data, *index)))
    torch.testing.assert_close(alone.log_prob(data.train.y), given.log_prob(data.train.y))
    assert model.active_size == A


def test_inputs_are_standardised_but_images_for_an_encoder_only_centred() -> None:
    rows_of_x = far_curve(N)
    torch.testing.assert_close(classifier().features(rows_of_x), z_scores(rows_of_x), rtol=1e-5, atol=1e-6)
    model = classifier(*FEATURES)
    torch.testing.assert_close(model.inputs.scale, rows_of_x.double().std(0, correction=0), rtol=1e-5, atol=0)
    images = torch.arange(N * 16).view(N, 1, 4, 4).byte()
    of_images = classifier(*FEATURES, data=Given(images, y=torch.arange(N) % 2))
    of_images.encoder = nn.Flatten()
    centred = images.flatten(1) / 255.0 - images.flatten(1).double().mean(0) / 255
    torch.testing.assert_close(of_images.features(images), centred, rtol=0, atol=1e-6)


@pytest.mark.parametrize("name", ["sas_regression", "sas_classifier"])
def test_an_ard_kernel_has_a_length_scale_per_feature_or_per_input(name: str) -> None:
    data = regression_data() if name == "sas_regression" else class_data()
    for overrides, size, start in ((PLAIN, 3, math.sqrt(3)), (FEATURES, 2, math.log(2))):
        model = built(data, name, "kernel=rbf_ard", *overrides, active_set=A)
        assert model.kernel.base_kernel.lengthscale.flatten().tolist() == pytest.approx([start] * size)


def test_a_class_that_does_not_occur_in_training_keeps_a_probability() -> None:
    x = far_curve(N)
    data = Given(x, y=torch.arange(N) % 2, test=split_of(x, torch.full((N,), 2)))
    model = classifier(data=data)
    assert model.log_frequencies.exp().tolist() == pytest.approx([7 / 15, 7 / 15, 1 / 15])
    assert (model.predict(x.double()).probs[:, 2] > 0.001).all()


@pytest.mark.parametrize("name", ["sas_regression", "sas_classifier"])
def test_what_cannot_work_is_said_in_a_sentence(name: str) -> None:
    data, other = regression_data(), class_data()
    if name == "sas_classifier":
        data, other = other, data
    for each in (data, other):
        each.setup()
    model = build(spec_of(f"model={name}", *PLAIN) | {"active_set": A}, data.facts)
    model.check(data.facts)
    with pytest.raises(UserError, match=r"predicts (classes|real numbers), but the targets are .* use model=sas_"):
        model.check(other.facts)
    for size in (N, 0):
        model = build(spec_of(f"model={name}", *PLAIN) | {"active_set": size}, data.facts)
        with pytest.raises(UserError, match=rf"active_set.size={size} must be at least 1 and smaller than the batch"):
            model.check(data.facts)
    with pytest.raises(UserError, match=r"model.features=None with model.encoder=src.nets.mlp.mlp.* both or neither"):
        build(spec_of(f"model={name}") | {"features": None, "encoder": {"_target_": "src.nets.mlp.mlp"}}, data.facts)


@pytest.mark.parametrize("name", ["sas_regression", "sas_classifier"])
def test_a_random_size_is_refused(name: str) -> None:
    data = regression_data() if name == "sas_regression" else class_data()
    data.setup()
    with pytest.raises(UserError, match=r"active_set=random does not fit .*: use active_set=a100"):
        build(spec_of(f"model={name}", "active_set=random"), data.facts)
