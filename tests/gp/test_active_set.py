"""The estimates of log p(x | z), each tied to something exact."""

from itertools import combinations
from math import pi

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import multivariate_normal
from torch import Tensor

from src.gp.active_set import ActiveSet, condition, fixed_size, log_active, log_marginal, random_size

N, D, Q = 6, 3, 2
Data = tuple[Tensor, Tensor]


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    return tuple(torch.randn(N, size, dtype=torch.float64, generator=generator) for size in (D, Q))  # type: ignore[return-value]


@pytest.fixture
def kernel() -> Kernel:
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.3, 0.8
    return kernel


NOISE = torch.tensor(0.2, dtype=torch.float64)


def exact_by_scipy(x: Tensor, z: Tensor, kernel: Kernel) -> float:
    """log N(x_d | 0, K + noise I), summed over the outputs, by another library."""
    covariance = kernel(z).to_dense().detach().numpy() + NOISE.item() * np.eye(len(z))
    return float(sum(multivariate_normal(np.zeros(len(z)), covariance).logpdf(column) for column in x.T.numpy()))


def eq6(x: Tensor, z: Tensor, kernel: Kernel, active: tuple[int, ...], num_data: int = N) -> Tensor:
    """The estimate with a given active set out of all rows of x."""
    order = [*active, *(n for n in range(len(x)) if n not in active)]
    estimate = fixed_size(x[order], z[order], kernel, NOISE, len(active), num_data)
    return estimate.active + estimate.rest


def test_the_marginal_likelihood_is_the_gaussian_density(data: Data, kernel: Kernel) -> None:
    torch.testing.assert_close(log_marginal(*data, kernel, NOISE).item(), exact_by_scipy(*data, kernel))


@pytest.mark.parametrize("held_out", range(N))
def test_with_all_points_but_one_active_the_estimate_is_exact(data: Data, kernel: Kernel, held_out: int) -> None:
    active = tuple(n for n in range(N) if n != held_out)
    torch.testing.assert_close(eq6(*data, kernel, active).item(), exact_by_scipy(*data, kernel), rtol=1e-13, atol=0)


@pytest.mark.parametrize("active_size", range(1, N))
def test_the_mean_over_all_splits_is_the_exact_expectation(data: Data, kernel: Kernel, active_size: int) -> None:
    """E[log p(x_A)] + (N - A) E[log p(x_n | x_A)], the second as a difference of two marginal likelihoods."""
    x, z = data
    subsets = list(combinations(range(N), active_size))
    expected = 0.0
    for a in subsets:
        rows = list(a)
        inside = exact_by_scipy(x[rows], z[rows], kernel)
        with_n = [exact_by_scipy(x[[*rows, n]], z[[*rows, n]], kernel) for n in range(N) if n not in a]
        expected += (inside + sum(joint - inside for joint in with_n)) / len(subsets)
    mean = torch.stack([eq6(x, z, kernel, a) for a in subsets]).mean()
    torch.testing.assert_close(mean.item(), expected)


def test_batches_weigh_the_rest_so_that_their_mean_is_the_full_objective(data: Data, kernel: Kernel) -> None:
    """One active set, the other points in disjoint batches: catches any slip in (N - A) / (B - A)."""
    x, z = data
    full = eq6(x, z, kernel, (0, 1))
    batches = [eq6(x[[0, 1, *rest]], z[[0, 1, *rest]], kernel, (0, 1)) for rest in ([2, 3], [4, 5])]
    torch.testing.assert_close(torch.stack(batches).mean(), full)


def test_the_random_size_form_has_the_exact_value_as_its_mean(data: Data, kernel: Kernel) -> None:
    x, z = data

    def mean_over_rests(size: int) -> Tensor:
        orders = [[*(n for n in range(N) if n not in rest), *rest] for rest in combinations(range(N), size)]
        return torch.stack([random_size(x[o], z[o], kernel, NOISE, size).rest for o in orders]).mean()

    mean = torch.stack([mean_over_rests(size) for size in range(1, N + 1)]).mean()
    torch.testing.assert_close(mean.item(), exact_by_scipy(x, z, kernel), rtol=1e-13, atol=0)


def test_eq6_stays_below_the_exact_value_for_data_of_the_model(data: Data, kernel: Kernel) -> None:
    """Where x x^T / D is the model's covariance, the gap is a mean mutual information: positive, falling in A."""
    z = data[1]
    x = (N * (kernel(z).to_dense() + NOISE * torch.eye(N))).detach()
    x = torch.linalg.cholesky(x)  # D = N outputs with second moment exactly D (K + noise I)
    exact = exact_by_scipy(x, z, kernel)
    by_size = [
        torch.stack([eq6(x, z, kernel, a) for a in combinations(range(N), size)]).mean().item() for size in range(N)
    ]
    assert by_size == sorted(by_size)
    assert all(value < exact - 1e-3 for value in by_size[:-1])
    assert by_size[-1] == pytest.approx(exact, rel=1e-13)
    assert sum(by_size) / N < exact - 1e-3  # a uniform random size in Eq. 6 does not make it unbiased


def test_the_closed_form_of_one_active_and_one_other_point(kernel: Kernel) -> None:
    """Written out by hand in scalars, with D = 2: pins D, log 2 pi, the square and the variance one by one."""
    x = torch.tensor([[0.5, -1.0], [2.0, 0.3]], dtype=torch.float64)
    z = torch.tensor([[0.1], [0.7]], dtype=torch.float64)
    k, s2 = 1.3, 0.2
    k12 = k * np.exp(-0.5 * (0.6 / 0.8) ** 2)
    active = sum(-0.5 * np.log(2 * pi * (k + s2)) - 0.5 * v**2 / (k + s2) for v in (0.5, -1.0))
    variance = k + s2 - k12**2 / (k + s2)
    means = [k12 / (k + s2) * v for v in (0.5, -1.0)]
    rest = sum(
        -0.5 * np.log(2 * pi * variance) - 0.5 * (v - m) ** 2 / variance for v, m in zip((2.0, 0.3), means, strict=True)
    )
    estimate = fixed_size(x, z, kernel, NOISE, 1, num_data=11)
    torch.testing.assert_close(estimate.active.item(), active)
    torch.testing.assert_close(estimate.rest.item(), 10 * rest)


def test_predictions_equal_gpytorchs_exact_gp(data: Data, kernel: Kernel) -> None:
    x, z = data
    z_new = torch.randn(4, Q, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    mean, variance = condition(x, z, kernel, NOISE).predict(z_new)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = NOISE
    for d in range(D):
        gp = gpytorch.models.ExactGP(z, x[:, d], likelihood)
        gp.forward = lambda inputs: gpytorch.distributions.MultivariateNormal(
            torch.zeros(len(inputs)).double(), kernel(inputs)
        )
        gp.eval(), likelihood.eval()
        with gpytorch.settings.skip_posterior_variances(False):
            expected = likelihood(gp(z_new))
        torch.testing.assert_close(mean[:, d], expected.mean, rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(variance, expected.variance, rtol=1e-6, atol=1e-6)


def test_gradients(data: Data, kernel: Kernel) -> None:
    x, z = data

    def objective(z: Tensor, noise: Tensor, *raw: Tensor) -> Tensor:
        values = dict(zip((name for name, _ in kernel.named_parameters()), raw, strict=True))
        estimate = torch.func.functional_call(
            Estimate(kernel, x), {f"kernel.{k}": v for k, v in values.items()}, (z, noise)
        )
        return torch.stack(estimate)

    raw = [p.detach().clone().requires_grad_() for p in kernel.parameters()]
    assert torch.autograd.gradcheck(objective, (z.clone().requires_grad_(), NOISE.clone().requires_grad_(), *raw))


class Estimate(torch.nn.Module):
    def __init__(self, kernel: Kernel, x: Tensor) -> None:
        super().__init__()
        self.kernel, self.x = kernel, x

    def forward(self, z: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        return fixed_size(self.x, z, self.kernel, noise, 3, 20)[:2]


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**31), angle=st.floats(0, 6.28), active_size=st.integers(1, N - 1))
def test_invariances(seed: int, angle: float, active_size: int) -> None:
    """Permutations within the active set, within the rest and of the outputs, and rotations of z, change nothing."""
    generator = torch.Generator().manual_seed(seed)
    x, z = (torch.randn(N, size, dtype=torch.float64, generator=generator) for size in (D, Q))
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double()
    order = torch.cat([torch.randperm(active_size, generator=generator), active_size + torch.randperm(N - active_size)])
    c, s = np.cos(angle), np.sin(angle)
    rotation = torch.tensor([[c, -s], [s, c]], dtype=torch.float64)
    first = fixed_size(x, z, kernel, NOISE, active_size, 50)
    second = fixed_size(x[order][:, torch.randperm(D)], z[order] @ rotation, kernel, NOISE, active_size, 50)
    torch.testing.assert_close(second[:2], first[:2])


def test_float32_agrees_with_float64_on_a_realistic_batch() -> None:
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(512, 2, generator=generator)
    x = torch.sin(z @ torch.randn(2, 100, generator=generator)) * 0.3 + 0.1 * torch.randn(512, 100, generator=generator)
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())
    single = fixed_size(x, z, kernel, torch.tensor(0.01), 200, 60_000)
    double = fixed_size(x.double(), z.double(), kernel.double(), torch.tensor(0.01).double(), 200, 60_000)
    torch.testing.assert_close(torch.stack(single[:2]).double(), torch.stack(double[:2]), rtol=1e-3, atol=0)


def test_one_cholesky_serves_everything(data: Data, kernel: Kernel, cholesky_sizes: list[int]) -> None:
    fixed_size(*data, kernel, NOISE, 3, 50)
    assert cholesky_sizes == [3]


@pytest.mark.parametrize("active_size", [1, 3, N - 1])
def test_the_gradient_is_that_of_the_plain_formulas(data: Data, kernel: Kernel, active_size: int) -> None:
    """Through the Cholesky factor by autograd, with the predictive density of every point written out."""
    x, z = data[0], data[1].clone().requires_grad_()
    noise = NOISE.clone().requires_grad_()
    given = condition(x[:active_size], z[:active_size], kernel, noise)
    assert isinstance(given, ActiveSet)
    mean, variance = given.predict(z[active_size:])
    rest = torch.distributions.Normal(mean, variance.sqrt()[:, None]).log_prob(x[active_size:]).sum()
    plain = log_active(given.chol, given.whitened) + (20 - active_size) / (N - active_size) * rest
    estimate = fixed_size(x, z, kernel, noise, active_size, 20)
    learnt = [z, noise, *kernel.parameters()]
    found, expected = (torch.autograd.grad(value, learnt) for value in (estimate.active + estimate.rest, plain))
    torch.testing.assert_close(estimate.active + estimate.rest, plain, rtol=1e-12, atol=0)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize(("noise", "tolerance"), [(0.1, 1e-4), (1e-2, 1e-3), (1e-4, 2e-2)])
def test_float32_at_little_noise(noise: float, tolerance: float) -> None:
    """Value and gradient in z are no worse than by autograd: residuals are of x and mean, not of their squares."""
    generator = torch.Generator().manual_seed(0)
    z = torch.randn(400, 2, generator=generator)
    x = torch.sin(z @ torch.randn(2, 50, generator=generator)) + noise**0.5 * torch.randn(400, 50, generator=generator)
    results = []
    for dtype in (torch.float32, torch.float64):
        latents, kernel = z.to(dtype).requires_grad_(), ScaleKernel(RBFKernel()).to(dtype)
        estimate = fixed_size(x.to(dtype), latents, kernel, torch.tensor(noise, dtype=dtype), 150, 60_000)
        value = estimate.active + estimate.rest
        results.append((value.double(), torch.autograd.grad(value, latents)[0].double()))
    (single, gradient), (double, expected) = results
    torch.testing.assert_close(single, double, rtol=1e-4, atol=0)
    assert (gradient - expected).norm() < tolerance * expected.norm()


def test_nothing_wide_is_kept_for_the_gradient(kernel: Kernel) -> None:
    """Of tensors with D columns the graph holds none."""
    x, z = torch.randn(40, 500, dtype=torch.float64), torch.randn(40, Q, dtype=torch.float64, requires_grad=True)
    kept: list[Tensor] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        fixed_size(x, z, kernel, NOISE, 10, 100)
    assert kept and not any(500 in tensor.shape for tensor in kept)
