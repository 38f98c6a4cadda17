"""Bayesian SAS-GP: Algorithm 2 under the same draw, and the weight of its divergence."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from src.data.batch import Batch
from tests.models.builders import Given, built, far_curve, noisy_curve, rows
from tests.models.direct import log_density, log_density_of_rest, normal_kl, rbf, set_hyperparameters

LINEAR = {"_target_": "src.nets.mlp.mlp", "hidden": []}


def bayesian(data: Given, *overrides: str, **arguments: Any) -> Any:
    return set_hyperparameters(built(data, "bayesian_sas", *overrides, encoder=LINEAR, **arguments))


def estimate(model: Any, x: Tensor, z: Tensor, active: int) -> Tensor:
    """Eq. 6 of a batch in nats, by joint densities."""
    k = rbf(model.kernel, z, z) + model.likelihood.noise * torch.eye(len(x))
    weight = (model.facts.num_train - active) / (len(x) - active)
    return log_density(x[:active], k[:active, :active]) + weight * log_density_of_rest(x, k, active)


def test_the_loss_is_equation_8_at_its_own_draw() -> None:
    data = Given(far_curve(12), batch_size=6)
    model = bayesian(data, "active_set.size=2")
    mean_net, spread_net = model.latents.mean[1], model.latents.spread[1]
    for index in ([3, 1, 4, 0, 5, 9], [2, 6, 10, 8, 7, 11]):
        x = data.train.all().x[index].double() - data.train.all().x.double().mean(0)
        mean = x @ mean_net.weight.mT + mean_net.bias
        variance = torch.log1p(torch.exp(x @ spread_net.weight.mT + spread_net.bias))
        torch.manual_seed(0)
        z = Normal(mean, variance.sqrt()).rsample()
        expected = estimate(model, x, z, 2) - 12 / 6 * normal_kl(mean, variance)
        torch.manual_seed(0)
        torch.testing.assert_close(model.objective(rows(data, *index)).loss, -expected / (12 * 3))


def test_a_full_covariance_has_its_own_draw_and_divergence() -> None:
    data = Given(far_curve(12), batch_size=6)
    model = bayesian(data, "active_set.size=2", amortised=False, posterior="full")
    with torch.no_grad():
        model.latents.spread.weight[:, 2] = 0.4
    batch = rows(data, 3, 1, 4, 0, 5, 9)
    x = batch.x.double() - data.train.all().x.double().mean(0)
    spread = model.latents.spread.weight[batch.index]
    factor = torch.zeros(6, 2, 2, dtype=torch.float64)
    factor[:, 0, 0], factor[:, 1, 1] = torch.log1p(spread[:, :2].exp()).sqrt().unbind(1)
    factor[:, 1, 0] = spread[:, 2]
    q = MultivariateNormal(model.latents.mean.weight[batch.index], factor @ factor.mT)
    prior = MultivariateNormal(torch.zeros(2, dtype=torch.float64), torch.eye(2, dtype=torch.float64))
    torch.manual_seed(0)
    expected = estimate(model, x, q.rsample(), 2) - 12 / 6 * kl_divergence(q, prior).sum()
    torch.manual_seed(0)
    torch.testing.assert_close(model.objective(batch).loss, -expected / (12 * 3))


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_with_vanishing_variances_and_no_kl_it_is_the_point_model(posterior: str) -> None:
    data = Given(noisy_curve())
    point = built(data, "sas", "active_set.size=20", "model.amortised=false")
    model = built(data, "bayesian_sas", "active_set.size=20", "model.amortised=false", posterior=posterior)
    with torch.no_grad():
        model.latents.spread.weight[:, :2] = -60.0
        model.latents.spread.weight[:, 2:] = 0.0
    torch.manual_seed(0)
    parts, expected = model.objective(rows(data)).parts, point.objective(rows(data)).parts
    for name in ("active", "rest"):
        torch.testing.assert_close(parts[name], expected[name], rtol=1e-9, atol=0)


def test_the_mean_kl_over_disjoint_batches_is_that_of_all_data() -> None:
    data = Given(noisy_curve(60))
    model = bayesian(data, "active_set.size=5")
    batches = torch.randperm(60).split(20)
    kl = torch.stack([model.objective(rows(data, *b.tolist())).parts["kl"] for b in batches])
    q = model.encode(rows(data), seen=True)
    torch.testing.assert_close(kl.mean(), -normal_kl(q.mean, q.variance).detach() / data.train.all().x.numel())


def test_the_divergence_scales_with_the_number_of_data_and_not_with_the_pixels() -> None:
    x, kl = far_curve(12), {}
    batch = Batch.of(x[:6])
    for num_data in (12, 24):
        model = bayesian(Given(x, batch_size=6, told={"num_train": num_data}), "active_set.size=3")
        kl[num_data] = num_data * model.objective(batch).parts["kl"]
    torch.testing.assert_close(kl[24], 2 * kl[12])
    single = bayesian(Given(x), "active_set.size=3", amortised=False)
    tiled = bayesian(Given(x.repeat(1, 2)), "active_set.size=3", amortised=False)
    tiled.latents.load_state_dict(single.latents.state_dict())
    wide = Batch.of(x.repeat(1, 2))
    torch.testing.assert_close(2 * tiled.objective(wide).parts["kl"], single.objective(Batch.of(x)).parts["kl"])
