"""The psi statistics equal the integrals they stand for, and cost what their docstrings say."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.distributions import Independent, MultivariateNormal, Normal

from src.gp import psi
from src.gp.kernels import ArcCosine
from src.gp.psi import ClosedForm, closed_form, has_closed_form, lazy_closed_form, sampled
from src.models.posterior import Kind, build, spread_size

B, M = 3, 4
Gaussian = Independent | MultivariateNormal
FORMS = pytest.mark.parametrize("form", ["diagonal", "full"])
DIMS = pytest.mark.parametrize("latent_dim", [1, 2])


def normal(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def rbf(latent_dim: int, ard: bool = True) -> ScaleKernel:
    """A kernel in double precision whose hyperparameters are not all equal."""
    kernel = ScaleKernel(RBFKernel(ard_num_dims=latent_dim if ard else None)).double()
    kernel.outputscale = torch.tensor(1.3, dtype=torch.float64)
    kernel.base_kernel.lengthscale = 0.9 + 0.4 * torch.arange(latent_dim if ard else 1, dtype=torch.float64)
    return kernel


def gaussian(form: str, latent_dim: int, size: float = 0.5) -> Gaussian:
    """q of B points whose spread differs between points and dimensions, and with correlations if it is full."""
    mean, spread = normal(0, B, latent_dim), size * (0.5 + normal(1, B, latent_dim).abs())
    if form == "diagonal":
        return Independent(Normal(mean, spread, validate_args=False), 1, validate_args=False)
    below = size * normal(2, B, latent_dim, latent_dim).tril(-1)
    return MultivariateNormal(mean, scale_tril=spread.diag_embed() + below, validate_args=False)


def quadrature(kernel: ScaleKernel, q: Gaussian, inducing: Tensor) -> tuple[np.ndarray, ...]:
    """The three statistics by Gauss-Hermite, with 60 nodes a dimension and the kernel written out."""
    latent_dim = inducing.shape[1]
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    grid = np.stack(np.meshgrid(*[nodes] * latent_dim, indexing="ij"), -1).reshape(-1, latent_dim)
    joint = np.prod(np.stack(np.meshgrid(*[weights] * latent_dim, indexing="ij"), -1).reshape(-1, latent_dim), 1)
    joint /= (2 * np.pi) ** (latent_dim / 2)
    covariance = q.covariance_matrix if isinstance(q, MultivariateNormal) else q.variance.diag_embed()
    scale, lengthscale = kernel.outputscale.item(), kernel.base_kernel.lengthscale.detach().numpy()
    psi0, psi1, psi2 = 0.0, [], 0.0
    for mean, cov in zip(q.mean.numpy(), covariance.numpy(), strict=True):
        z = mean + grid @ np.linalg.cholesky(cov).T
        k = scale * np.exp(-0.5 * (((z[:, None] - inducing.numpy()) / lengthscale) ** 2).sum(-1))
        psi0, psi2 = psi0 + scale * joint.sum(), psi2 + (k * joint[:, None]).T @ k
        psi1.append(joint @ k)
    return np.array(psi0), np.array(psi1), np.array(psi2)


@FORMS
@DIMS
@pytest.mark.parametrize("ard", [True, False])
def test_the_closed_form_equals_quadrature(form: str, latent_dim: int, ard: bool) -> None:
    kernel, q, inducing = rbf(latent_dim, ard), gaussian(form, latent_dim), normal(3, M, latent_dim)
    for statistic, expected in zip(closed_form(kernel, q, inducing), quadrature(kernel, q, inducing), strict=True):
        np.testing.assert_allclose(statistic.detach().numpy(), expected, rtol=1e-9)


@FORMS
@DIMS
def test_without_variance_they_are_kernel_matrices(form: str, latent_dim: int) -> None:
    kernel, q, inducing = rbf(latent_dim), gaussian(form, latent_dim, size=0.0), normal(3, M, latent_dim)
    k = kernel(q.mean, inducing).to_dense()
    plain = (kernel(q.mean, diag=True).sum(), k, k.mT @ k)
    torch.testing.assert_close(tuple(closed_form(kernel, q, inducing)), plain)
    torch.testing.assert_close(tuple(sampled(kernel, q.mean[None], inducing)), plain)


def test_a_full_covariance_without_correlations_is_a_diagonal_one() -> None:
    q, inducing = gaussian("diagonal", 2), normal(3, M, 2)
    full = MultivariateNormal(q.mean, scale_tril=q.stddev.diag_embed())
    torch.testing.assert_close(tuple(closed_form(rbf(2), full, inducing)), tuple(closed_form(rbf(2), q, inducing)))


@FORMS
def test_samples_agree_with_the_closed_form(form: str) -> None:
    """Within five standard errors of the mean of 200 estimates from 50 samples each."""
    kernel, q, inducing = rbf(2), gaussian(form, 2), normal(3, M, 2)
    torch.manual_seed(0)
    with torch.no_grad():
        estimates = [sampled(kernel, q.rsample(torch.Size([50])), inducing) for _ in range(200)]
        exact = closed_form(kernel, q, inducing)
    for name in ("psi1", "psi2"):
        draws = torch.stack([getattr(estimate, name) for estimate in estimates])
        error = draws.std(0) / len(draws) ** 0.5
        assert ((draws.mean(0) - getattr(exact, name)).abs() < 5 * error).all()
    torch.testing.assert_close(estimates[0].psi0, exact.psi0)


KERNELS: dict[str, Callable[[], Kernel]] = {
    "rbf": lambda: ScaleKernel(RBFKernel()),
    "rbf_ard": lambda: ScaleKernel(RBFKernel(ard_num_dims=2)),
    "matern": lambda: ScaleKernel(MaternKernel(nu=2.5)),
    "rational_quadratic": lambda: ScaleKernel(RQKernel()),
    "arc_cosine": lambda: ScaleKernel(ArcCosine()),
}


@pytest.mark.parametrize("name", KERNELS)
def test_samples_of_any_kernel_average_its_matrices(name: str) -> None:
    kernel, z, inducing = KERNELS[name]().double(), normal(0, 5, B, 2), normal(1, M, 2)
    psi0, psi1, psi2 = sampled(kernel, z, inducing)
    matrices = [kernel(sample, inducing).to_dense() for sample in z]
    torch.testing.assert_close(psi0, torch.stack([kernel(sample, diag=True).sum() for sample in z]).mean())
    torch.testing.assert_close(psi1, torch.stack(matrices).mean(0))
    torch.testing.assert_close(psi2, torch.stack([k.mT @ k for k in matrices]).mean(0))


@pytest.mark.parametrize("name", KERNELS)
def test_float32_inputs_are_taken_as_exact(name: str) -> None:
    """Nothing is rounded to float32 on the way, not even inside a kernel whose parameters are float32."""
    kernel, z, inducing = KERNELS[name](), normal(0, 5, B, 2).float(), normal(1, M, 2).float()
    double = in_double_precision(kernel)
    expected = sampled(double, z.double(), inducing.double())
    torch.testing.assert_close(tuple(sampled(kernel, z, inducing)), tuple(expected), rtol=1e-12, atol=0)
    if has_closed_form(kernel):
        q = Independent(Normal(z[0], z[1].exp()), 1)
        q_double = Independent(Normal(q.mean.double(), q.variance.double().sqrt()), 1)
        expected = closed_form(double, q_double, inducing.double())
        torch.testing.assert_close(tuple(closed_form(kernel, q, inducing)), tuple(expected), rtol=1e-12, atol=0)


def in_double_precision(kernel: Kernel) -> Kernel:
    """The kernel with the same hyperparameters, not just the same raw parameters."""
    double = deepcopy(kernel).double()
    pairs = zip(kernel.named_parameters_and_constraints(), double.parameters(), strict=True)
    for (_, parameter, constraint), other in pairs:
        other.data = constraint.inverse_transform(constraint.transform(parameter).double()).detach()
    return double


def test_which_kernels_have_a_closed_form() -> None:
    assert [name for name, kernel in KERNELS.items() if has_closed_form(kernel())] == ["rbf", "rbf_ard"]
    assert not has_closed_form(RBFKernel())
    assert not has_closed_form(gpytorch.kernels.RBFKernelGrad())
    assert not has_closed_form(ScaleKernel(gpytorch.kernels.RBFKernelGrad()))
    assert not has_closed_form(ScaleKernel(RBFKernel(active_dims=(0,))))
    assert not has_closed_form(ScaleKernel(RBFKernel(), batch_shape=torch.Size([2])))
    with pytest.raises(TypeError, match="no closed form"):
        closed_form(ScaleKernel(MaternKernel()), gaussian("diagonal", 2), normal(3, M, 2))


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**31), latent_dim=st.integers(1, 4), full=st.booleans(), shift=st.floats(-3, 3))
def test_what_holds_for_every_q(seed: int, latent_dim: int, full: bool, shift: float) -> None:
    """psi2 is symmetric and exceeds psi1^T psi1 by a covariance; moving q and Z together changes nothing."""
    kernel, inducing = rbf(latent_dim), normal(seed, M, latent_dim)
    kind: Kind = "full" if full else "diagonal"
    mean, spread = normal(seed + 1, B, latent_dim), normal(seed + 2, B, spread_size(kind, latent_dim))
    with torch.no_grad():
        statistics = closed_form(kernel, gaussian_of(kind, mean, spread), inducing)
        moved = closed_form(kernel, gaussian_of(kind, mean + shift, spread), inducing + shift)
    torch.testing.assert_close(tuple(moved), tuple(statistics))
    torch.testing.assert_close(statistics.psi2, statistics.psi2.mT, rtol=0, atol=0)
    assert torch.linalg.eigvalsh(statistics.psi2 - statistics.psi1.mT @ statistics.psi1).min() > -1e-12
    assert statistics.psi2.trace() < M * B * kernel.outputscale**2


def gaussian_of(kind: Kind, mean: Tensor, spread: Tensor) -> Gaussian:
    """q as the models make it."""
    q = build(kind, mean, spread)
    assert isinstance(q, Gaussian)
    return q


@FORMS
@DIMS
def test_gradients(form: Kind, latent_dim: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By finite differences, in blocks that do not divide the number of pairs."""
    monkeypatch.setattr(psi, "PAIR_BLOCK", 4 * B)
    kernel = rbf(latent_dim)
    names = [f"kernel.{name}" for name, _ in kernel.named_parameters()]

    def statistics(mean: Tensor, spread: Tensor, inducing: Tensor, *raw: Tensor) -> Any:
        q, values = gaussian_of(form, mean, spread), dict(zip(names, raw, strict=True))
        return torch.func.functional_call(Statistics(kernel), values, (q, inducing))

    inputs = (normal(0, B, latent_dim), normal(1, B, spread_size(form, latent_dim)), normal(3, M, latent_dim))
    variables = [tensor.clone().requires_grad_() for tensor in (*inputs, *kernel.parameters())]
    assert torch.autograd.gradcheck(statistics, variables)


class Statistics(torch.nn.Module):
    def __init__(self, kernel: Kernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, q: Gaussian, inducing: Tensor) -> tuple[Tensor, ...]:
        return tuple(closed_form(self.kernel, q, inducing))


@FORMS
def test_the_energy_is_the_trace_with_psi2_and_so_is_its_gradient(form: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """In blocks that do not divide the number of pairs."""
    monkeypatch.setattr(psi, "PAIR_BLOCK", 4 * B)
    kernel, weight = rbf(2), normal(4, M, M)
    variables = [normal(0, B, 2), normal(1, B, spread_size(form, 2)), normal(3, M, 2), weight + weight.mT]
    mean, spread, inducing, weight = (variable.requires_grad_() for variable in variables)
    lazy = lazy_closed_form(kernel, gaussian_of(form, mean, spread), inducing)
    learnt = [mean, spread, inducing, weight, *kernel.parameters()]
    results = []
    for energy in (lazy.energy(weight), (weight * lazy.psi2).sum()):
        results.append((energy, *torch.autograd.grad(energy, learnt, retain_graph=True)))
    torch.testing.assert_close(results[0], results[1], rtol=1e-11, atol=1e-12)


def test_a_large_batch_in_the_plane_goes_through_a_grid_to_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """psi2, the energy and their gradients, to the rounding error of float64."""
    mean, spread, inducing = (
        tensor.requires_grad_() for tensor in (normal(0, 400, 2), normal(1, 400, 2), normal(3, 9, 2))
    )
    kernel, weight, results = rbf(2), normal(4, 9, 9), []
    for grid in (True, False):
        if not grid:
            monkeypatch.setattr(ClosedForm, "sums_by_grid", lambda self, middle: None)
        lazy = lazy_closed_form(kernel, gaussian_of("diagonal", mean, spread), inducing)
        assert (lazy.sums_by_grid(lazy.z) is not None) == grid
        for value in ((weight * lazy.psi2).sum(), lazy.energy(weight)):
            learnt = [mean, spread, inducing, *kernel.parameters()]
            results.append((value, *torch.autograd.grad(value, learnt, retain_graph=True)))
    for result in results[:3]:
        for found, expected in zip(result, results[3], strict=True):
            assert (found - expected).abs().max() < 1e-12 * expected.abs().max()


@FORMS
def test_blocks_change_nothing(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    q, inducing = gaussian(form, 2), normal(3, M, 2).requires_grad_()
    weights = normal(4, M, M)
    results = []
    for block in (1, 4 * B, 10**6):
        monkeypatch.setattr(psi, "PAIR_BLOCK", block)
        psi2 = closed_form(rbf(2), q, inducing).psi2
        results.append((psi2.detach(), *torch.autograd.grad((weights * psi2).sum(), inducing)))
    torch.testing.assert_close(results[0], results[2])
    torch.testing.assert_close(results[1], results[2])


@FORMS
def test_runs_on_the_meta_device(form: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    """Any CPU tensor made on the way is an error, as on a GPU."""
    monkeypatch.setattr(torch, "equal", lambda a, b: a.shape == b.shape)
    kernel = ScaleKernel(RBFKernel(ard_num_dims=2)).to("meta")
    mean, inducing = (torch.empty(rows, 2, device="meta", requires_grad=True) for rows in (B, M))
    spread = torch.empty(B, spread_size(form, 2), device="meta", requires_grad=True)
    q = gaussian_of(form, mean, spread)
    statistics = (*closed_form(kernel, q, inducing), *sampled(kernel, q.rsample(torch.Size([5])), inducing))
    assert [tuple(statistic.shape) for statistic in statistics] == 2 * [(), (B, M), (M, M)]
    torch.stack([statistic.sum() for statistic in statistics]).sum().backward()
    assert inducing.grad is not None and inducing.grad.device.type == "meta"
