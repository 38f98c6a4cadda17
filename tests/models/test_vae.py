"""VAE: with a linear decoder its evidence is known."""

from typing import Any

import torch
from torch.distributions import MultivariateNormal

from tests.models.builders import Given, built, noisy_curve, rows

LINEAR = {"_target_": "src.nets.mlp.mlp_decoder", "hidden": []}


def linear_vae(data: Given) -> Any:
    """A free, full-covariance VAE with decoder W z (no bias, W of orthogonal columns)."""
    model = built(data, "vae", decoder=LINEAR, amortised=False, posterior="full")
    with torch.no_grad():
        model.net[0].bias.zero_()
        model.net[0].weight.copy_(torch.linalg.qr(torch.randn(5, 2).double())[0] * torch.tensor([2.0, 0.7]))
    return model


def exact_evidence(model: Any, data: Given) -> torch.Tensor:
    """log N(x | mean, W W^T + noise I): probabilistic PCA."""
    w = model.net[0].weight
    covariance = w @ w.mT + model.likelihood.noise * torch.eye(5, dtype=torch.float64)
    return (
        MultivariateNormal(model.data_mean, covariance).log_prob(model.as_float(data.train.x)).sum()
        / data.train.x.numel()
    )


def mean_elbo(model: Any, data: Given, draws: int = 2000) -> tuple[torch.Tensor, torch.Tensor]:
    """The mean of the stochastic ELBO and its standard error."""
    torch.manual_seed(0)
    with torch.no_grad():
        values = torch.stack([-model.objective(rows(data)).loss for _ in range(draws)])
    return values.mean(), values.std() / draws**0.5


def test_the_elbo_is_below_the_exact_evidence_and_reaches_it_at_the_exact_posterior() -> None:
    data = Given(noisy_curve())
    model = linear_vae(data)
    exact = exact_evidence(model, data).detach()
    elbo, error = mean_elbo(model, data)
    assert elbo + 4 * error < exact
    w, noise = model.net[0].weight.detach(), model.likelihood.noise.detach()
    precision = torch.eye(2, dtype=torch.float64) + w.mT @ w / noise  # diagonal, as W has orthogonal columns
    variance = 1 / precision.diagonal()
    with torch.no_grad():
        model.latents.mean.weight.copy_(model.centred(data.train.x) @ w * variance / noise)
        model.latents.spread.weight[:, :2] = variance.expm1().log()
        model.latents.spread.weight[:, 2:] = 0
    elbo, error = mean_elbo(model, data)
    assert abs(elbo - exact) < 4 * error + 1e-12
