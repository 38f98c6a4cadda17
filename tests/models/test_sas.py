"""SAS-GP and Bayesian SAS-GP as models: what the objective adds to the estimate."""

import pytest
import torch

from src.gp.active_set import log_marginal
from src.models.posterior import kl_to_prior
from tests.models.builders import Given, built, noisy_curve, rows


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_with_vanishing_variances_and_no_kl_it_is_the_point_model(posterior: str) -> None:
    data = Given(noisy_curve())
    point = built(data, "sas", "active_set.size=20", "model.amortised=false")
    bayesian = built(data, "bayesian_sas", "active_set.size=20", "model.amortised=false", posterior=posterior)
    with torch.no_grad():
        bayesian.latents.spread.weight[:, :2] = -60.0
        bayesian.latents.spread.weight[:, 2:] = 0.0
    torch.manual_seed(0)
    parts, expected = bayesian.objective(rows(data)).parts, point.objective(rows(data)).parts
    for name in ("active", "rest"):
        torch.testing.assert_close(parts[name], expected[name], rtol=1e-9, atol=0)


def test_the_mean_kl_over_disjoint_batches_is_that_of_all_data() -> None:
    data = Given(noisy_curve(60))
    model = built(data, "bayesian_sas", "active_set.size=5")
    batches = torch.randperm(60).split(20)
    kl = torch.stack([model.objective(rows(data, *b.tolist())).parts["kl"] for b in batches])
    full = kl_to_prior(model.encode(data.train.x)).sum() / data.train.x.numel()
    torch.testing.assert_close(kl.mean(), -full.detach())


def test_the_loss_is_minus_the_exact_evidence_with_one_point_left_out() -> None:
    """In nats per observed value, of the centred data."""
    data = Given(noisy_curve(30))
    model = built(data, "sas", "active_set.size=29")
    x, z = model.centred(data.train.x), model.encode(data.train.x).mean
    exact = log_marginal(x, z, model.kernel, model.likelihood.noise)
    torch.testing.assert_close(model.objective(rows(data)).loss, -exact / x.numel())


def test_the_random_form_is_unbiased_as_a_model() -> None:
    """Its mean over many steps is the exact evidence, within four standard errors."""
    data = Given(noisy_curve(12))
    model = built(data, "sas", "active_set=random")
    x, z = model.centred(data.train.x), model.encode(data.train.x).mean
    exact = log_marginal(x, z, model.kernel, model.likelihood.noise)
    torch.manual_seed(0)
    with torch.no_grad():
        losses = torch.stack([model.objective(rows(data, *torch.randperm(12).tolist())).loss for _ in range(3000)])
    error = losses.mean() + exact / x.numel()
    assert abs(error) < 4 * losses.std() / len(losses) ** 0.5


def test_predicted_variance_is_a_variance() -> None:
    """The sd of the decoded Normal is the root of the GP's predictive variance."""
    data = Given(noisy_curve())
    model = built(data, "sas", "active_set.size=20")
    z = torch.zeros(3, 2, dtype=torch.float64)
    mean, variance = model.given().predict(z)
    torch.testing.assert_close(model.decode(z).variance[:, 0], variance)
    torch.testing.assert_close(model.decode(z).mean, mean + model.data_mean)
