"""SAS-GP: Algorithm 1 against densities of dense matrices, its batches and its weights."""

from typing import Any

import pytest
import torch
from torch import Tensor

from src.data.batch import Batch
from src.gp.quadratic_bound import ITERATIONS
from src.runs.errors import UserError
from tests.models.builders import Given, built, far_curve, noisy_curve, rows
from tests.models.direct import (
    bits_bound,
    bits_predicted,
    log_density,
    log_density_of_rest,
    rbf,
    set_hyperparameters,
)

LINEAR = {"_target_": "src.nets.mlp.mlp", "hidden": []}  # z = W x + b


def sas(data: Given, *overrides: str, **arguments: Any) -> Any:
    return set_hyperparameters(built(data, "sas", *overrides, encoder=LINEAR, **arguments))


def points(model: Any, data: Given, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Centred observations, their latents and their covariance, by hand."""
    x = batch.x.double() - data.train.all().x.double().mean(0)
    if model.latents.free:
        z = model.latents.mean.weight[batch.index]
    else:
        layer = model.latents.mean[1]
        z = x @ layer.weight.mT + layer.bias
    k = rbf(model.kernel, z, z) + model.likelihood.noise * torch.eye(len(x))
    return x, z, k


def direct_loss(model: Any, data: Given, batch: Batch, active: int, num_data: int) -> Tensor:
    """-(log p(x_A) + (N - A) / (B - A) sum_rest log p(x_n | x_A)) / (N D)."""
    x, _, k = points(model, data, batch)
    weight = (num_data - active) / (len(x) - active)
    estimate = log_density(x[:active], k[:active, :active]) + weight * log_density_of_rest(x, k, active)
    return -estimate / (num_data * x.shape[1])


@pytest.mark.parametrize("amortised", [True, False])
def test_the_loss_is_algorithm_1_and_over_disjoint_batches_the_mean_of_their_own_values(amortised: bool) -> None:
    """Every batch has an active set of its own, so the mean is that of the batches' direct values, not of one value."""
    data = Given(far_curve(12), batch_size=6)
    model = sas(data, "active_set.size=3", amortised=amortised)
    batches = [rows(data, *index) for index in ([3, 1, 4, 0, 5, 9], [2, 6, 10, 8, 7, 11])]
    losses = [model.objective(batch).loss for batch in batches]
    direct = [direct_loss(model, data, batch, 3, 12) for batch in batches]
    torch.testing.assert_close(losses, direct)
    torch.testing.assert_close(torch.stack(losses).mean(), torch.stack(direct).mean())
    assert not torch.allclose(losses[0], losses[1], rtol=1e-3)


def test_the_terms_scale_with_the_number_of_data() -> None:
    """In nats log p(x_A) stays, and the rest counts N - A times its mean."""
    x, batch = far_curve(12), Batch.of(far_curve(12)[:6])
    parts = {}
    for num_data in (12, 24):
        model = sas(Given(x, batch_size=6, told={"num_train": num_data}), "active_set.size=3")
        parts[num_data] = {name: num_data * part for name, part in model.objective(batch).parts.items()}
    torch.testing.assert_close(parts[24]["active"], parts[12]["active"])
    torch.testing.assert_close(parts[24]["rest"], (24 - 3) / (12 - 3) * parts[12]["rest"])


def test_pixels_that_are_repeated_do_not_change_the_loss_per_value() -> None:
    x = far_curve(12)
    model = sas(Given(x), "active_set.size=4", amortised=False)
    tiled = sas(Given(x.repeat(1, 3)), "active_set.size=4", amortised=False)
    tiled.latents.load_state_dict(model.latents.state_dict())
    expected = model.objective(Batch.of(x))
    torch.testing.assert_close(tiled.objective(Batch.of(x.repeat(1, 3))).loss, expected.loss)


def test_the_loss_is_minus_the_exact_evidence_with_one_point_left_out() -> None:
    """In nats per observed value, of the centred data."""
    data = Given(noisy_curve(30))
    model = sas(data, "active_set.size=29")
    x, _, k = points(model, data, rows(data))
    torch.testing.assert_close(model.objective(rows(data)).loss, -log_density(x, k) / x.numel())


def test_the_random_form_is_the_one_of_its_draw() -> None:
    """N / r sum_{n in rest} log p(x_n | x_A), with r the next number of the generator and A the first N - r points."""
    data = Given(far_curve(8))
    model = sas(data, "active_set=random")
    x, _, k = points(model, data, rows(data))
    sizes = set()
    for seed in range(12):
        torch.manual_seed(seed)
        rest = int(torch.randint(1, 9, ()))
        torch.manual_seed(seed)
        expected = -8 / rest * log_density_of_rest(x, k, 8 - rest) / x.numel()
        torch.testing.assert_close(model.objective(rows(data)).loss, expected)
        sizes.add(rest)
    assert len(sizes) > 4


def test_the_random_form_is_unbiased_as_a_model() -> None:
    """Its mean over many steps is the exact evidence, within four standard errors."""
    data = Given(noisy_curve(12))
    model = sas(data, "active_set=random")
    x, _, k = points(model, data, rows(data))
    torch.manual_seed(0)
    with torch.no_grad():
        losses = torch.stack([model.objective(rows(data, *torch.randperm(12).tolist())).loss for _ in range(800)])
    error = losses.mean() + log_density(x, k).detach() / x.numel()
    assert abs(error) < 4 * losses.std() / len(losses) ** 0.5


@pytest.mark.parametrize(
    ("override", "batch_size", "reason"),
    [
        ("active_set.size=6", 6, r"active_set\.size=6 must be at least 1 and smaller than the batch of 6"),
        ("active_set.size=0", 6, r"active_set\.size=0 must be at least 1"),
        ("active_set=random", 6, r"active_set=random needs all 12 points in every batch"),
        ("model.posterior=diagonal", None, r"model\.posterior=diagonal does not fit SAS: point"),
    ],
)
def test_what_cannot_work_is_refused(override: str, batch_size: int | None, reason: str) -> None:
    key = override if "posterior" not in override else f"+{override}"
    with pytest.raises(UserError, match=reason):
        sas(Given(far_curve(12), batch_size), key)


def bits(batch_size: int | None = None) -> Given:
    x = (torch.rand(12, 5, generator=torch.Generator().manual_seed(2)) > 0.6).float()
    return Given(x, batch_size=batch_size, told={"binary": True})


def bits_model(data: Given, name: str, **arguments: Any) -> Any:
    model = built(data, name, "active_set.size=3", encoder=LINEAR, likelihood="bernoulli", **arguments)
    return set_hyperparameters(model, noise=None)


def bits_problem(model: Any, data: Given, batch: Batch) -> tuple[Tensor, Tensor]:
    """Bits and the covariance of their logits, by hand; the encoder sees what is centred."""
    t, everything = batch.x.double(), data.train.all().x.double()
    layer = model.latents.mean[1]
    z = (t - everything.mean(0)) @ layer.weight.mT + layer.bias
    return t, rbf(model.kernel, z, z)


def test_bits_have_the_bound_and_the_probability_of_the_rest() -> None:
    data = bits(batch_size=6)
    model, batch = bits_model(data, "sas"), rows(data, 3, 1, 4, 0, 5, 9)
    frequency = (data.train.all().x.double().sum(0) + 0.5) / 13
    torch.testing.assert_close(model.offset, frequency.logit(), rtol=1e-6, atol=1e-6)
    t, k = bits_problem(model, data, batch)
    active = bits_bound(t[:3], k[:3, :3], model.offset, ITERATIONS)
    p = bits_predicted(t[:3], k, model.offset, ITERATIONS)
    rest = (t[3:] * p.log() + (1 - t[3:]) * (1 - p).log()).sum()
    loss, parts = model.objective(batch)
    torch.testing.assert_close(parts["active"], active.detach() / 60)
    torch.testing.assert_close(parts["rest"], (12 - 3) / (6 - 3) * rest.detach() / 60, rtol=1e-5, atol=0)
    torch.testing.assert_close(loss, -sum(parts[name] for name in ("active", "rest")))
    assert model.offset in set(model.gp_parameters())


def test_the_random_form_of_bits_predicts_the_rest() -> None:
    data = bits()
    model, batch = bits_model(data, "sas", active_set="random"), rows(data)
    torch.manual_seed(5)
    rest_size = int(torch.randint(1, 13, ()))
    torch.manual_seed(5)
    loss = model.objective(batch).loss
    t, k = bits_problem(model, data, batch)
    p = bits_predicted(t[: 12 - rest_size], k, model.offset, ITERATIONS)
    t = t[12 - rest_size :]
    rest = (t * p.log() + (1 - t) * (1 - p).log()).sum()
    torch.testing.assert_close(loss, -(12 / rest_size) * rest / 60, rtol=1e-5, atol=0)
