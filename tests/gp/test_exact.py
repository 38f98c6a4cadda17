"""The exact posterior against GP regression with explicit inverses, torch's own divergences and differences."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence

from src.gp.exact import exact_posterior
from src.gp.linalg import add_diagonal
from tests.gp.latent_problem import NEW, B, P, Problem, make_problem


@pytest.fixture
def problem() -> Problem:
    return make_problem()


def test_it_is_gp_regression(problem: Problem) -> None:
    k = problem.k_bb.numpy()
    seen, new = slice(0, B - NEW), slice(B - NEW, B)
    q = exact_posterior(problem.k_bb[seen, seen], problem.y[seen], 1 / problem.variance[seen])
    mean, variance = q.marginals(problem.k_bb[seen, new], problem.k_bb.diagonal()[new])
    for p in range(P):
        inverse = np.linalg.inv(k[seen, seen] + np.diag(problem.variance[seen, p].numpy()))
        np.testing.assert_allclose(mean[:, p], k[new, seen] @ inverse @ problem.y[seen, p].numpy(), rtol=1e-9)
        expected = np.diag(k[new, new] - k[new, seen] @ inverse @ k[seen, new])
        np.testing.assert_allclose(variance[:, p], expected, rtol=1e-9)


def test_the_normaliser_is_the_normal_density_less_its_constant(problem: Problem) -> None:
    q = exact_posterior(problem.k_bb, problem.y, 1 / problem.variance)
    covariance = problem.k_bb + problem.variance.mT.diag_embed()
    log_z = MultivariateNormal(torch.zeros(B, dtype=torch.float64), covariance).log_prob(problem.y.mT).sum()
    constant = -0.5 * (2 * math.pi * problem.variance).log().sum()
    torch.testing.assert_close(q.log_normaliser() + constant, log_z, rtol=1e-10, atol=1e-10)


def test_the_divergence_is_torchs(problem: Problem) -> None:
    prior = add_diagonal(problem.k_bb, 0.1)
    q = exact_posterior(prior, problem.y, 1 / problem.variance)
    mean, variance = q.marginals(prior, prior.diagonal())
    gain = torch.linalg.solve(prior + problem.variance.mT.diag_embed(), prior)  # [P, B, B]
    posterior = MultivariateNormal(mean.mT, prior - prior @ gain)
    expected = kl_divergence(posterior, MultivariateNormal(torch.zeros_like(mean.mT), prior)).sum()
    result = q.kl(problem.y, 1 / problem.variance, mean, variance)
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)


def test_a_point_of_weight_zero_is_as_none(problem: Problem) -> None:
    weight = 1 / problem.variance
    weight[5] = 0
    rest = torch.arange(B) != 5
    all_points = exact_posterior(problem.k_bb, problem.y, weight)
    fewer = exact_posterior(problem.k_bb[rest][:, rest], problem.y[rest], weight[rest])
    mean, variance = all_points.marginals(problem.k_bb, problem.k_bb.diagonal())
    torch.testing.assert_close((mean, variance), fewer.marginals(problem.k_bb[rest], problem.k_bb.diagonal()))
    divergence = fewer.kl(problem.y[rest], weight[rest], mean[rest], variance[rest])
    torch.testing.assert_close(all_points.kl(problem.y, weight, mean, variance), divergence)


def test_sets_are_independent(problem: Problem) -> None:
    """Videos side by side are as videos one by one."""

    def of(k: Tensor, y: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        q = exact_posterior(k, y, weight)
        mean, variance = q.marginals(k, k.diagonal(dim1=-2, dim2=-1))
        return mean, variance, q.kl(y, weight, mean, variance)

    halves = (slice(0, 6), slice(6, 12))
    videos = [(problem.k_bb[h, h], problem.y[h], 1 / problem.variance[h]) for h in halves]
    together = of(*(torch.stack(parts) for parts in zip(*videos, strict=True)))
    for video, inputs in enumerate(videos):
        torch.testing.assert_close(tuple(joint[video] for joint in together), of(*inputs))


def test_float32_observations_give_float32_results_near_those_of_float64(problem: Problem) -> None:
    single = Problem(*(tensor.float() for tensor in problem))
    results = []
    for p in (single, problem):
        q = exact_posterior(p.k_bb, p.y, 1 / p.variance)
        mean, variance = q.marginals(p.k_bb, p.k_bb.diagonal())
        results.append((mean, variance, q.kl(p.y, 1 / p.variance, mean, variance)))
    for narrow, wide in zip(*results, strict=True):
        assert narrow.dtype == torch.float32
        torch.testing.assert_close(narrow.double(), wide, rtol=1e-3, atol=1e-4)


def test_gradients(problem: Problem) -> None:
    def of(k: Tensor, y: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        k = (k + k.mT) / 2
        q = exact_posterior(k, y, 1 / variance)
        mean, spread = q.marginals(k, k.diagonal())
        return mean, spread, q.kl(y, 1 / variance, mean, spread)

    inputs = (problem.k_bb[:4, :4], problem.y[:4], problem.variance[:4])
    assert torch.autograd.gradcheck(of, [tensor.clone().requires_grad_() for tensor in inputs])
