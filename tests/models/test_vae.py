"""VAE: its bound under the same draw, and with a linear decoder its evidence, which is known."""

from typing import Any

import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from src.data.batch import Batch
from tests.models.builders import Given, built, far_curve, noisy_curve, rows
from tests.models.direct import normal_kl

LINEAR_DECODER = {"_target_": "src.nets.mlp.mlp_decoder", "hidden": []}
LINEAR_ENCODER = {"_target_": "src.nets.mlp.mlp", "hidden": []}


def vae(data: Given, **arguments: Any) -> Any:
    model = built(data, "vae", decoder=LINEAR_DECODER, encoder=LINEAR_ENCODER, **arguments)
    model.likelihood.learned.noise = 0.3
    return model


def direct_terms(model: Any, x: Tensor, data_mean: Tensor) -> tuple[Tensor, Tensor]:
    """The fit and the divergence of some points in nats, by hand, at the next draw of the generator."""
    nets = [model.latents.mean[1], model.latents.spread[1]]
    mean, spread = ((x - data_mean) @ net.weight.mT + net.bias for net in nets)
    variance = torch.log1p(spread.exp())
    z = Normal(mean, variance.sqrt()).rsample()
    decoded = z @ model.net[0].weight.mT + model.net[0].bias + data_mean
    fit = Normal(decoded, model.likelihood.noise.sqrt()).log_prob(x).sum()
    return fit, normal_kl(mean, variance)


def test_the_loss_is_the_bound_at_its_own_draw() -> None:
    data = Given(far_curve(12), batch_size=4)
    model = vae(data)
    everything = data.train.all().x.double()
    for index in ([0, 5, 3, 9], [2, 1, 11, 7]):
        torch.manual_seed(1)
        fit, kl = direct_terms(model, everything[index], everything.mean(0))
        torch.manual_seed(1)
        loss, parts = model.objective(rows(data, *index))
        torch.testing.assert_close(loss, -(fit - kl) * (12 / 4) / (12 * 3))
        torch.testing.assert_close(parts["fit"], fit.detach() / (4 * 3))
        torch.testing.assert_close(parts["kl"], -kl.detach() / (4 * 3))


def test_the_mean_over_disjoint_batches_is_the_full_objective() -> None:
    """In expectation: with variances of q near 0 nothing is random."""
    data = Given(far_curve(12))
    model = vae(data)
    with torch.no_grad():
        model.latents.spread[1].weight.zero_()
        model.latents.spread[1].bias.fill_(-40)
    losses = [model.objective(rows(data, *index.tolist())).loss for index in torch.randperm(12).split(4)]
    torch.testing.assert_close(torch.stack(losses).mean(), model.objective(rows(data)).loss)


def test_both_terms_scale_with_the_number_of_data() -> None:
    """In nats both double with N; per value nothing changes."""
    x, values = far_curve(12), []
    for num_data in (12, 24):
        model = vae(Given(x, batch_size=6, told={"num_train": num_data}))
        torch.manual_seed(0)
        values.append(model.objective(Batch.of(x[:6])).parts)
    torch.testing.assert_close(values[0]["fit"], values[1]["fit"])
    torch.testing.assert_close(values[0]["kl"], values[1]["kl"])


def test_repeated_pixels_repeat_the_fit_and_not_the_divergence() -> None:
    x, values = far_curve(12), []
    for repeats in (1, 3):
        model = vae(Given(x.repeat(1, repeats)), amortised=False)
        with torch.no_grad():
            model.latents.mean.weight.copy_(far_curve(12, 2) - 6)
            model.net[0].weight.copy_(torch.tensor([[1.0, 2], [0, 1], [-1, 1]]).repeat(repeats, 1))
            model.net[0].bias.zero_()
        torch.manual_seed(0)
        values.append(model.objective(Batch.of(x.repeat(1, repeats))).parts)
    torch.testing.assert_close(values[0]["fit"], values[1]["fit"])
    torch.testing.assert_close(values[0]["kl"], 3 * values[1]["kl"])


def linear_vae(data: Given) -> Any:
    """A free, full-covariance VAE with decoder W z (no bias, W of orthogonal columns)."""
    model = built(data, "vae", decoder=LINEAR_DECODER, amortised=False, posterior="full")
    with torch.no_grad():
        model.net[0].bias.zero_()
        model.net[0].weight.copy_(torch.linalg.qr(torch.randn(5, 2).double())[0] * torch.tensor([2.0, 0.7]))
    return model


def exact_evidence(model: Any, data: Given) -> Tensor:
    """log N(x | mean, W W^T + noise I): probabilistic PCA."""
    w, x = model.net[0].weight, data.train.all().x.double()
    covariance = w @ w.mT + model.likelihood.noise * torch.eye(5, dtype=torch.float64)
    return MultivariateNormal(x.mean(0), covariance).log_prob(x).sum() / x.numel()


def mean_elbo(model: Any, data: Given, draws: int = 400) -> tuple[Tensor, Tensor]:
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
        model.latents.mean.weight.copy_(model.centred(data.train.all().x) @ w * variance / noise)
        model.latents.spread.weight[:, :2] = variance.expm1().log()
        model.latents.spread.weight[:, 2:] = 0
    elbo, error = mean_elbo(model, data)
    assert abs(elbo - exact) < 4 * error + 1e-12


def test_decoding_gives_the_net_the_data_mean_and_the_noise() -> None:
    data = Given(far_curve(12))
    model = vae(data)
    z = torch.tensor([[0.3, -1.0], [2.0, 0.5]]).double()
    prediction = model.decode(z)
    expected = z @ model.net[0].weight.mT + model.net[0].bias + data.train.all().x.double().mean(0)
    torch.testing.assert_close(prediction.mean, expected)
    torch.testing.assert_close(prediction.variance, torch.full_like(expected, 0.3), rtol=1e-6, atol=0)


def test_bits_have_logits_that_start_at_the_log_odds() -> None:
    """The bound by hand; the encoder sees what is centred."""
    x = (torch.rand(12, 4, generator=torch.Generator().manual_seed(2)) > 0.6).float()
    data = Given(x, batch_size=4, told={"binary": True})
    model = built(data, "vae", decoder=LINEAR_DECODER, encoder=LINEAR_ENCODER, likelihood="bernoulli")
    t, batch = x.double(), rows(data, 0, 5, 3, 9)
    odds = ((t.sum(0) + 0.5) / 13).logit()
    nets = [model.latents.mean[1], model.latents.spread[1]]
    mean, spread = ((batch.x.double() - t.mean(0)) @ net.weight.mT + net.bias for net in nets)
    variance = torch.log1p(spread.exp())
    torch.manual_seed(1)
    z = Normal(mean, variance.sqrt()).rsample()
    p = torch.sigmoid(z @ model.net[0].weight.mT + model.net[0].bias + odds)
    fit = (batch.x * p.log() + (1 - batch.x) * (1 - p).log()).sum()
    torch.manual_seed(1)
    loss = model.objective(batch).loss
    torch.testing.assert_close(loss, -(fit - normal_kl(mean, variance)) / 16, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(model.decode(z).mean, p, rtol=1e-6, atol=1e-6)
