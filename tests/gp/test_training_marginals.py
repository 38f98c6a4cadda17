"""The marginals of training steps against those of predictions: the same values, and the same gradients."""

from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from src.gp.linalg import solve_lower
from src.gp.sparse import Whitened, optimal_q, statistics
from src.gp.training_marginals import OptimalMoments, batch_marginals, optimal_marginals
from tests.gp.latent_problem import B, M, P, Problem, make_problem
from tests.gp.test_sparse import project, random_q


@pytest.fixture
def problem() -> Problem:
    return make_problem()


def of_training(p: Problem, projection: Tensor, y: Tensor, variance: Tensor, scale: float) -> tuple[Tensor, ...]:
    """Means, variances and the KL divergence as a training step has them."""
    data = statistics(projection, y, 1 / variance)
    return optimal_marginals(data, scale, projection, p.k_bb.diagonal(), torch.float64)


@pytest.mark.parametrize("scale", [1.0, 7.5])
def test_marginals_of_the_optimal_q_for_training_are_the_same(problem: Problem, scale: float) -> None:
    """Values and gradients, of two sets side by side."""
    projection = torch.stack([project(problem), 0.5 * project(problem)])
    leaves = [projection, problem.y.expand(2, B, P).clone(), problem.variance.expand(2, B, P).clone()]
    projection, y, variance = (leaf.requires_grad_() for leaf in leaves)
    q = optimal_q(statistics(projection, y, 1 / variance), scale, torch.float64)
    plain = (*q.marginals(projection, problem.k_bb.diagonal()), q.kl())
    fast = of_training(problem, projection, y, variance, scale)
    torch.testing.assert_close(fast, plain, rtol=1e-9, atol=1e-10)
    weights = [torch.randn_like(part) for part in plain]
    slopes = [torch.autograd.grad(parts, leaves, weights) for parts in (fast, plain)]
    torch.testing.assert_close(*slopes, rtol=1e-8, atol=1e-9)


def test_gradients_of_the_optimal_moments_entry_by_entry(problem: Problem) -> None:
    """Also of a precision whose two triangles change apart, if its Cholesky factor is of their mean."""
    data = statistics(project(problem)[:3, :4], problem.y[:4], 1 / problem.variance[:4])

    def of(precision: Tensor, shift: Tensor) -> tuple[Tensor, ...]:
        moments: tuple[Tensor, ...] = OptimalMoments.apply((precision + precision.mT) / 2, shift, 2.0)
        return moments

    assert torch.autograd.gradcheck(of, [part.clone().requires_grad_() for part in data])


@pytest.mark.parametrize("sets", [1, 2])
def test_marginals_for_training_are_the_same(problem: Problem, sets: int) -> None:
    """Values and gradients, of sets with P outputs each."""
    generator = torch.Generator().manual_seed(3)
    factors = torch.randn(sets, M, M, dtype=torch.float64, generator=generator)
    q = random_q(P)
    leaves = [
        factors @ factors.mT + torch.eye(M, dtype=torch.float64),
        problem.k_mb.expand(sets, M, B).clone(),
        q.mean.repeat(sets, 1, 1),
        q.scale.repeat(sets, 1, 1, 1),
    ]
    k_mm, k_mx, mean, scale = (leaf.requires_grad_() for leaf in leaves)
    k_xx, together = problem.k_bb.diagonal(), Whitened(mean, scale)
    projection = solve_lower(torch.linalg.cholesky(k_mm), k_mx)
    plain = together.marginals(projection, k_xx)
    *fast, jitter = batch_marginals(together, k_mm, k_mx, k_xx.expand(sets, B))
    assert jitter == 0
    weights = torch.randn(plain[0].shape, dtype=torch.float64, generator=generator)

    def slopes(answer: Sequence[Tensor]) -> tuple[Tensor, ...]:
        total = (weights * (answer[0] + answer[1].sin())).sum()
        by_k_mm, *others = torch.autograd.grad(total, [k_mm, k_mx, mean, scale], retain_graph=True)
        return (by_k_mm + by_k_mm.mT) / 2, *others

    torch.testing.assert_close(tuple(fast), plain, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(slopes(fast), slopes(plain), rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("smallest", [1e-6, 0.5])
def test_marginals_for_training_in_float32_are_near_float64(smallest: float) -> None:
    """With an eigenvalue of K_MM that float32 cannot resolve, the products run in float64; values and gradients."""
    generator = torch.Generator().manual_seed(4)
    basis = torch.linalg.qr(torch.randn(M, M, dtype=torch.float64, generator=generator)).Q
    k_mm = (basis * torch.linspace(smallest, 2, M, dtype=torch.float64)) @ basis.mT
    k_mx = (k_mm @ torch.randn(M, B, dtype=torch.float64, generator=generator)).float()
    q, answers = random_q(P), []
    for dtype in (torch.float32, torch.float64):
        leaves = [k_mm.clone().requires_grad_(), k_mx.to(dtype, copy=True).requires_grad_()]
        mean, variance, _ = batch_marginals(q, leaves[0], leaves[1], torch.full((B,), 3.0))
        slopes = torch.autograd.grad((mean + variance).sum(), leaves)
        answers.append([part.detach().double() for part in (mean, variance, *slopes)])
    for single, double in zip(*answers, strict=True):
        torch.testing.assert_close(single, double, rtol=1e-4, atol=1e-4 * double.abs().max().item())


def test_marginals_for_training_take_a_jitter_where_a_covariance_needs_one() -> None:
    singular = torch.ones(2, M, M, dtype=torch.float64)
    q = Whitened(torch.zeros(2, M, 1).double(), torch.eye(M).double().expand(2, 1, M, M))
    mean, variance, jitter = batch_marginals(q, singular, torch.ones(2, M, B), torch.ones(2, B))
    assert jitter > 0 and (mean == 0).all()
    torch.testing.assert_close(variance, torch.ones(2, B, 1).double(), rtol=1e-3, atol=0)
