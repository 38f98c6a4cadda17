"""Bayesian GP-LVM: both bounds against quadrature and dense matrices, and how they fit together."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from src.data.batch import Batch
from src.gp.regularisation import latent_divergence
from src.gp.regularisation import moments as moments_of
from src.runs.errors import UserError
from tests.models.builders import Given, built, far_curve, noisy_curve, rows
from tests.models.direct import quadrature, rbf, set_hyperparameters, with_jitter

SMALL = {"num_inducing": 12}
LINEAR = {"_target_": "src.nets.mlp.mlp", "hidden": []}
M = 4


def little(data: Given, **arguments: Any) -> Any:
    """A model of four inducing points, with a q(u) and correlations of q(z) that are not those of its start."""
    model = set_hyperparameters(built(data, "bayesian_gplvm", encoder=LINEAR, num_inducing=M, **arguments))
    with torch.no_grad():
        model.inducing.copy_(torch.tensor([[-1.0, 0.5], [0.2, -0.9], [1.1, 0.8], [0.1, 1.6]]))
        if model.bound == "svi":
            generator = torch.Generator().manual_seed(0)
            model.q_mean.copy_(0.5 * torch.randn(model.q_mean.shape, generator=generator))
            model.q_raw_scale.copy_(0.5 * torch.randn(M, M, generator=generator))
        if model.latents.free and model.latents.kind == "full":
            model.latents.spread.weight[:, 2] = 0.3
    return model


def moments(model: Any, batch: Batch) -> tuple[Tensor, Tensor]:
    """Mean [B, 2] and covariance [B, 2, 2] of q(z), by hand."""
    if not model.latents.free:
        nets, x = (model.latents.mean[1], model.latents.spread[1]), batch.x.double() - model.data_mean
        mean, spread = (x @ net.weight.mT + net.bias for net in nets)
    else:
        mean, spread = model.latents.mean.weight[batch.index], model.latents.spread.weight[batch.index]
    factor = torch.log1p(spread[:, :2].exp()).sqrt().diag_embed()
    if spread.shape[1] == 3:
        factor = factor + spread[:, 2, None, None] * torch.tensor([[0.0, 0], [1, 0]])
    return mean, factor @ factor.mT


def prior_covariance(model: Any) -> Tensor:
    """K_MM, with the relative jitter of 1e-7 that the model documents."""
    return with_jitter(rbf(model.kernel, model.inducing, model.inducing))


def divergence_of_z(mean: Tensor, covariance: Tensor) -> Tensor:
    prior = MultivariateNormal(torch.zeros(2).double(), torch.eye(2).double())
    return kl_divergence(MultivariateNormal(mean, covariance), prior).sum()


def q_of_values(model: Any, k: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [M, D] and covariance [M, M] of q(u), u = L v."""
    raw, chol = model.q_raw_scale, torch.linalg.cholesky(k)
    factor = chol @ (torch.tril(raw, -1) + torch.diag(torch.log1p(raw.diagonal().exp())))
    return chol @ model.q_mean, factor @ factor.mT


def direct_svi(model: Any, x: Tensor, mean: Tensor, covariance: Tensor, num_data: int) -> dict[str, Tensor]:
    """(N / B) sum_n E[log p(x_n | f(z_n))] by quadrature over z, KL[q(u)] and (N / B) KL[q(z)], in nats."""
    k, noise = prior_covariance(model), model.likelihood.noise.squeeze()
    u_mean, u_covariance = q_of_values(model, k)
    nodes, weights = quadrature(48, 2)
    fit = torch.zeros((), dtype=torch.float64)
    for n in range(len(x)):
        z = mean[n] + nodes @ torch.linalg.cholesky(covariance[n]).mT
        gain = torch.linalg.solve(k, rbf(model.kernel, model.inducing, z)).mT  # [S, M]
        variance = model.kernel.outputscale - ((gain @ (k - u_covariance)) * gain).sum(1)
        squares = (x[n] - gain @ u_mean).square().sum(1) + x.shape[1] * variance
        fit = fit - 0.5 * x.shape[1] * torch.log(2 * torch.pi * noise) - 0.5 * weights @ squares / noise
    prior = MultivariateNormal(torch.zeros(M).double(), k)
    kl_u = kl_divergence(MultivariateNormal(u_mean.mT, u_covariance), prior).sum()
    weight = num_data / len(x)
    return {"likelihood": weight * fit, "kl_u": -kl_u, "kl": -weight * divergence_of_z(mean, covariance)}


def direct_collapsed(model: Any, x: Tensor, mean: Tensor, covariance: Tensor) -> Tensor:
    """log of the integral over u of exp(E[log p(x | u, z)]) p(u), whose exponent is quadratic in u, by quadrature."""
    k, noise = prior_covariance(model), model.likelihood.noise.squeeze()
    inverse = torch.linalg.inv(k)
    nodes, weights = quadrature(48, 2)
    psi1, psi2 = torch.zeros(len(x), M).double(), torch.zeros(M, M).double()
    for n in range(len(x)):
        at = rbf(model.kernel, mean[n] + nodes @ torch.linalg.cholesky(covariance[n]).mT, model.inducing)
        psi1[n], psi2 = weights @ at, psi2 + at.mT @ (weights[:, None] * at)
    psi0 = len(x) * model.kernel.outputscale
    precision = inverse + inverse @ psi2 @ inverse / noise
    shift = inverse @ psi1.mT @ x / noise  # [M, D]
    log_det = torch.logdet(k) + torch.logdet(precision)
    constant = x.numel() * torch.log(2 * torch.pi * noise) + (x**2).sum() / noise
    unexplained = x.shape[1] * (psi0 - (inverse * psi2).sum()) / noise
    return -0.5 * (constant + unexplained + x.shape[1] * log_det - (shift * torch.linalg.solve(precision, shift)).sum())


@pytest.mark.parametrize(("amortised", "posterior"), [(True, "diagonal"), (False, "diagonal"), (False, "full")])
def test_the_svi_loss_is_its_bound_by_quadrature(amortised: bool, posterior: str) -> None:
    data = Given(far_curve(12), batch_size=5)
    model = little(data, amortised=amortised, posterior=posterior)
    batch = rows(data, 7, 0, 3, 11, 4)
    with torch.no_grad():
        loss, parts = model.objective(batch)
        direct = direct_svi(model, batch.x.double() - data.train.all().x.double().mean(0), *moments(model, batch), 12)
        for name, value in direct.items():
            torch.testing.assert_close(parts[name], value / 36, rtol=1e-6, atol=1e-9)
        torch.testing.assert_close(loss, -torch.stack(list(direct.values())).sum() / 36, rtol=1e-6, atol=0)


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_the_collapsed_loss_is_its_integral_by_quadrature(posterior: str) -> None:
    data = Given(far_curve(12))
    model = little(data, amortised=False, posterior=posterior, bound="collapsed")
    with torch.no_grad():
        loss, parts = model.objective(rows(data))
        mean, covariance = moments(model, rows(data))
        x = data.train.all().x.double()
        bound, kl = direct_collapsed(model, x - x.mean(0), mean, covariance), divergence_of_z(mean, covariance)
        torch.testing.assert_close(parts["likelihood"], bound / 36, rtol=1e-6, atol=0)
        torch.testing.assert_close(parts["kl"], -kl / 36, rtol=1e-6, atol=0)
        torch.testing.assert_close(loss, -(bound - kl) / 36, rtol=1e-6, atol=0)


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_the_collapsed_bound_is_the_uncollapsed_one_at_its_optimum(posterior: str) -> None:
    data = Given(noisy_curve())
    collapsed = built(data, "bayesian_gplvm", bound="collapsed", posterior=posterior, **SMALL)
    svi = built(data, "bayesian_gplvm", posterior=posterior, **SMALL)
    svi.set_optimal(rows(data))
    torch.testing.assert_close(svi.objective(rows(data)).loss, collapsed.objective(rows(data)).loss, rtol=1e-6, atol=0)
    with torch.no_grad():
        svi.q_mean.add_(0.1)
    assert svi.objective(rows(data)).loss > collapsed.objective(rows(data)).loss


def test_the_mean_over_disjoint_batches_is_the_full_objective() -> None:
    data = Given(noisy_curve(60))
    model = built(data, "bayesian_gplvm", **SMALL)
    losses = [model.objective(rows(data, *b.tolist())).loss for b in torch.randperm(60).split(20)]
    torch.testing.assert_close(torch.stack(losses).mean(), model.objective(rows(data)).loss)


def test_data_terms_scale_with_the_number_of_data_and_the_divergence_of_u_does_not() -> None:
    """In nats; repeated pixels repeat the fit and the divergence of u, and leave that of z."""
    x, parts = far_curve(12), {}
    for num_data in (12, 24):
        model = little(Given(x, told={"num_train": num_data}))
        parts[num_data] = {name: num_data * part for name, part in model.objective(Batch.of(x)).parts.items()}
    for name, factor in {"likelihood": 2, "kl": 2, "kl_u": 1}.items():
        torch.testing.assert_close(parts[24][name], factor * parts[12][name])
    single, tiled = (little(Given(x.repeat(1, r)), amortised=False) for r in (1, 2))
    with torch.no_grad():
        tiled.latents.load_state_dict(single.latents.state_dict())
        tiled.q_mean.copy_(single.q_mean.repeat(1, 2))
        tiled.q_raw_scale.copy_(single.q_raw_scale)
    one, two = (model.objective(Batch.of(x.repeat(1, r))).parts for model, r in ((single, 1), (tiled, 2)))
    for name, factor in {"likelihood": 1, "kl_u": 1, "kl": 2}.items():
        torch.testing.assert_close(one[name], factor * two[name])


def test_samples_agree_with_the_closed_form() -> None:
    data = Given(noisy_curve(30))
    exact = built(data, "bayesian_gplvm", **SMALL)
    sampled = built(data, "bayesian_gplvm", samples=10, **SMALL)
    sampled.load_state_dict(exact.state_dict())
    torch.manual_seed(0)
    with torch.no_grad():
        losses = torch.stack([sampled.objective(rows(data)).loss for _ in range(300)])
        error = losses.mean() - exact.objective(rows(data)).loss
    assert abs(error) < 4 * losses.std() / len(losses) ** 0.5


def test_predictions_are_those_of_q_of_u_with_the_noise_and_the_mean() -> None:
    data = Given(far_curve(12))
    model = little(data)
    z = torch.tensor([[0.3, -0.4], [1.0, 2.0]]).double()
    with torch.no_grad():
        prediction = model.decode(z)
        k = prior_covariance(model)
        u_mean, u_covariance = q_of_values(model, k)
        gain = torch.linalg.solve(k, rbf(model.kernel, model.inducing, z)).mT
        variance = model.kernel.outputscale - ((gain @ (k - u_covariance)) * gain).sum(1) + model.likelihood.noise
    torch.testing.assert_close(prediction.mean, gain @ u_mean + data.train.all().x.double().mean(0))
    torch.testing.assert_close(prediction.variance, variance[:, None].expand(2, 3))


def test_inducing_points_start_among_the_latents_and_q_at_its_optimum() -> None:
    """No other mean of q(u) has a higher bound on all the data."""
    data = Given(noisy_curve(30))
    model = built(data, "bayesian_gplvm", amortised=False, **SMALL)
    latents = model.latents.mean.weight.detach()
    distance = torch.cdist(model.inducing.detach(), latents).min(1).values
    assert distance.max() < 0.5 * torch.cdist(latents, latents).median()
    model.objective(rows(data)).loss.backward()
    assert model.q_mean.grad.abs().max() < 1e-6 and model.q_raw_scale.grad.abs().max() < 1e-6


def test_with_an_encoder_inducing_points_start_where_the_prior_is() -> None:
    """The encoder's first latents are all close to 0, and inducing points among them would stay there."""
    model = built(Given(noisy_curve(200)), "bayesian_gplvm", num_inducing=40)
    radius = model.inducing.detach().norm(dim=1)
    assert 0.8 < radius.median() < 2 and radius.max() < 4  # 1.18 of N(0, I) in the plane; few centres are in the tails
    assert torch.equal(model.inducing, built(Given(noisy_curve(200)), "bayesian_gplvm", num_inducing=40).inducing)


def test_the_collapsed_model_predicts_after_training() -> None:
    data = Given(noisy_curve())
    model = built(data, "bayesian_gplvm", bound="collapsed", amortised=False, **SMALL)
    optimizer = model.make_optimizer()
    for _ in range(100):
        optimizer.zero_grad()
        model.objective(rows(data)).loss.backward()
        optimizer.step()
    model.finalise(data)
    with torch.no_grad():
        prediction = model.decode(model.encode(rows(data), seen=True).mean)
    assert (prediction.mean - data.train.all().x).square().mean().sqrt() < 0.2


def test_what_is_kept_of_the_collapsed_model_is_the_optimal_q_of_all_data() -> None:
    data = Given(far_curve(12))
    collapsed = little(data, amortised=False, bound="collapsed")
    collapsed.finalise(data)
    svi = little(data, amortised=False)
    svi.load_state_dict(collapsed.state_dict())
    with torch.no_grad():
        losses = [model.objective(rows(data)).loss for model in (svi, collapsed)]
    torch.testing.assert_close(*losses, rtol=1e-8, atol=0)


def test_inducing_inputs_and_q_of_u_learn_as_the_gp_does() -> None:
    model = little(Given(far_curve(12)))
    names = {id(p): name for name, p in model.named_parameters()}
    own = {names[id(p)] for p in model.gp_parameters()}
    assert {"inducing", "q_mean", "q_raw_scale"} < own and not any(name.startswith("latents") for name in own)


@pytest.mark.parametrize(
    ("overrides", "batch_size", "reason"),
    [
        (["model.bound=collapsed"], 20, "needs all 60 points in every batch"),
        (["kernel=matern52"], None, "no closed-form expectations: set model.samples=1"),
        (["model.num_inducing=61"], None, "must not exceed the 60 training points"),
    ],
)
def test_what_cannot_work_is_refused(overrides: list[str], batch_size: int | None, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        built(Given(noisy_curve(), batch_size), "bayesian_gplvm", *overrides)


def regularised(data: Given, weight: Any, **arguments: Any) -> Any:
    return little(data, regularisation=weight, **arguments)


@pytest.mark.parametrize("bound", ["svi", "collapsed"])
@pytest.mark.parametrize("amortised", [True, False])
def test_no_weight_is_the_model_without_a_regulariser_digit_by_digit(bound: str, amortised: bool) -> None:
    data = Given(far_curve(12))
    plain, zero = (regularised(data, weight, bound=bound, amortised=amortised) for weight in (None, 0))
    losses = [model.objective(rows(data)).loss for model in (plain, zero)]
    assert losses[0].item() == losses[1].item()
    for loss in losses:
        loss.backward()
    for (name, p), q in zip(plain.named_parameters(), zero.parameters(), strict=True):
        assert torch.equal(p.grad.to_dense(), q.grad.to_dense()), name


@pytest.mark.parametrize("bound", ["svi", "collapsed"])
@pytest.mark.parametrize("amortised", [True, False])
def test_the_regulariser_is_its_weight_times_the_divergence(bound: str, amortised: bool) -> None:
    data = Given(far_curve(12))
    plain, model = (regularised(data, weight, bound=bound, amortised=amortised) for weight in (None, 7.5))
    means, eye = moments(plain, rows(data))[0].detach(), 1e-5 * torch.eye(2)
    q_x, q_z = (
        MultivariateNormal(points.mean(0), torch.cov(points.mT, correction=0) + eye)
        for points in (means, model.inducing.detach())
    )
    loss, parts = model.objective(rows(data))
    expected = 7.5 * kl_divergence(q_z, q_x) / 36
    torch.testing.assert_close(parts["regularisation"], -expected, rtol=1e-9, atol=0)
    torch.testing.assert_close(loss, plain.objective(rows(data)).loss + expected, rtol=1e-9, atol=0)


@pytest.mark.parametrize("amortised", [True, False])
def test_its_gradient_reaches_the_latent_means_and_the_inducing_inputs(amortised: bool) -> None:
    data = Given(far_curve(12))
    plain, model = (regularised(data, weight, amortised=amortised) for weight in (None, 50.0))
    for each in (plain, model):
        each.objective(rows(data)).loss.backward()
    changed = {
        name
        for (name, p), q in zip(model.named_parameters(), plain.parameters(), strict=True)
        if (p.grad.to_dense() - q.grad.to_dense()).abs().max() > 1e-3
    }
    means = {"latents.mean.1.weight", "latents.mean.1.bias"} if amortised else {"latents.mean.weight"}
    assert changed == {"inducing"} | means


def test_the_word_inducing_is_the_number_of_inducing_inputs() -> None:
    data = Given(far_curve(12))
    losses = [regularised(data, weight).objective(rows(data)).loss for weight in ("inducing", M)]
    assert losses[0].item() == losses[1].item()


def test_batches_of_free_latents_have_the_regulariser_of_all_data() -> None:
    """Its value in each batch; its gradient in the mean over batches, which all points share."""
    data = Given(noisy_curve(60))
    model = built(data, "bayesian_gplvm", amortised=False, regularisation=40.0, **SMALL)
    with torch.no_grad():
        model.inducing.mul_(2)
    batches = [model.objective(rows(data, *b.tolist())) for b in torch.randperm(60).split(20)]
    full = model.objective(rows(data))
    for batch in batches:
        torch.testing.assert_close(batch.parts["regularisation"], full.parts["regularisation"])
    mean = torch.stack([batch.loss for batch in batches]).mean()
    torch.testing.assert_close(mean, full.loss)
    parameters = (model.latents.mean.weight, model.inducing)
    found, wanted = (torch.autograd.grad(loss, parameters) for loss in (mean, full.loss))
    for a, b in zip(found, wanted, strict=True):
        torch.testing.assert_close(a.to_dense(), b.to_dense(), rtol=1e-8, atol=1e-12)


def test_batches_of_an_encoder_have_that_of_their_own_means() -> None:
    data = Given(far_curve(12), batch_size=5)
    model = regularised(data, 1.0)
    batch = rows(data, 7, 0, 3, 11, 4)
    means = model.encode(batch, seen=True).mean
    expected = latent_divergence(model.inducing, means) / 36
    torch.testing.assert_close(model.objective(batch).parts["regularisation"], -expected)
    free = regularised(data, 1.0, amortised=False)
    full = latent_divergence(free.inducing, free.latents.mean.weight) / 36
    torch.testing.assert_close(free.objective(rows(data)).parts["regularisation"], -full)


def test_the_empirical_bayes_bound_orders_solutions_as_the_regularised_bound_does() -> None:
    """Theorem 1 with lambda = M: z_m ~ N(q_X), q(z_m) = N(nu_m, eps I) and eps towards 0.

    What the paper maximises is E[ELBO(Z)] - KL[q(Z) || p(Z)] + M / 2 (log|S_nu| - Q log eps), whose last term stands
    for a constant there (log|S_nu| < log K). The expectation over Z is the mean of 64 draws in pairs.
    """
    data = Given(far_curve(12))
    model = regularised(data, "inducing", amortised=False, bound="collapsed")
    generator = torch.Generator().manual_seed(0)
    start, draws = model.inducing.detach().clone(), torch.randn(32, M, 2, generator=generator).double()
    draws = torch.cat([draws, -draws])
    prior = MultivariateNormal(*moments_of(model.latents.mean.weight.detach()))
    regularised_bounds, plain, limits = [], [], []
    for factor, shift in ((1.0, 0.0), (2.0, 0.0), (0.5, 0.3), (1.0, 1.5)):
        nu = factor * start + shift
        regularised_bounds.append(36 * -loss_at(model, data, nu))
        plain.append(36 * bound_at(model, data, nu))
        log_det = torch.logdet(moments_of(nu).covariance)
        for epsilon in (1e-2, 1e-4, 1e-6):
            elbos = [36 * bound_at(model, data, nu + epsilon**0.5 * draw) for draw in draws]
            q = MultivariateNormal(nu, epsilon * torch.eye(2).double())
            kl = kl_divergence(q, prior).sum()
            limits.append(torch.stack(elbos).mean() - kl + M / 2 * (log_det - 2 * math.log(epsilon)))
    found, expected = torch.stack(limits).view(4, 3), torch.stack(regularised_bounds)
    errors = (found - expected[:, None]).abs().max(0).values
    assert errors[2] < 1e-2 and errors[2] < errors[1] < errors[0]
    assert found[:, 2].argsort().tolist() == expected.argsort().tolist() != torch.stack(plain).argsort().tolist()


def loss_at(model: Any, data: Given, inducing: Tensor) -> Tensor:
    """The loss with other inducing inputs."""
    with torch.no_grad():
        model.inducing.copy_(inducing)
        loss: Tensor = model.objective(rows(data)).loss
    return loss


def bound_at(model: Any, data: Given, inducing: Tensor) -> Tensor:
    """The bound without the regulariser."""
    with torch.no_grad():
        model.inducing.copy_(inducing)
        parts = model.objective(rows(data)).parts
    return parts["likelihood"] + parts["kl"]


@pytest.mark.parametrize("bound", ["svi", "collapsed"])
def test_fixed_inducing_inputs_stay_where_k_means_puts_them(bound: str) -> None:
    data = Given(noisy_curve(30))
    free, fixed = (
        built(data, "bayesian_gplvm", amortised=False, bound=bound, inducing=how, **SMALL) for how in ("free", "fixed")
    )
    assert free.objective(rows(data)).loss.item() == fixed.objective(rows(data)).loss.item()
    assert free.state_dict().keys() == fixed.state_dict().keys()
    start = free.inducing.detach().clone()
    for model in (free, fixed):
        optimizer = model.make_optimizer()
        model.objective(rows(data)).loss.backward()
        optimizer.step()
    assert torch.equal(fixed.inducing, start) and not torch.equal(free.inducing, start)


@pytest.mark.parametrize("bound", ["svi", "collapsed"])
def test_the_elbo_of_the_training_data_is_the_bound_without_the_regulariser(
    bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("src.models.bayesian_gplvm.CHUNK", 5)
    data = Given(far_curve(12))
    model = regularised(data, 30.0, bound=bound)
    loss, parts = model.objective(rows(data))
    expected = -loss - parts["regularisation"]
    assert model.elbo(data.train) == pytest.approx(expected.item(), rel=1e-9)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"regularisation": -1}, "model.regularisation=-1 is neither a weight of at least 0 nor inducing"),
        ({"regularisation": "M"}, "model.regularisation=M is neither"),
        ({"inducing": "frozen"}, "model.inducing=frozen is neither free nor fixed"),
        ({"regularisation": 1, "num_inducing": 2}, "model.num_inducing=2 must exceed model.latent_dim=2"),
    ],
)
def test_regularisers_that_cannot_work_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        built(Given(noisy_curve()), "bayesian_gplvm", **({"num_inducing": M} | options))


def bits_model() -> tuple[Any, Given, Tensor]:
    x = (torch.rand(12, 3, generator=torch.Generator().manual_seed(2)) > 0.6).float()
    data = Given(x, batch_size=5, told={"binary": True})
    model = built(data, "bayesian_gplvm", encoder=LINEAR, num_inducing=M, likelihood="bernoulli", samples=2)
    set_hyperparameters(model, noise=None)
    with torch.no_grad():
        model.inducing.copy_(torch.tensor([[-1.0, 0.5], [0.2, -0.9], [1.1, 0.8], [0.1, 1.6]]))
    return model, data, x.double()


def test_bits_have_the_expected_log_probability_by_quadrature() -> None:
    """At the model's own draws of z: (N / B) sum_n E[log p(x_n | f(z_n))], by a finer quadrature over f."""
    model, data, x = bits_model()
    batch, index = rows(data, 7, 0, 3, 11, 4), [7, 0, 3, 11, 4]
    with torch.no_grad():
        mean, covariance = moments(model, batch)
        torch.manual_seed(1)
        z = Normal(mean, covariance.diagonal(dim1=1, dim2=2).sqrt()).rsample((2,))
        torch.manual_seed(1)
        loss, parts = model.objective(batch)
        k = prior_covariance(model)
        u_mean, u_covariance = q_of_values(model, k)
        nodes, weights = quadrature(80, 1)
        fit = torch.zeros((), dtype=torch.float64)
        for points in z:
            gain = torch.linalg.solve(k, rbf(model.kernel, model.inducing, points)).mT
            variance = model.kernel.outputscale - ((gain @ (k - u_covariance)) * gain).sum(1)
            f = (gain @ u_mean + model.offset)[..., None] + variance.sqrt()[:, None, None] * nodes[:, 0]
            fit += (x[index][..., None] * f - torch.log1p(f.exp())).matmul(weights).sum() / 2
    torch.testing.assert_close(parts["likelihood"], 12 / 5 * fit / 36, rtol=1e-6, atol=1e-8)
    torch.testing.assert_close(loss, -(parts["likelihood"] + parts["kl_u"] + parts["kl"]))


def test_bits_are_predicted_by_expected_probabilities() -> None:
    model, _, _ = bits_model()
    z = torch.randn(4, 2, generator=torch.Generator().manual_seed(0)).double()
    with torch.no_grad():
        k = prior_covariance(model)
        u_mean, u_covariance = q_of_values(model, k)
        gain = torch.linalg.solve(k, rbf(model.kernel, model.inducing, z)).mT
        variance = model.kernel.outputscale - ((gain @ (k - u_covariance)) * gain).sum(1)
        nodes, weights = quadrature(80, 1)
        f = (gain @ u_mean + model.offset)[..., None] + variance.sqrt()[:, None, None] * nodes[:, 0]
        torch.testing.assert_close(model.decode(z).mean, torch.sigmoid(f) @ weights, rtol=0, atol=1e-5)


def test_q_of_bits_starts_at_the_optimum_of_their_pseudo_targets() -> None:
    """Real targets 4 (x - frequency) with noise 4, in place of the bits."""
    model, data, x = bits_model()
    targets, noise = model.pseudo_targets(rows(data), model.labels)
    torch.testing.assert_close(targets, 4 * (x - torch.sigmoid(model.offset)))
    assert noise.tolist() == [4.0]
