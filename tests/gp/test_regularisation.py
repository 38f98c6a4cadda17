"""The regularisers of sparse GPs against torch's distributions, brute force and the paper's theorem."""

import math

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from src.gp.regularisation import (
    FLOOR,
    Moments,
    distance_to_nearest,
    divergence,
    latent_divergence,
    moments,
    symmetric_divergence,
)

Q = 3


def points(number: int, seed: int, offset: float = 0.0) -> Tensor:
    """Correlated points [number, Q] in float64."""
    generator = torch.Generator().manual_seed(seed)
    mixing = torch.tensor([[1.0, 0.4, 0.0], [0.0, 0.8, -0.3], [0.2, 0.0, 1.3]], dtype=torch.float64)
    return torch.randn(number, Q, generator=generator, dtype=torch.float64) @ mixing + offset


def fitted(values: Tensor) -> MultivariateNormal:
    """The maximum-likelihood Gaussian with the documented floor, by torch."""
    covariance = torch.cov(values.mT, correction=0) + FLOOR * torch.eye(Q, dtype=torch.float64)
    return MultivariateNormal(values.mean(0), covariance)


def test_the_divergence_is_that_of_torch() -> None:
    x, z = points(40, 0), 0.5 * points(9, 1) + torch.tensor([0.7, -0.2, 0.1], dtype=torch.float64)
    expected = kl_divergence(fitted(z), fitted(x))
    torch.testing.assert_close(latent_divergence(z, x), expected, rtol=1e-10, atol=0)
    assert abs(expected - kl_divergence(fitted(x), fitted(z))) > 0.1  # the other direction is another number


def test_inducing_inputs_with_the_moments_of_the_latents_have_no_divergence() -> None:
    x = points(40, 0)
    torch.testing.assert_close(latent_divergence(x.flip(0), x), torch.zeros(()).double(), rtol=0, atol=1e-12)
    torch.testing.assert_close(symmetric_divergence(x, x.flip(0)), torch.zeros(()).double(), rtol=0, atol=1e-12)


@pytest.mark.parametrize("with_known", [False, True])
def test_its_gradient_in_latents_and_inducing_inputs_is_the_slope(with_known: bool) -> None:
    x, z = points(12, 0).requires_grad_(), points(6, 1, 0.5).requires_grad_()
    known = x.detach().clone() if with_known else None
    by_gradient = torch.autograd.grad(latent_divergence(z, x, known), (x, z))
    step, towards = 1e-6, (points(12, 2), points(6, 3))
    values = [latent_divergence(z + s * towards[1], x + s * towards[0]).item() for s in (step, -step)]
    slope = sum((g * t).sum().item() for g, t in zip(by_gradient, towards, strict=True))
    assert all(g.abs().min() > 0 for g in by_gradient)
    assert slope == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-6)


def test_the_mean_over_batches_is_the_value_and_the_gradient_of_all_points() -> None:
    x, z = points(24, 0).requires_grad_(), points(6, 1, 0.5).requires_grad_()
    full = latent_divergence(z, x)
    batches = [latent_divergence(z, x[rows], x) for rows in torch.randperm(24).split(6)]
    for part in batches:
        torch.testing.assert_close(part, full, rtol=1e-12, atol=0)
    wanted = torch.autograd.grad(full, (x, z))
    found = torch.autograd.grad(torch.stack(batches).mean(), (x, z))
    torch.testing.assert_close(found, wanted, rtol=1e-10, atol=1e-12)


def test_the_gaussian_of_a_batch_alone_is_another() -> None:
    x = points(24, 0)
    torch.testing.assert_close(moments(x[:6]).mean, x[:6].mean(0))
    torch.testing.assert_close(moments(x[:6], x).mean, x.mean(0))


def test_points_without_spread_have_a_finite_divergence() -> None:
    x = points(12, 0)
    x[:, 1] = 0.3
    assert torch.isfinite(latent_divergence(points(6, 1), x)) and torch.isfinite(latent_divergence(x, points(6, 1)))


def test_the_empirical_bayes_divergence_tends_to_the_regulariser() -> None:
    """Theorem 1 with lambda = M: KL[q(Z) || p(Z)] of q(z_m) = N(nu_m, eps I) and the prior N(z_m | q_X).

    It exceeds M KL[q_Z || q_X] by M / 2 (log|S_nu| - Q log eps + eps tr S_X^-1). The paper bounds log|S_nu| by a
    constant, log K: what is left differs from the regulariser by a constant that shrinking eps leaves alone.
    """
    x = points(40, 0)
    candidates = [points(9, seed, offset) for seed, offset in ((1, 0.0), (2, 0.5), (3, -1.0), (4, 0.1))]
    q_x = moments(x)
    prior = MultivariateNormal(*q_x)
    for epsilon in (1e-2, 1e-4, 1e-6):
        for nu in candidates:
            spread = epsilon * torch.eye(Q, dtype=torch.float64)
            exact = kl_divergence(MultivariateNormal(nu, spread), prior).sum()
            covariance = torch.cov(nu.mT, correction=0)  # exactly, without the floor
            regulariser = divergence(Moments(nu.mean(0), covariance), q_x)
            rest = torch.logdet(covariance) - Q * math.log(epsilon) + epsilon * torch.linalg.inv(q_x.covariance).trace()
            torch.testing.assert_close(exact, 9 * regulariser + 4.5 * rest, rtol=1e-10, atol=0)


def test_the_distance_to_the_nearest_inducing_input_is_that_of_brute_force() -> None:
    x, z = points(15, 0), points(4, 1).requires_grad_()
    brute = sum(min((a - b).square().sum().sqrt().item() for b in z) for a in x)
    distance = distance_to_nearest(x, z)
    assert distance.item() == pytest.approx(brute, rel=1e-12)
    column = distance_to_nearest(x[:, :1], z[:, :1])
    torch.testing.assert_close(column, (x[:, :1] - z[:, 0]).abs().min(1).values.sum())
    (gradient,) = torch.autograd.grad(column, z)
    nearest = (x[:, :1] - z[:, 0]).abs().argmin(1)
    signs = torch.stack([(z[m, 0] - x[nearest == m, 0]).sign().sum() for m in range(4)])
    torch.testing.assert_close(gradient[:, 0], signs)


def test_an_inducing_input_on_a_point_has_a_finite_gradient() -> None:
    z = points(4, 1).requires_grad_()
    (gradient,) = torch.autograd.grad(distance_to_nearest(z.detach(), z), z)
    assert torch.isfinite(gradient).all()


def test_the_symmetric_divergence_is_the_mean_over_dimensions_of_torchs() -> None:
    x, z = points(40, 0), 0.4 * points(9, 1) + 0.3
    total = torch.zeros(()).double()
    for a, b in zip(x.mT, z.mT, strict=True):
        p, q = (Normal(values.mean(), values.std(correction=0)) for values in (a, b))
        total += 0.5 * (kl_divergence(p, q) + kl_divergence(q, p))
    torch.testing.assert_close(symmetric_divergence(x, z), total / Q, rtol=1e-12, atol=0)
    torch.testing.assert_close(symmetric_divergence(z, x), total / Q, rtol=1e-12, atol=0)
