"""The sparse posterior against formulas with explicit inverses, torch's own divergences, and the exact posterior."""

import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from src.gp import active_set
from src.gp.exact import exact_posterior
from src.gp.kernels import covariance
from src.gp.linalg import cholesky, solve_lower
from src.gp.sparse import (
    JITTER,
    Statistics,
    Whitened,
    add_jitter,
    make_sparse_gp,
    optimal_q,
    prior_covariance,
    prior_factor,
    q_from_factor,
    statistics,
)
from tests.gp.latent_problem import NEW, B, M, P, Problem, make_problem

NOISE = torch.tensor(0.05, dtype=torch.float64)


@pytest.fixture
def problem() -> Problem:
    return make_problem()


def factor(k_mm: Tensor) -> Tensor:
    chol, jitter = cholesky(add_jitter(k_mm))
    assert jitter == 0
    return chol


def project(p: Problem) -> Tensor:
    """L^-1 k_mb."""
    return solve_lower(factor(p.k_mm), p.k_mb.double())


def infer(p: Problem, scale: float = 1.0) -> Whitened:
    return optimal_q(statistics(project(p), p.y, 1 / p.variance), scale, p.y.dtype)


def marginals(p: Problem, q: Whitened) -> tuple[Tensor, Tensor]:
    """At the observed points."""
    return q.marginals(project(p), p.k_bb.diagonal())


def random_q(num_scales: int, upper: bool = False) -> Whitened:
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(M, P, dtype=torch.float64, generator=generator)
    raw = 0.3 * torch.randn(num_scales, M, M, dtype=torch.float64, generator=generator)
    lower = raw.tril(-1) + raw.diagonal(dim1=-2, dim2=-1).exp().diag_embed()
    return Whitened(mean, lower.mT if upper else lower)


def rbf_kernel() -> ScaleKernel:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.3, torch.tensor([[0.8, 1.4]], dtype=torch.float64)
    return kernel


def latent_points() -> tuple[Tensor, Tensor]:
    """Inducing inputs [M, Q] and others [NEW, Q]."""
    generator = torch.Generator().manual_seed(1)
    return torch.randn(M + NEW, 2, dtype=torch.float64, generator=generator).tensor_split([M])  # type: ignore[return-value]


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("num_scales", [1, P])
def test_the_divergence_is_torchs(num_scales: int, upper: bool) -> None:
    q = random_q(num_scales, upper)
    posterior = MultivariateNormal(q.mean.mT, q.scale @ q.scale.mT)
    prior = MultivariateNormal(torch.zeros(M, dtype=torch.float64), torch.eye(M, dtype=torch.float64))
    torch.testing.assert_close(q.kl(), kl_divergence(posterior, prior).sum(), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("num_scales", [1, P])
def test_the_divergence_is_that_of_the_inducing_values(problem: Problem, num_scales: int) -> None:
    q, k_mm = random_q(num_scales), add_jitter(problem.k_mm)
    mean, cov = q.values(factor(problem.k_mm))
    prior = MultivariateNormal(torch.zeros(M, dtype=torch.float64), k_mm)
    expected = kl_divergence(MultivariateNormal(mean.mT, cov), prior).sum()
    torch.testing.assert_close(q.kl(), expected, rtol=1e-9, atol=1e-9)


def test_one_covariance_per_output_is_as_many_posteriors_of_one_output(problem: Problem) -> None:
    """Values, marginals and the divergence, which adds up."""
    q, chol = random_q(P), factor(problem.k_mm)
    alone = [Whitened(q.mean[:, p : p + 1], q.scale[p : p + 1]) for p in range(P)]
    for together, parts in (
        (q.values(chol), [one.values(chol) for one in alone]),
        (marginals(problem, q), [marginals(problem, one) for one in alone]),
    ):
        means, spreads = zip(*parts, strict=True)
        torch.testing.assert_close(together[0], torch.cat(means, -1))
        torch.testing.assert_close(together[1], torch.cat(spreads, 0 if spreads[0].ndim == 3 else -1))
    torch.testing.assert_close(q.kl(), torch.stack([one.kl() for one in alone]).sum())


def test_a_shared_covariance_is_the_same_one_for_every_output(problem: Problem) -> None:
    shared, chol = random_q(1), factor(problem.k_mm)
    copies = Whitened(shared.mean, shared.scale.repeat(P, 1, 1))
    torch.testing.assert_close(shared.kl(), copies.kl())
    for one, many in (
        (shared.values(chol), copies.values(chol)),
        (marginals(problem, shared), marginals(problem, copies)),
    ):
        torch.testing.assert_close(one[0], many[0])
        torch.testing.assert_close(one[1].expand_as(many[1]), many[1])
    assert marginals(problem, shared)[1].shape == (B, 1) and marginals(problem, copies)[1].shape == (B, P)


def test_the_optimal_q_of_equal_weights_is_shared(problem: Problem) -> None:
    """One weight for all outputs: one factor of one precision gives what P equal ones give."""
    weight = problem.variance[:, :1].reciprocal().expand(B, P)
    data = statistics(project(problem), problem.y, weight)
    q, shared = (optimal_q(part, 2.0, torch.float64) for part in (data, Statistics(data.precision[:1], data.shift)))
    assert shared.scale.shape == (1, M, M) and q.scale.shape == (P, M, M)
    torch.testing.assert_close(shared.mean, q.mean)
    torch.testing.assert_close(shared.scale.expand_as(q.scale), q.scale)


@pytest.mark.parametrize("num_scales", [1, P])
def test_q_from_a_factor_by_explicit_inverses(num_scales: int) -> None:
    chol, shift = random_q(num_scales).scale, random_q(1).mean
    q, inverse = q_from_factor(chol, shift), torch.linalg.inv(chol @ chol.mT)
    torch.testing.assert_close(q.scale @ q.scale.mT, inverse)
    torch.testing.assert_close(q.mean, torch.einsum("pmn,np->mp", inverse.expand(P, M, M), shift))
    assert (q.scale.tril(-1) == 0).all() and (q.scale.diagonal(dim1=-2, dim2=-1) > 0).all()


@pytest.mark.parametrize("scale", [1.0, 7.5])
def test_equation_9_and_the_marginals_as_they_are_printed(problem: Problem, scale: float) -> None:
    k_mm, k_bm, k_bb = add_jitter(problem.k_mm).numpy(), problem.k_mb.mT.numpy(), problem.k_bb.numpy()
    q = infer(problem, scale)
    means, covariances = q.values(factor(problem.k_mm))
    mean, variance = marginals(problem, q)
    for p in range(P):
        y, weight = problem.y[:, p].numpy(), np.diag(1 / problem.variance[:, p].numpy())
        sigma = k_mm + scale * k_bm.T @ weight @ k_bm
        mu = scale * k_mm @ np.linalg.inv(sigma) @ k_bm.T @ weight @ y
        a = k_mm @ np.linalg.inv(sigma) @ k_mm
        np.testing.assert_allclose(means[:, p], mu, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(covariances[p], a, rtol=1e-9, atol=1e-10)
        project = k_bm @ np.linalg.inv(k_mm)
        q_variance = np.diag(k_bb - project @ k_bm.T + project @ a @ project.T)
        np.testing.assert_allclose(mean[:, p], project @ mu, rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(variance[:, p], q_variance, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("scale", [1.0, 7.5])
def test_the_data_terms_of_the_papers_bound_cancel(problem: Problem, scale: float) -> None:
    """Eq. 10's L_H - E_q[log q~] = -(B / N) sum_p KL_p: the rest of L_H (Eq. 7) is the cross-entropy (1e-10)."""
    q = infer(problem, scale)
    mu, a = q.values(factor(problem.k_mm))
    k_mm, s2 = add_jitter(problem.k_mm), problem.variance
    project = torch.linalg.solve(k_mm, problem.k_mb).mT  # [B, M], k_i K_mm^-1
    unexplained = problem.k_bb.diagonal() - (project * problem.k_mb.mT).sum(1)
    traces = torch.einsum("im,pmn,in->ip", project, a, project)  # tr(A_p Lambda_i)
    fit = Normal(project @ mu, s2.sqrt()).log_prob(problem.y) - (unexplained[:, None] + traces) / (2 * s2)
    prior = MultivariateNormal(torch.zeros(M, dtype=torch.float64), k_mm)
    divergence = kl_divergence(MultivariateNormal(mu.mT, a), prior).sum() / scale
    mean, variance = marginals(problem, q)
    cross_entropy = Normal(mean, s2.sqrt()).log_prob(problem.y) - variance / (2 * s2)  # E_q[log N(z | y, s2)]
    bound = fit.sum() - divergence - cross_entropy.sum()
    torch.testing.assert_close(bound, -q.kl() / scale, rtol=1e-10, atol=1e-10)


def test_statistics_of_chunks_add_up_to_those_of_all(problem: Problem) -> None:
    """The mean over disjoint batches of the scaled statistics is that of the full batch."""
    projection = project(problem)
    whole = statistics(projection, problem.y, 1 / problem.variance)
    rows = torch.arange(B).split(4)
    parts = [statistics(projection[:, r], problem.y[r], 1 / problem.variance[r]) for r in rows]
    torch.testing.assert_close(torch.stack([p.precision for p in parts]).sum(0), whole.precision)
    torch.testing.assert_close(torch.stack([len(rows) * p.shift for p in parts]).mean(0), whole.shift)


def test_gradients_of_the_statistics_entry_by_entry(problem: Problem) -> None:
    leaves = [project(problem)[:3, :4], problem.y[:4], 1 / problem.variance[:4]]
    assert torch.autograd.gradcheck(statistics, [leaf.clone().requires_grad_() for leaf in leaves])


def test_a_point_of_weight_zero_is_as_none(problem: Problem) -> None:
    weight, projection = 1 / problem.variance, project(problem)
    weight[5] = 0
    rest = torch.arange(B) != 5
    fewer = statistics(projection[:, rest], problem.y[rest], weight[rest])
    torch.testing.assert_close(statistics(projection, problem.y, weight), fewer)


def test_sets_are_independent(problem: Problem) -> None:
    """Videos side by side are as videos one by one."""
    chol = factor(problem.k_mm)

    def of(y: Tensor, k_bm: Tensor, k_bb: Tensor, weight: Tensor) -> tuple[Tensor, ...]:
        projection = solve_lower(chol, k_bm.mT)
        q = optimal_q(statistics(projection, y, weight), 1.0, y.dtype)
        return *q.marginals(projection, k_bb), *q.values(chol), q.kl()

    inputs = (problem.y, problem.k_mb.mT, problem.k_bb.diagonal(), 1 / problem.variance)
    together = of(*(torch.stack([part[:6], part[6:]]) for part in inputs))
    for video, rows in enumerate((slice(0, 6), slice(6, 12))):
        for joint, alone in zip(together, of(*(part[rows] for part in inputs)), strict=True):
            torch.testing.assert_close(joint[video], alone)


@pytest.mark.parametrize("noise", [1.0, 1e-4])
def test_inducing_points_at_all_inputs_give_the_exact_posterior(problem: Problem, noise: float) -> None:
    """With Z = X and all data q is exact: u carries everything, so KL[q(u)] = KL[q(z)] (to 1e-5 by the jitter).

    Also with hardly any noise, where the marginals are the observations themselves.
    """
    points = torch.linspace(0, 20, B, dtype=torch.float64)
    k = 2 * (-0.5 * (points[:, None] - points).square()).exp()
    at_all = Problem(k, k, k, problem.y, noise * problem.variance)
    approximate, q = infer(at_all), exact_posterior(k, at_all.y, 1 / at_all.variance)
    expected = q.marginals(k, k.diagonal())
    torch.testing.assert_close(marginals(at_all, approximate), expected, rtol=1e-5, atol=1e-5)
    kl = q.kl(at_all.y, 1 / at_all.variance, *expected)
    torch.testing.assert_close(approximate.kl(), kl, rtol=1e-5, atol=1e-5)
    if noise < 1e-3:
        torch.testing.assert_close(expected[0], at_all.y, rtol=1e-3, atol=1e-3)


def test_the_prior_is_what_no_data_leave() -> None:
    nothing = Statistics(torch.zeros(P, M, M).double(), torch.zeros(M, P).double())
    q = optimal_q(nothing, 1.0, torch.float64)
    projection = torch.rand(M, NEW, dtype=torch.float64)
    mean, variance = q.marginals(projection, torch.full((NEW,), 2.0))
    assert q.kl() == 0 and (mean == 0).all()
    torch.testing.assert_close(variance, torch.full((NEW, P), 2.0, dtype=torch.float64))


def test_float32_observations_give_float32_results_near_those_of_float64(problem: Problem) -> None:
    single = Problem(*(tensor.float() for tensor in problem))
    q, reference = infer(single, 300.0), infer(problem, 300.0)
    assert q.kl().dtype == torch.float32
    torch.testing.assert_close(q.kl().double(), reference.kl(), rtol=1e-3, atol=0)
    for narrow, wide in zip(marginals(single, q), marginals(problem, reference), strict=True):
        assert narrow.dtype == torch.float32
        torch.testing.assert_close(narrow.double(), wide, rtol=1e-3, atol=1e-3)
    in_single = q.marginals(project(single), single.k_bb.diagonal(), mean_dtype=torch.float32)
    torch.testing.assert_close(in_single, marginals(single, q), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("num_scales", [1, P])
def test_gradients_of_any_q(problem: Problem, num_scales: int) -> None:
    q, small = random_q(num_scales), problem.k_mb[:, :3]

    def of(mean: Tensor, scale: Tensor, k_mm: Tensor, k_mx: Tensor) -> tuple[Tensor, ...]:
        q, chol = Whitened(mean, scale), factor((k_mm + k_mm.mT) / 2)
        return *q.marginals(solve_lower(chol, k_mx), problem.k_bb.diagonal()[:3]), *q.values(chol), q.kl()

    leaves = [tensor.clone().requires_grad_() for tensor in (*q, problem.k_mm, small)]
    assert torch.autograd.gradcheck(of, leaves)


def test_gradients_of_the_optimal_q(problem: Problem) -> None:
    small = Problem(
        problem.k_mm[:3, :3], problem.k_mb[:3, :4], problem.k_bb[:4, :4], problem.y[:4], problem.variance[:4]
    )

    def of(k_mm: Tensor, k_mb: Tensor, y: Tensor, variance: Tensor) -> tuple[Tensor, ...]:
        varied = small._replace(k_mm=(k_mm + k_mm.mT) / 2, k_mb=k_mb, y=y, variance=variance)
        q = infer(varied, 2.0)
        return *marginals(varied, q), q.kl()

    leaves = [t.clone().requires_grad_() for t in (small.k_mm, small.k_mb, small.y, small.variance)]
    assert torch.autograd.gradcheck(of, leaves)


def test_the_prior_covariance_has_the_one_jitter() -> None:
    z, kernel = latent_points()[0], rbf_kernel()
    k_mm = kernel(z, z).to_dense()
    expected = k_mm + JITTER * 1.3 * torch.eye(M, dtype=torch.float64)
    torch.testing.assert_close(prior_covariance(kernel, z), expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(add_jitter(k_mm), expected, rtol=1e-12, atol=1e-12)
    chol, jitter = prior_factor(kernel, z.float())
    assert chol.dtype == torch.float64 and jitter == 0
    torch.testing.assert_close(chol @ chol.mT, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("num_scales", [1, P])
def test_predictions_by_explicit_inverses(num_scales: int) -> None:
    """Any q(v): mean k_zM K_MM^-1 L m, variance k_zz + noise - k_zM K_MM^-1 (K_MM - L C C^T L^T) K_MM^-1 k_Mz."""
    (inducing, z), kernel, q = latent_points(), rbf_kernel(), random_q(num_scales)
    mean, variance = make_sparse_gp(inducing, kernel, NOISE, q).predict(z)
    k_mm = prior_covariance(kernel, inducing)
    chol, weights = torch.linalg.cholesky(k_mm), covariance(kernel, z, inducing) @ torch.linalg.inv(k_mm)
    missing = k_mm - chol @ q.scale @ q.scale.mT @ chol.mT  # [1 or P, M, M]
    expected = 1.3 + NOISE - (weights @ missing @ weights.mT).diagonal(dim1=-2, dim2=-1)
    torch.testing.assert_close(mean, weights @ chol @ q.mean)
    torch.testing.assert_close(variance, expected[0] if num_scales == 1 else expected.mT)


def test_predictions_at_all_inputs_with_tiny_noise_are_the_exact_ones() -> None:
    """The optimal q(v) of observations at Z, against the GP conditioned on them."""
    (inducing, z), kernel, x = latent_points(), rbf_kernel(), random_q(1).mean
    noise = torch.tensor(1e-3, dtype=torch.float64)
    chol, _ = prior_factor(kernel, inducing)
    projection = solve_lower(chol, covariance(kernel, inducing, inducing))
    data = statistics(projection, x, torch.full_like(x, 1 / noise.item()))
    q = optimal_q(Statistics(data.precision[:1], data.shift), 1.0, torch.float64)
    expected = active_set.condition(x, inducing, kernel, noise).predict(z)
    torch.testing.assert_close(make_sparse_gp(inducing, kernel, noise, q).predict(z), expected, rtol=1e-3, atol=1e-4)
