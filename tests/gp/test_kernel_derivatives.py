"""Derivatives of kernels: closed forms, automatic ones and finite differences agree."""

import math

import pytest
import torch
from gpytorch.kernels import (
    AdditiveKernel,
    Kernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
)
from torch import Tensor

from src.gp.kernel_derivatives import automatic, derivatives
from src.gp.kernels import ArcCosine
from src.runs.errors import UserError

Q = 3


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def scaled(base: Kernel, outputscale: float = 1.7) -> Kernel:
    kernel = ScaleKernel(base).double()
    kernel.outputscale = outputscale
    return kernel


def with_scales(base: Kernel, *lengthscale: float) -> Kernel:
    kernel = scaled(base)
    kernel.base_kernel.lengthscale = torch.tensor(lengthscale)
    return kernel


CLOSED = {
    "rbf": with_scales(RBFKernel(), 0.8),
    "rbf ard": with_scales(RBFKernel(ard_num_dims=Q), 0.5, 0.8, 2.0),
    "matern 5/2": with_scales(MaternKernel(nu=2.5), 0.8),
    "matern 5/2 ard": with_scales(MaternKernel(nu=2.5, ard_num_dims=Q), 0.5, 0.8, 2.0),
    "without a scale": RBFKernel().double(),
}
SMOOTH = {
    "rational quadratic": scaled(RQKernel()),
    "polynomial": scaled(PolynomialKernel(power=2)),
    "linear": LinearKernel().double(),
    "product": scaled(ProductKernel(RBFKernel(), LinearKernel())),
    "some coordinates": scaled(RBFKernel(active_dims=(0, 2))),
    "sum": AdditiveKernel(scaled(MaternKernel(nu=2.5)), LinearKernel()).double(),
}
ROUGH = {
    "matern 3/2": with_scales(MaternKernel(nu=1.5), 0.8),
    "matern 3/2 and linear": AdditiveKernel(with_scales(MaternKernel(nu=1.5), 0.8), LinearKernel()).double(),
    "arc-cosine": scaled(ArcCosine()),
    "arc-cosine of degree 2": scaled(ArcCosine(degree=2, depth=2)),
}


def value(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    """k(a_n, b_n) without a derivative."""
    with torch.no_grad():
        answer: Tensor = kernel(a, b, diag=True)
        return answer


@pytest.mark.parametrize("name", CLOSED)
def test_the_closed_form_is_the_automatic_one(name: str) -> None:
    kernel, known, z = CLOSED[name], seeded(5, Q), seeded(4, Q, seed=1)
    for closed, other in zip(derivatives(kernel, known, z), automatic(kernel, known, z), strict=True):
        torch.testing.assert_close(closed, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("name", CLOSED | SMOOTH | ROUGH)
def test_derivatives_to_known_points_are_differences(name: str) -> None:
    kernel, known, z, step = (CLOSED | SMOOTH | ROUGH)[name], seeded(5, Q), seeded(4, Q, seed=1), 1e-5
    cross, _ = derivatives(kernel, known, z)
    for q in range(Q):
        moved = step * torch.eye(Q, dtype=z.dtype)[q]
        for a, point in enumerate(known):
            difference = value(kernel, point.expand(4, Q), z + moved) - value(kernel, point.expand(4, Q), z - moved)
            torch.testing.assert_close(cross[:, a, q].detach(), difference / (2 * step), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(("name", "accuracy"), [(n, 1e-4) for n in CLOSED | SMOOTH] + [(n, 1e-2) for n in ROUGH])
def test_the_covariance_of_derivatives_is_that_of_differences(name: str, accuracy: float) -> None:
    """Var[(f(z + h u) - f(z - h u)) / 2 h] for steps along and across the coordinates."""
    kernel, z, step = (CLOSED | SMOOTH | ROUGH)[name], seeded(4, Q), 1e-3
    _, prior = derivatives(kernel, seeded(1, Q, seed=1), z)
    for direction in (*torch.eye(Q, dtype=z.dtype), torch.ones(Q, dtype=z.dtype)):
        there, back = z + step * direction, z - step * direction
        variance = value(kernel, there, there) + value(kernel, back, back) - 2 * value(kernel, there, back)
        found = (prior @ direction @ direction).detach()
        torch.testing.assert_close(found, variance / (2 * step) ** 2, rtol=accuracy, atol=1e-6)


def test_points_that_coincide_have_derivatives_with_derivatives() -> None:
    """A curve may go through a known point, where the root of a distance has no slope."""
    for name in ("rbf", "matern 5/2", "matern 3/2"):
        z = seeded(2, Q).requires_grad_()
        cross, _ = derivatives((CLOSED | ROUGH)[name], z.detach(), z)
        (slope,) = torch.autograd.grad(cross.square().sum(), z)
        assert cross[[0, 1], [0, 1]].abs().max() == 0 and slope.isfinite().all()


@pytest.mark.parametrize("kernel", [scaled(MaternKernel(nu=0.5)), scaled(ArcCosine(degree=0))])
def test_functions_without_a_derivative_have_no_metric(kernel: Kernel) -> None:
    with pytest.raises(UserError, match="no derivative"):
        derivatives(kernel, seeded(5, Q), seeded(4, Q, seed=1))


def test_the_prior_of_the_papers_kernel_by_hand() -> None:
    """s / l^2 in each dimension."""
    _, prior = derivatives(CLOSED["rbf ard"], seeded(5, Q), seeded(2, Q))
    expected = torch.tensor([1.7 / scale**2 for scale in (0.5, 0.8, 2.0)], dtype=prior.dtype)
    torch.testing.assert_close(prior[1], expected.diag(), rtol=1e-6, atol=1e-12)
    assert math.isclose(
        derivatives(CLOSED["matern 5/2"], seeded(5, Q), seeded(2, Q))[1][0, 1, 1], 1.7 * 5 / 3 / 0.64, rel_tol=1e-6
    )
