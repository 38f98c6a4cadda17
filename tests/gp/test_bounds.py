"""The bounds of sparse GPs, each tied to something exact or to another derivation."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal, kl_divergence
from torch.utils._python_dispatch import TorchDispatchMode

from src.gp import active_set, psi
from src.gp.active_set import log_marginal
from src.gp.bounds import Bound, collapsed_bound, incomplete_bound, optimal_q_of_bound, project, uncollapsed_bound
from src.gp.kernels import covariance
from src.gp.psi import Psi, closed_form, lazy_closed_form, sampled
from src.gp.sparse import Whitened, make_sparse_gp, prior_covariance

N, D, Q, M = 12, 4, 2, 5
NOISE = torch.tensor(0.05, dtype=torch.float64)


def table(rows: int, columns: int, frequency: float) -> Tensor:
    """Numbers in [-1, 1] that any language can write down: sin(frequency (i + 1) (j + 1.5))."""
    return torch.sin(frequency * torch.outer(torch.arange(1, rows + 1).double(), torch.arange(columns) + 1.5))


def rbf() -> ScaleKernel:
    kernel = ScaleKernel(RBFKernel(ard_num_dims=Q)).double()
    kernel.outputscale = torch.tensor(1.3, dtype=torch.float64)
    kernel.base_kernel.lengthscale = torch.tensor([0.8, 1.4], dtype=torch.float64)
    return kernel


@dataclass
class Problem:
    """Data, q(z), inducing inputs and a kernel."""

    x: Tensor  # [N, D]
    mean: Tensor  # [N, Q]
    variance: Tensor  # [N, Q]
    inducing: Tensor  # [M, Q]
    kernel: Kernel

    def k_mm(self) -> Tensor:
        """Without jitter."""
        return covariance(self.kernel, self.inducing, self.inducing)

    def psi(self, rows: slice = slice(None)) -> Psi:
        scale = self.variance[rows].sqrt()
        q = Independent(Normal(self.mean[rows], scale, validate_args=False), 1, validate_args=False)
        return closed_form(self.kernel, q, self.inducing)


@pytest.fixture
def problem() -> Problem:
    return Problem(
        table(N, D, 0.7), 1.5 * table(N, Q, 1.1), 0.3 + 0.25 * table(N, Q, 2.3), 1.5 * table(M, Q, 1.7), rbf()
    )


def random_problem(seed: int, num_inducing: int, variance: float = 0.0) -> Problem:
    generator = torch.Generator().manual_seed(seed)
    x, mean, inducing = (
        torch.randn(*shape, dtype=torch.float64, generator=generator) for shape in ((N, D), (N, Q), (num_inducing, Q))
    )
    return Problem(x, mean, torch.full_like(mean, variance), inducing, rbf())


def random_q(seed: int, num_inducing: int = M) -> Whitened:
    generator = torch.Generator().manual_seed(seed)
    mean = torch.randn(num_inducing, D, dtype=torch.float64, generator=generator)
    scale = 0.3 * torch.randn(num_inducing, num_inducing, dtype=torch.float64, generator=generator)
    return Whitened(mean, (scale.tril(-1) + scale.diagonal().exp().diag_embed()).unsqueeze(0))


def value(x: Tensor, psi: Psi, k_mm: Tensor, q: Whitened, num_data: int = N) -> Tensor:
    bound = uncollapsed_bound(x, psi, k_mm, NOISE, q, num_data)
    return bound.likelihood - bound.kl


def titsias_lawrence(x: np.ndarray, psi: Psi, k_mm: np.ndarray, noise: float) -> float:
    """The bound as the paper prints it, with explicit inverses and the N x N matrix W, output by output."""
    (psi0, psi1, psi2), beta = (statistic.detach().numpy() for statistic in psi), 1 / noise
    inner = beta * psi2 + k_mm
    w = beta * np.eye(len(x)) - beta**2 * psi1 @ np.linalg.inv(inner) @ psi1.T
    log_det = len(x) * np.log(beta / (2 * np.pi)) + np.linalg.slogdet(k_mm)[1] - np.linalg.slogdet(inner)[1]
    trace = beta * (psi0 - np.trace(np.linalg.inv(k_mm) @ psi2))
    return float(sum(0.5 * (log_det - column @ w @ column - trace) for column in x.T))


def test_the_collapsed_bound_is_the_papers(problem: Problem) -> None:
    bound, jitter = collapsed_bound(problem.x, problem.psi(), problem.k_mm(), NOISE)
    k_mm = problem.k_mm().detach().numpy()
    assert bound.item() == pytest.approx(titsias_lawrence(problem.x.numpy(), problem.psi(), k_mm, 0.05), rel=1e-12)
    assert jitter == 0


def test_without_variance_it_is_titsias_bound_for_regression(problem: Problem) -> None:
    """log N(x | 0, Q_NN + noise I) - tr(K_NN - Q_NN) / (2 noise), with explicit N x N matrices."""
    problem.variance = torch.zeros_like(problem.variance)
    k_nn, k_nm, k_mm = (
        covariance(problem.kernel, a, b).detach().numpy()
        for a, b in ((problem.mean, problem.mean), (problem.mean, problem.inducing), (problem.inducing,) * 2)
    )
    q_nn = k_nm @ np.linalg.inv(k_mm) @ k_nm.T
    fit = multivariate_normal(np.zeros(N), q_nn + 0.05 * np.eye(N)).logpdf(problem.x.T.numpy()).sum()
    expected = fit - D * np.trace(k_nn - q_nn) / (2 * 0.05)
    bound = collapsed_bound(problem.x, problem.psi(), problem.k_mm(), NOISE)[0]
    assert bound.item() == pytest.approx(expected, rel=1e-11)


def test_with_all_inputs_inducing_it_is_the_marginal_likelihood(problem: Problem) -> None:
    problem.variance, problem.inducing = torch.zeros_like(problem.variance), problem.mean
    exact = log_marginal(problem.x, problem.mean, problem.kernel, NOISE)
    bound = collapsed_bound(problem.x, problem.psi(), problem.k_mm(), NOISE)[0]
    torch.testing.assert_close(bound, exact, rtol=1e-9, atol=0)
    with_jitter = collapsed_bound(problem.x, problem.psi(), prior_covariance(problem.kernel, problem.mean), NOISE)[0]
    torch.testing.assert_close(with_jitter, exact, rtol=1e-5, atol=0)


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), num_inducing=st.integers(1, N - 1), jitter=st.booleans())
def test_it_is_below_the_marginal_likelihood(seed: int, num_inducing: int, jitter: bool) -> None:
    problem = random_problem(seed, num_inducing)
    k_mm = prior_covariance(problem.kernel, problem.inducing) if jitter else problem.k_mm()
    exact = log_marginal(problem.x, problem.mean, problem.kernel, NOISE)
    assert collapsed_bound(problem.x, problem.psi(), k_mm, NOISE)[0] < exact


def test_at_the_optimal_q_both_bounds_are_equal(problem: Problem) -> None:
    given = (problem.x, problem.psi(), problem.k_mm())
    q = optimal_q_of_bound(*given, NOISE)
    torch.testing.assert_close(value(*given, q), collapsed_bound(*given, NOISE)[0], rtol=1e-10, atol=0)
    assert (q.scale.triu(1) == 0).all() and (q.scale.diagonal(dim1=-2, dim2=-1) > 0).all()


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), variance=st.floats(0, 2), step=st.sampled_from([1e-3, 0.1, 1.0]))
def test_no_other_q_is_above_the_collapsed_bound(seed: int, variance: float, step: float) -> None:
    """Random q(v), far from the optimum and close to it."""
    problem = random_problem(seed, M, variance)
    given = (problem.x, problem.psi(), prior_covariance(problem.kernel, problem.inducing))
    best, other = optimal_q_of_bound(*given, NOISE), random_q(seed)
    q = Whitened(*((1 - step) * a + step * b for a, b in zip(best, other, strict=True)))
    assert value(*given, q) < collapsed_bound(*given, NOISE)[0]


def test_the_optimal_q_of_u_by_explicit_inverses(problem: Problem) -> None:
    """Bui & Turner, Eq. 7."""
    psi, k_mm = problem.psi(), prior_covariance(problem.kernel, problem.inducing)
    q = optimal_q_of_bound(problem.x, psi, k_mm, NOISE)
    mean, cov = q.values(torch.linalg.cholesky(k_mm))
    inverse = torch.linalg.inv(k_mm)
    expected = torch.linalg.inv(inverse + inverse @ psi.psi2 @ inverse / NOISE)
    torch.testing.assert_close(cov.squeeze(0), expected)
    torch.testing.assert_close(mean, expected @ inverse @ psi.psi1.mT @ problem.x / NOISE)


def test_the_uncollapsed_bound_by_explicit_expectations(problem: Problem) -> None:
    """sum_nd E[log N(x_nd | f_nd, noise)] - sum_d KL[q(u_d) || p(u_d)] without variance: scalar Gaussians, by torch."""
    problem.variance, q = torch.zeros_like(problem.variance), random_q(0)
    k_mm = problem.k_mm().detach()
    bound = uncollapsed_bound(problem.x, problem.psi(), k_mm, NOISE, q, N)
    chol = torch.linalg.cholesky(k_mm)
    u_mean, u_scale = chol @ q.mean, chol @ q.scale.squeeze(0)
    weights = torch.linalg.solve(k_mm, covariance(problem.kernel, problem.inducing, problem.mean))  # [M, N]
    unexplained = problem.kernel(problem.mean, diag=True) - (weights * (k_mm @ weights)).sum(0)
    variance = unexplained + (weights * (u_scale @ u_scale.mT @ weights)).sum(0)
    log_density = Normal(weights.mT @ u_mean, NOISE.sqrt()).log_prob(problem.x) - variance[:, None] / (2 * NOISE)
    prior = MultivariateNormal(torch.zeros(M, dtype=torch.float64), k_mm)
    kl = kl_divergence(MultivariateNormal(u_mean.mT, scale_tril=u_scale), prior).sum()
    torch.testing.assert_close((bound.likelihood, bound.kl), (log_density.sum(), kl))


def test_a_covariance_per_output_is_as_many_bounds_of_one_output(problem: Problem) -> None:
    q, statistics, k_mm = random_q(0), problem.psi(), problem.k_mm()
    scale = torch.cat([random_q(seed).scale for seed in range(D)])
    together = value(problem.x, statistics, k_mm, Whitened(q.mean, scale))
    alone = [value(problem.x[:, [d]], statistics, k_mm, Whitened(q.mean[:, [d]], scale[d : d + 1])) for d in range(D)]
    torch.testing.assert_close(together, torch.stack(alone).sum())
    copies = Whitened(q.mean, q.scale.repeat(D, 1, 1))
    torch.testing.assert_close(value(problem.x, statistics, k_mm, copies), value(problem.x, statistics, k_mm, q))


def test_batches_weigh_the_points_so_that_their_mean_is_the_full_objective(problem: Problem) -> None:
    q = random_q(0)
    full = value(problem.x, problem.psi(), problem.k_mm(), q)
    batches = [slice(0, 4), slice(4, 8), slice(8, 12)]
    values = [value(problem.x[rows], problem.psi(rows), problem.k_mm(), q) for rows in batches]
    torch.testing.assert_close(torch.stack(values).mean(), full)


def test_samples_keep_the_uncollapsed_bound_unbiased(problem: Problem) -> None:
    """Within five standard errors of 1000 samples; the collapsed bound of samples has its mean further up."""
    k_mm, q = problem.k_mm().detach(), random_q(0)
    torch.manual_seed(0)
    z = problem.mean + problem.variance.sqrt() * torch.randn(1000, N, Q, dtype=torch.float64)
    with torch.no_grad():
        draws = [sampled(problem.kernel, sample[None], problem.inducing) for sample in z]
        uncollapsed = torch.stack([value(problem.x, draw, k_mm, q) for draw in draws])
        error = 5 * uncollapsed.std() / len(z) ** 0.5
        assert (uncollapsed.mean() - value(problem.x, problem.psi(), k_mm, q)).abs() < error
        collapsed = torch.stack([collapsed_bound(problem.x, draw, k_mm, NOISE)[0] for draw in draws[:200]])
        exact = torch.stack([log_marginal(problem.x, sample, problem.kernel, NOISE) for sample in z[:200]])
        assert collapsed_bound(problem.x, problem.psi(), k_mm, NOISE)[0] < collapsed.mean() < exact.mean()
        assert (collapsed < exact).all()


def test_the_bound_of_incomplete_data_is_a_sum_over_what_was_observed(problem: Problem) -> None:
    """With everything observed it is the bound of the same samples; else each value adds its own expectation."""
    z = problem.mean + problem.variance.sqrt() * torch.randn(3, N, Q, dtype=torch.float64)
    q, k_mm = random_q(4), prior_covariance(problem.kernel, problem.inducing)
    everything = torch.ones(N, D, dtype=torch.bool)

    def incomplete(mask: Tensor) -> Bound:
        x = problem.x.masked_fill(~mask, torch.nan)
        return incomplete_bound(x, mask, z, problem.inducing, problem.kernel, NOISE, q, 2 * N)

    complete = uncollapsed_bound(problem.x, sampled(problem.kernel, z, problem.inducing), k_mm, NOISE, q, 2 * N)
    torch.testing.assert_close(incomplete(everything), complete)
    gp = make_sparse_gp(problem.inducing, problem.kernel, NOISE, q)
    mask = torch.rand(N, D, generator=torch.Generator().manual_seed(0)) > 0.4
    expected = torch.zeros((), dtype=torch.float64)
    for points in z:
        mean, variance = gp.predict(points)
        log_density = torch.distributions.Normal(mean, NOISE.sqrt()).log_prob(problem.x)
        expected += (log_density - (variance - NOISE).unsqueeze(1) / (2 * NOISE))[mask].sum() / len(z)
    torch.testing.assert_close(incomplete(mask).likelihood, 2 * expected)


def test_predictions_of_all_inputs_inducing_are_the_exact_ones(problem: Problem) -> None:
    problem.variance, problem.inducing = torch.zeros_like(problem.variance), problem.mean
    q = optimal_q_of_bound(problem.x, problem.psi(), prior_covariance(problem.kernel, problem.mean), NOISE)
    z = table(3, Q, 0.9)
    exact = active_set.condition(problem.x, problem.mean, problem.kernel, NOISE).predict(z)
    torch.testing.assert_close(
        make_sparse_gp(problem.mean, problem.kernel, NOISE, q).predict(z), exact, rtol=1e-4, atol=1e-5
    )


# GPy 1.15.0: BayesianGPLVM(x, Q, X=mean, X_variance=variance, Z=inducing, kernel=RBF(Q, 1.3, [0.8, 1.4], ARD=True)) and
# SparseGPRegression of the same, noise variance 0.05, which both add 1e-8 to the diagonal of K_MM.
GPY_BOUND = -343.37065409451526  # its log likelihood -366.86108391 plus its KL divergence of q(z)
GPY_KL = 23.49042981622584
GPY_PSI_SUMS = (15.600000000000003, 20.763828532202105, 38.11816558623298)
GPY_REGRESSION = -260.9199077653525
GPY_GRADIENTS = {  # of the outputscale, the length scales, the noise and the first inducing input
    "outputscale": [-148.35061291],
    "lengthscale": [271.98889306, 123.74803401],
    "noise": [6393.69979508],
    "inducing": [-32.20535834, 11.12224645],
}
GPY_MEAN = [0.17037434056338221, 0.7636479699929157, -0.12971143288986595, 0.030991190853342312]
GPY_VARIANCE = [0.2989246266608902, 0.3607963304411534, 0.5810268310527869]


def test_gpy_has_the_same_numbers(problem: Problem) -> None:
    psi, k_mm = problem.psi(), problem.k_mm() + 1e-8 * torch.eye(M)
    assert [statistic.sum().item() for statistic in psi] == pytest.approx(GPY_PSI_SUMS, rel=1e-13)
    assert collapsed_bound(problem.x, psi, k_mm, NOISE)[0].item() == pytest.approx(GPY_BOUND, rel=1e-12)
    q = Independent(Normal(problem.mean, problem.variance.sqrt()), 1)
    prior = Independent(Normal(torch.zeros_like(problem.mean), 1.0), 1)
    assert kl_divergence(q, prior).sum().item() == pytest.approx(GPY_KL, rel=1e-12)
    mean, variance = make_sparse_gp(
        problem.inducing, problem.kernel, NOISE, optimal_q_of_bound(problem.x, psi, k_mm, NOISE)
    ).predict(table(3, Q, 0.9))
    assert mean[0].tolist() == pytest.approx(GPY_MEAN, rel=1e-6)
    assert variance.tolist() == pytest.approx(GPY_VARIANCE, rel=1e-6)
    problem.variance = torch.zeros_like(problem.variance)
    regression = collapsed_bound(problem.x, problem.psi(), k_mm, NOISE)[0]
    assert regression.item() == pytest.approx(GPY_REGRESSION, rel=1e-12)


def test_gpy_has_the_same_gradients(problem: Problem) -> None:
    """Of the hyperparameters themselves: GPyTorch's are those of the raw ones, by the chain rule of softplus."""
    noise, problem.inducing = NOISE.clone().requires_grad_(), problem.inducing.requires_grad_()
    collapsed_bound(problem.x, problem.psi(), problem.k_mm() + 1e-8 * torch.eye(M), noise)[0].backward()
    raw = {"outputscale": problem.kernel.raw_outputscale, "lengthscale": problem.kernel.base_kernel.raw_lengthscale}
    found = {name: (tensor.grad / tensor.sigmoid()).flatten().tolist() for name, tensor in raw.items()}
    assert noise.grad is not None and problem.inducing.grad is not None
    found |= {"noise": [noise.grad.item()], "inducing": problem.inducing.grad[0].tolist()}
    for name, expected in GPY_GRADIENTS.items():
        assert found[name] == pytest.approx(expected, rel=1e-9)


class Bounds(torch.nn.Module):
    """Both bounds as one function of everything that is learnt."""

    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, x: Tensor, q: Any, inducing: Tensor, noise: Tensor, q_v: Whitened) -> Tensor:
        psi, k_mm = closed_form(self.kernel, q, inducing), prior_covariance(self.kernel, inducing)
        uncollapsed = uncollapsed_bound(x, psi, k_mm, noise, q_v, 20)
        return torch.stack([collapsed_bound(x, psi, k_mm, noise)[0], uncollapsed.likelihood, uncollapsed.kl])


@pytest.mark.parametrize("full", [False, True])
def test_gradients(problem: Problem, full: bool) -> None:
    kernel, q_v = problem.kernel, random_q(0, 3)
    names = [f"kernel.{name}" for name, _ in kernel.named_parameters()]

    def bounds(mean: Tensor, scale: Tensor, z: Tensor, noise: Tensor, v: Tensor, c: Tensor, *raw: Tensor) -> Any:
        diagonal = Independent(Normal(mean, scale[:, 0], validate_args=False), 1, validate_args=False)
        q = MultivariateNormal(mean, scale_tril=scale.tril(), validate_args=False) if full else diagonal
        values, arguments = dict(zip(names, raw, strict=True)), (problem.x[:4], q, z, noise, Whitened(v, c.tril()))
        return torch.func.functional_call(Bounds(kernel), values, arguments)

    scale = 0.3 * torch.eye(Q, dtype=torch.float64) + 0.2
    inputs = (problem.mean[:4], scale.expand(4, Q, Q), problem.inducing[:3], NOISE, *q_v, *kernel.parameters())
    assert torch.autograd.gradcheck(bounds, [tensor.detach().clone().requires_grad_() for tensor in inputs])


def test_cholesky_factors_are_few(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    psi, k_mm, q = problem.psi(), problem.k_mm(), random_q(0)
    calls: list[tuple[int, ...]] = []
    cholesky = torch.linalg.cholesky

    def counted(k: Tensor) -> Tensor:
        calls.append(tuple(k.shape))
        return cholesky(k)

    monkeypatch.setattr(torch.linalg, "cholesky", counted)
    uncollapsed_bound(problem.x, psi, k_mm, NOISE, q, N)
    assert calls == [(M, M)]
    collapsed_bound(problem.x, psi, k_mm, NOISE)
    assert calls == 3 * [(M, M)]
    given = make_sparse_gp(problem.inducing, problem.kernel, NOISE, q)
    assert calls == 4 * [(M, M)]
    given.predict(problem.mean)
    assert len(calls) == 4


class Largest(TorchDispatchMode):
    """Records how many entries the largest tensor of each dtype has that any operation makes."""

    def __init__(self) -> None:
        super().__init__()
        self.entries: dict[torch.dtype, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        for tensor in out if isinstance(out, tuple | list) else [out]:
            if isinstance(tensor, Tensor):
                self.entries[tensor.dtype] = max(self.entries.get(tensor.dtype, 0), tensor.numel())
        return out


def test_nothing_large_is_made_on_the_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """No N x N, B x M x M or B x M x D array, forward or backward, and of the D-sized ones only M x D in float64."""
    num_data, num_outputs, num_inducing = 200, 60, 40
    monkeypatch.setattr(psi, "PAIR_BLOCK", 5000)
    problem = realistic(torch.float32, num_data, num_outputs)
    problem.inducing = problem.inducing[:num_inducing].requires_grad_()
    q = Whitened(
        torch.zeros(num_inducing, num_outputs, requires_grad=True), torch.eye(num_inducing)[None].requires_grad_()
    )
    noise = torch.tensor(0.01)
    with Largest() as largest:
        statistics, k_mm = problem.psi(), prior_covariance(problem.kernel, problem.inducing)
        bound = uncollapsed_bound(problem.x, statistics, k_mm, noise, q, 1000)
        (bound.likelihood - bound.kl + collapsed_bound(problem.x, statistics, k_mm, noise)[0]).backward()
    assert largest.entries[torch.float32] == num_data * num_outputs
    assert largest.entries[torch.float64] == num_data * num_inducing


def realistic(dtype: torch.dtype, num_data: int = 512, num_outputs: int = 100) -> Problem:
    """Smooth functions of two latent dimensions with a noise of 0.1, the same float32 numbers in either precision."""
    generator = torch.Generator().manual_seed(0)
    z, slopes = torch.randn(num_data, 2, generator=generator), torch.randn(2, num_outputs, generator=generator)
    x = torch.sin(z @ slopes) * 0.3 + 0.1 * torch.randn(num_data, num_outputs, generator=generator)
    kernel, variance = ScaleKernel(RBFKernel()).to(dtype), torch.rand(num_data, 2, generator=generator) * 0.05
    return Problem(x.to(dtype), z.to(dtype), variance.to(dtype), (z[:100] + 0.1).to(dtype), kernel)


def test_float32_agrees_with_float64_on_a_realistic_problem() -> None:
    """To 1e-5 in the bounds, where 1e-3 would do, and to 1e-3 in the predictions and the gradient of Z."""
    results = {}
    for dtype in (torch.float32, torch.float64):
        problem, noise = realistic(dtype), torch.tensor(0.01, dtype=dtype)
        problem.inducing.requires_grad_()
        given = (problem.x, problem.psi(), prior_covariance(problem.kernel, problem.inducing), noise)
        q = Whitened(*(tensor.detach() for tensor in optimal_q_of_bound(*given)))
        bound = uncollapsed_bound(*given, q, 60_000)
        collapsed, jitter = collapsed_bound(*given)
        (gradient,) = torch.autograd.grad(collapsed, problem.inducing)
        prediction = make_sparse_gp(problem.inducing, problem.kernel, noise, q).predict(problem.mean)
        results[dtype] = (torch.stack([bound.likelihood, bound.kl, collapsed]), gradient, *prediction)
        assert jitter == bound.jitter == 0
        assert all(result.dtype == dtype for result in (*results[dtype], *q))
    bounds, *others = zip(results[torch.float32], results[torch.float64], strict=True)
    torch.testing.assert_close(bounds[0].double(), bounds[1], rtol=1e-5, atol=0)
    for single, double in others:
        assert (single - double).abs().max() < 1e-3 * double.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_statistics_computed_on_demand_change_nothing(dtype: torch.dtype) -> None:
    """The bound and the gradient that training takes, through the energy, are those of psi2 itself."""
    problem, noise = realistic(dtype), torch.tensor(0.01, dtype=dtype)
    q_z = Independent(Normal(problem.mean, problem.variance.sqrt(), validate_args=False), 1, validate_args=False)
    inducing = problem.inducing.requires_grad_()
    q = optimal_q_of_bound(problem.x, problem.psi(), prior_covariance(problem.kernel, inducing), noise)
    q = Whitened(*(tensor.detach() for tensor in q))
    results = []
    for make in (lazy_closed_form, closed_form):
        statistics, k_mm = make(problem.kernel, q_z, inducing), prior_covariance(problem.kernel, inducing)
        likelihood = uncollapsed_bound(problem.x, statistics, k_mm, noise, q, 60_000).likelihood
        results.append((likelihood, *torch.autograd.grad(likelihood, inducing)))
    (value, gradient), (expected, expected_gradient) = results
    torch.testing.assert_close(value, expected, rtol=1e-6, atol=0)
    assert (gradient - expected_gradient).abs().max() < 1e-4 * expected_gradient.abs().max()


@pytest.mark.parametrize("lengthscale", [0.3, 1.0, 3.0])
def test_float32_survives_near_duplicates_and_little_noise(lengthscale: float) -> None:
    problem = realistic(torch.float32)
    near = problem.inducing[:50] + 1e-5 * torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    problem.inducing = torch.cat([problem.inducing[:50], near]).requires_grad_()
    problem.kernel.base_kernel.lengthscale = lengthscale
    noise, variance = torch.tensor(1e-4, requires_grad=True), problem.variance.requires_grad_()
    q = Whitened(torch.zeros(100, 100, requires_grad=True), torch.eye(100)[None].requires_grad_())
    statistics, k_mm = problem.psi(), prior_covariance(problem.kernel, problem.inducing)
    collapsed, jitter = collapsed_bound(problem.x, statistics, k_mm, noise)
    bound = uncollapsed_bound(problem.x, statistics, k_mm, noise, q, 60_000)
    (collapsed + bound.likelihood - bound.kl).backward()
    learnt = (problem.inducing, noise, variance, *q, *problem.kernel.parameters())
    assert all(tensor.grad is not None and tensor.grad.isfinite().all() for tensor in learnt)
    assert collapsed.isfinite() and jitter == bound.jitter == 0
    assert project(statistics, k_mm).unexplained > 0  # with psi2 rounded to float32 off by up to two a point


def test_a_singular_k_mm_climbs_the_jitter_ladder(problem: Problem) -> None:
    problem.inducing = problem.inducing[[0, 1, 2, 3, 3]]
    psi, k_mm = problem.psi(), problem.k_mm() - 1e-9 * torch.eye(M)
    bound, jitter = collapsed_bound(problem.x, psi, k_mm, NOISE)
    assert jitter == uncollapsed_bound(problem.x, psi, k_mm, NOISE, random_q(0), N).jitter == 1e-6
    problem.inducing = problem.inducing[:4]
    torch.testing.assert_close(
        bound, collapsed_bound(problem.x, problem.psi(), problem.k_mm(), NOISE)[0], rtol=1e-5, atol=0
    )


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**31), angle=st.floats(0, 2 * math.pi))
def test_invariances(seed: int, angle: float) -> None:
    """The order of points, outputs and inducing points, and a rotation of z for one length scale, change nothing."""
    problem, kernel = random_problem(seed, M, 0.3), ScaleKernel(RBFKernel()).double()
    c, s = math.cos(angle), math.sin(angle)
    rotation = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    order, outputs, inducing = torch.randperm(N), torch.randperm(D), torch.randperm(M)
    cov = torch.diag_embed(problem.variance + torch.rand(N, Q, dtype=torch.float64))

    def bound(x: Tensor, mean: Tensor, cov: Tensor, z: Tensor) -> Tensor:
        return collapsed_bound(
            x, closed_form(kernel, MultivariateNormal(mean, cov), z), prior_covariance(kernel, z), NOISE
        )[0]

    first = bound(problem.x, problem.mean, cov, problem.inducing)
    moved = (problem.mean[order] @ rotation, rotation.mT @ cov[order] @ rotation, problem.inducing[inducing] @ rotation)
    torch.testing.assert_close(bound(problem.x[order][:, outputs], *moved), first)


def test_runs_on_the_meta_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any CPU tensor made on the way is an error, as on a GPU."""
    monkeypatch.setattr(torch, "equal", lambda a, b: a.shape == b.shape)
    with torch.device("meta"):
        x, mean, inducing = torch.empty(N, D), torch.empty(N, Q), torch.empty(M, Q, requires_grad=True)
        q, noise = Whitened(torch.empty(M, D, requires_grad=True), torch.eye(M)[None]), torch.empty(1)
    kernel = ScaleKernel(MaternKernel()).to("meta")
    statistics, k_mm = sampled(kernel, mean[None], inducing), prior_covariance(kernel, inducing)
    bound = uncollapsed_bound(x, statistics, k_mm, noise, q, 100)
    collapsed, _ = collapsed_bound(x, statistics, k_mm, noise)
    (bound.likelihood - bound.kl + collapsed).backward()
    assert inducing.grad is not None and inducing.grad.device.type == "meta"
    assert collapsed.shape == bound.likelihood.shape == bound.kl.shape == ()
    predicted = make_sparse_gp(inducing, kernel, noise, optimal_q_of_bound(x, statistics, k_mm, noise)).predict(mean)
    assert [tuple(tensor.shape) for tensor in predicted] == [(N, D), (N,)]
