"""Latent GPs against formulas with explicit inverses, torch's own divergences, and each other."""

import math
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from src.gp import latent_gp
from src.gp.latent_gp import Sparse, Statistics, exact, factorise, sparse, statistics
from src.gp.linalg import add_diagonal

CHANNELS, INDUCING, POINTS, NEW = 3, 5, 12, 4


class Problem(NamedTuple):
    k_mm: Tensor  # [M, M]
    k_bm: Tensor  # [b, M]
    k_bb: Tensor  # [b, b]
    y: Tensor  # [b, L]
    variance: Tensor  # [b, L]


def rbf(a: Tensor, b: Tensor) -> Tensor:
    return (-0.5 * (a[:, None] - b).square()).exp()


@pytest.fixture
def problem() -> Problem:
    generator = torch.Generator().manual_seed(0)
    points = 6 * torch.rand(POINTS, generator=generator, dtype=torch.float64)
    inducing = torch.linspace(0, 6, INDUCING, dtype=torch.float64)
    y = torch.randn(POINTS, CHANNELS, generator=generator, dtype=torch.float64)
    variance = 0.1 + torch.rand(POINTS, CHANNELS, generator=generator, dtype=torch.float64)
    return Problem(2 * rbf(inducing, inducing), 2 * rbf(points, inducing), 2 * rbf(points, points), y, variance)


def infer(p: Problem, scale: float = 1.0) -> Sparse:
    chol, jitter = factorise(p.k_mm)
    assert jitter == 0
    return sparse(chol, statistics(chol, p.k_bm, p.y, 1 / p.variance), scale, p.y.dtype)


def jittered(k_mm: Tensor) -> Tensor:
    return add_diagonal(k_mm, latent_gp.JITTER * k_mm.diagonal().mean())


@pytest.mark.parametrize("scale", [1.0, 7.5])
def test_equation_9_and_the_marginals_as_they_are_printed(problem: Problem, scale: float) -> None:
    k_mm, k_bm, k_bb = jittered(problem.k_mm).numpy(), problem.k_bm.numpy(), problem.k_bb.numpy()
    q = infer(problem, scale)
    means, covariances = q.values()
    mean, variance = q.marginals(problem.k_bm, problem.k_bb.diagonal())
    for channel in range(CHANNELS):
        y, weight = problem.y[:, channel].numpy(), np.diag(1 / problem.variance[:, channel].numpy())
        sigma = k_mm + scale * k_bm.T @ weight @ k_bm
        mu = scale * k_mm @ np.linalg.inv(sigma) @ k_bm.T @ weight @ y
        a = k_mm @ np.linalg.inv(sigma) @ k_mm
        np.testing.assert_allclose(means[channel], mu, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(covariances[channel], a, rtol=1e-9, atol=1e-10)
        project = k_bm @ np.linalg.inv(k_mm)
        q_variance = np.diag(k_bb - project @ k_bm.T + project @ a @ project.T)
        np.testing.assert_allclose(mean[:, channel], project @ mu, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(variance[:, channel], q_variance, rtol=1e-9, atol=1e-10)


def test_the_divergence_is_torchs(problem: Problem) -> None:
    q = infer(problem, 3.0)
    prior = MultivariateNormal(torch.zeros(INDUCING, dtype=torch.float64), jittered(problem.k_mm))
    expected = kl_divergence(MultivariateNormal(*q.values()), prior).sum()
    torch.testing.assert_close(q.kl(), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("scale", [1.0, 7.5])
def test_the_data_terms_of_the_papers_bound_cancel(problem: Problem, scale: float) -> None:
    """Eq. 10's L_H - E_q[log q~] = -(b / N) sum_l KL_l: the rest of L_H (Eq. 7) is the cross-entropy (1e-10)."""
    q = infer(problem, scale)
    mu, a = q.values()
    k_mm, s2 = jittered(problem.k_mm), problem.variance
    project = torch.linalg.solve(k_mm, problem.k_bm.mT).mT  # [b, M], k_i K_mm^-1
    unexplained = problem.k_bb.diagonal() - (project * problem.k_bm).sum(1)
    traces = torch.einsum("im,lmn,in->il", project, a, project)  # tr(A_l Lambda_i)
    fit = Normal(project @ mu.mT, s2.sqrt()).log_prob(problem.y) - (unexplained[:, None] + traces) / (2 * s2)
    prior = MultivariateNormal(torch.zeros(INDUCING, dtype=torch.float64), k_mm)
    divergence = kl_divergence(MultivariateNormal(mu, a), prior).sum() / scale
    mean, variance = q.marginals(problem.k_bm, problem.k_bb.diagonal())
    cross_entropy = Normal(mean, s2.sqrt()).log_prob(problem.y) - variance / (2 * s2)  # E_q[log N(z | y, s2)]
    bound = fit.sum() - divergence - cross_entropy.sum()
    torch.testing.assert_close(bound, -q.kl() / scale, rtol=1e-10, atol=1e-10)


def test_statistics_of_chunks_add_up_to_those_of_all(problem: Problem) -> None:
    """The mean over disjoint batches of the scaled statistics is that of the full batch."""
    chol, _ = factorise(problem.k_mm)
    whole = statistics(chol, problem.k_bm, problem.y, 1 / problem.variance)
    rows = torch.arange(POINTS).split(4)
    parts = [statistics(chol, problem.k_bm[r], problem.y[r], 1 / problem.variance[r]) for r in rows]
    torch.testing.assert_close(torch.stack([p.precision for p in parts]).sum(0), whole.precision)
    torch.testing.assert_close(torch.stack([len(rows) * p.shift for p in parts]).mean(0), whole.shift)


def test_sets_are_independent(problem: Problem) -> None:
    """Videos side by side are as videos one by one."""
    chol, _ = factorise(problem.k_mm)

    def of(y: Tensor, k_bm: Tensor, k_bb: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        q = sparse(chol, statistics(chol, k_bm, y, weight), 1.0, y.dtype)
        return *q.marginals(k_bm, k_bb), q.kl()

    inputs = (problem.y, problem.k_bm, problem.k_bb.diagonal(), 1 / problem.variance)
    together = of(*(torch.stack([part[:6], part[6:]]) for part in inputs))
    for video, rows in enumerate((slice(0, 6), slice(6, 12))):
        for joint, alone in zip(together, of(*(part[rows] for part in inputs)), strict=True):
            torch.testing.assert_close(joint[video], alone)


def test_the_exact_posterior_is_gp_regression(problem: Problem) -> None:
    k = problem.k_bb.numpy()
    seen, new = slice(0, POINTS - NEW), slice(POINTS - NEW, POINTS)
    q = exact(problem.k_bb[seen, seen], problem.y[seen], 1 / problem.variance[seen])
    mean, variance = q.marginals(problem.k_bb[new, seen], problem.k_bb.diagonal()[new])
    for channel in range(CHANNELS):
        inverse = np.linalg.inv(k[seen, seen] + np.diag(problem.variance[seen, channel].numpy()))
        np.testing.assert_allclose(
            mean[:, channel], k[new, seen] @ inverse @ problem.y[seen, channel].numpy(), rtol=1e-9
        )
        expected = np.diag(k[new, new] - k[new, seen] @ inverse @ k[seen, new])
        np.testing.assert_allclose(variance[:, channel], expected, rtol=1e-9)


def test_the_evidence_is_the_normal_density_less_its_constant(problem: Problem) -> None:
    q = exact(problem.k_bb, problem.y, 1 / problem.variance)
    covariance = problem.k_bb + problem.variance.mT.diag_embed()
    log_z = MultivariateNormal(torch.zeros(POINTS, dtype=torch.float64), covariance).log_prob(problem.y.mT).sum()
    constant = -0.5 * (2 * math.pi * problem.variance).log().sum()
    torch.testing.assert_close(q.log_evidence() + constant, log_z, rtol=1e-10, atol=1e-10)


def test_the_exact_divergence_is_torchs(problem: Problem) -> None:
    prior = add_diagonal(problem.k_bb, torch.tensor(0.1, dtype=torch.float64))
    q = exact(prior, problem.y, 1 / problem.variance)
    mean, variance = q.marginals(prior, prior.diagonal())
    gain = torch.linalg.solve(prior + problem.variance.mT.diag_embed(), prior)  # [L, b, b]
    posterior = MultivariateNormal(mean.mT, prior - prior @ gain)
    expected = kl_divergence(posterior, MultivariateNormal(torch.zeros_like(mean.mT), prior)).sum()
    result = q.kl(problem.y, 1 / problem.variance, mean, variance)
    torch.testing.assert_close(result, expected, rtol=1e-9, atol=1e-9)


def test_a_point_of_weight_zero_is_as_none(problem: Problem) -> None:
    weight = 1 / problem.variance
    weight[5] = 0
    rest = torch.arange(POINTS) != 5
    all_points = exact(problem.k_bb, problem.y, weight)
    fewer = exact(problem.k_bb[rest][:, rest], problem.y[rest], weight[rest])
    mean, variance = all_points.marginals(problem.k_bb, problem.k_bb.diagonal())
    expected = fewer.marginals(problem.k_bb[:, rest], problem.k_bb.diagonal())
    torch.testing.assert_close((mean, variance), expected)
    divergence = fewer.kl(problem.y[rest], weight[rest], mean[rest], variance[rest])
    torch.testing.assert_close(all_points.kl(problem.y, weight, mean, variance), divergence)
    chol, _ = factorise(problem.k_mm)
    parts = (
        statistics(chol, problem.k_bm, problem.y, weight),
        statistics(chol, *(t[rest] for t in (problem.k_bm, problem.y, weight))),
    )
    torch.testing.assert_close(*parts)


def test_inducing_points_at_all_inputs_give_the_exact_posterior(problem: Problem) -> None:
    """With Z = X and all data q_S is exact: f_m carries everything, so KL[q(f_m)] = KL[q(z)] (1e-5 by the jitter)."""
    at_all = problem._replace(k_mm=problem.k_bb, k_bm=problem.k_bb)
    approximate, q = infer(at_all), exact(problem.k_bb, problem.y, 1 / problem.variance)
    expected = q.marginals(problem.k_bb, problem.k_bb.diagonal())
    torch.testing.assert_close(
        approximate.marginals(problem.k_bb, problem.k_bb.diagonal()), expected, rtol=1e-5, atol=1e-5
    )
    torch.testing.assert_close(approximate.kl(), q.kl(problem.y, 1 / problem.variance, *expected), rtol=1e-5, atol=1e-5)


def test_the_prior_is_what_no_data_leave() -> None:
    k_mm = 2 * torch.eye(INDUCING, dtype=torch.float64)
    chol, _ = factorise(k_mm)
    nothing = Statistics(torch.zeros(CHANNELS, INDUCING, INDUCING).double(), torch.zeros(CHANNELS, INDUCING).double())
    q = sparse(chol, nothing, 1.0, torch.float64)
    mean, variance = q.marginals(torch.rand(NEW, INDUCING), torch.full((NEW,), 2.0))
    assert q.kl() == 0 and (mean == 0).all()
    torch.testing.assert_close(variance, torch.full((NEW, CHANNELS), 2.0, dtype=torch.float64))


def test_float32_observations_give_float32_results_near_those_of_float64(problem: Problem) -> None:
    single = Problem(*(tensor.float() for tensor in problem))
    q, reference = infer(single, 300.0), infer(problem, 300.0)
    assert q.kl().dtype == torch.float32
    torch.testing.assert_close(q.kl().double(), reference.kl(), rtol=1e-3, atol=0)
    for narrow, wide in zip(
        q.marginals(single.k_bm, single.k_bb.diagonal()),
        reference.marginals(problem.k_bm, problem.k_bb.diagonal()),
        strict=True,
    ):
        assert narrow.dtype == torch.float32
        torch.testing.assert_close(narrow.double(), wide, rtol=1e-3, atol=1e-3)


def test_gradients_of_both_are_right(problem: Problem) -> None:
    small = Problem(
        problem.k_mm[:3, :3], problem.k_bm[:4, :3], problem.k_bb[:4, :4], problem.y[:4], problem.variance[:4]
    )

    def of_sparse(k_mm: Tensor, k_bm: Tensor, y: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        q = infer(small._replace(k_mm=(k_mm + k_mm.mT) / 2, k_bm=k_bm, y=y, variance=variance), 2.0)
        return *q.marginals(k_bm, small.k_bb.diagonal()), q.kl()

    def of_exact(k: Tensor, y: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        k = (k + k.mT) / 2
        q = exact(k, y, 1 / variance)
        mean, spread = q.marginals(k, k.diagonal())
        return mean, spread, q.kl(y, 1 / variance, mean, spread)

    leaves = [t.clone().requires_grad_() for t in (small.k_mm, small.k_bm, small.y, small.variance)]
    assert torch.autograd.gradcheck(of_sparse, leaves)
    leaves = [t.clone().requires_grad_() for t in (small.k_bb, small.y, small.variance)]
    assert torch.autograd.gradcheck(of_exact, leaves)
