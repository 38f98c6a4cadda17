"""The arc-cosine kernel is the integral it stands for, and every kernel of conf/kernel can be trained."""

import math
from pathlib import Path
from typing import Any

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from hydra.utils import instantiate
from omegaconf import OmegaConf
from torch import Tensor

from src.gp.kernels import (
    ArcCosine,
    CrossRBF,
    ObjectAngleKernel,
    PriorRBF,
    ScaledRBF,
    covariance,
    cross_stack,
    is_scaled_rbf,
    is_stack_of_rbfs,
    prior_stack,
    variance_stack,
    variances,
)
from src.runs.errors import UserError

CONF = Path(__file__).parents[2] / "conf" / "kernel"
DEGREES = pytest.mark.parametrize("degree", [0, 1, 2])


def points(n: int = 7, latent_dim: int = 2, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(n, latent_dim, dtype=dtype, generator=torch.Generator().manual_seed(0))


def arc_cosine(degree: int, depth: int = 1, **kwargs: Any) -> ArcCosine:
    """A kernel in double precision whose hyperparameters are not all equal."""
    kernel = ArcCosine(degree, depth, **kwargs).double()
    for i, parameter in enumerate(kernel.parameters()):
        parameter.data += 0.3 * (i + torch.arange(parameter.numel()).reshape(parameter.shape))
    return kernel


def inputs(kernel: ArcCosine, z: Tensor) -> np.ndarray:
    """(z / lengthscale, sqrt(bias)), the vectors of Cho & Saul's integral."""
    bias = kernel.bias.detach().sqrt().reshape(1, 1).expand(len(z), 1)
    return torch.cat([z / kernel.lengthscale.detach(), bias], 1).numpy()


def test_the_bias_starts_at_one_and_the_kernel_is_not_stationary() -> None:
    assert ArcCosine().bias.item() == pytest.approx(1)
    assert not gpytorch.kernels.ScaleKernel(ArcCosine()).is_stationary


@DEGREES
def test_equals_monte_carlo(degree: int) -> None:
    """2 E_w[(w.a)^n (w.b)^n; w.a > 0, w.b > 0], within five standard errors of 400,000 draws."""
    kernel, z = arc_cosine(degree), points(4)
    projected = np.random.default_rng(0).standard_normal((400_000, 3)) @ inputs(kernel, z).T
    features = (projected > 0) * projected**degree
    products = 2 * features[:, :, None] * features[:, None, :]
    error = 5 * products.std(0) / math.sqrt(len(products))
    assert (np.abs(kernel(z).to_dense().detach().numpy() - products.mean(0)) < error).all()


@DEGREES
def test_equals_quadrature(degree: int) -> None:
    """The same integral in polar coordinates of the plane of a and b, by Gauss-Legendre over the angle, to 1e-12."""
    kernel, z = arc_cosine(degree), points()
    a = inputs(kernel, z)
    lengths = np.linalg.norm(a, axis=1)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    expected = np.empty((len(z), len(z)))
    for i, j in np.ndindex(expected.shape):
        theta = 2 * np.arcsin(np.linalg.norm(a[i] / lengths[i] - a[j] / lengths[j]) / 2)
        half = (np.pi - theta) / 2  # w.a and w.b are positive for angles between theta - pi / 2 and pi / 2
        angles = theta / 2 + half * nodes
        radial = 2**degree * math.factorial(degree)  # the integral of r^(2n + 1) exp(-r^2 / 2)
        angular = half * (weights * np.cos(angles) ** degree * np.cos(angles - theta) ** degree).sum()
        expected[i, j] = 2 / (2 * np.pi) * radial * angular * (lengths[i] * lengths[j]) ** degree
    np.testing.assert_allclose(kernel(z).to_dense().detach().numpy(), expected, rtol=1e-12, atol=1e-12)


def recursion(a: np.ndarray, b: np.ndarray, degree: int, depth: int) -> float:
    """The kernel of a layer from that of the layer before, one pair of vectors at a time."""
    if depth == 0:
        return float(a @ b)
    ab, aa, bb = (recursion(u, v, degree, depth - 1) for u, v in ((a, b), (a, a), (b, b)))
    theta = math.acos(max(-1.0, min(1.0, ab / math.sqrt(aa * bb))))
    s, c = math.sin(theta), math.cos(theta)
    j = [math.pi - theta, s + (math.pi - theta) * c, 3 * s * c + (math.pi - theta) * (1 + 2 * c * c)][degree]
    return (aa * bb) ** (degree / 2) * j / math.pi


@DEGREES
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_equals_the_recursion(degree: int, depth: int) -> None:
    kernel, z1, z2 = arc_cosine(degree, depth, ard_num_dims=2), points(5), points(8)[5:]
    a, b = inputs(kernel, z1), inputs(kernel, z2)
    expected = [[recursion(u, v, degree, depth) for v in b] for u in a]
    np.testing.assert_allclose(kernel(z1, z2).to_dense().detach().numpy(), expected, rtol=1e-10)


@DEGREES
@pytest.mark.parametrize("depth", [1, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_diagonal_and_positive_semidefinite(degree: int, depth: int, dtype: torch.dtype) -> None:
    kernel, z = arc_cosine(degree, depth).to(dtype), points(60, dtype=dtype)
    z = torch.cat([z, z[:20]])
    k = kernel(z).to_dense()
    assert k.dtype == dtype
    torch.testing.assert_close(kernel(z, diag=True), k.diagonal())
    eigenvalues = torch.linalg.eigvalsh(k.detach().double())
    assert eigenvalues.min() > -100 * torch.finfo(dtype).eps * eigenvalues.max()


@DEGREES
def test_batches(degree: int) -> None:
    """A batch of kernels on a batch of points is the kernels one by one."""
    kernel = arc_cosine(degree, 2, batch_shape=torch.Size([3]), ard_num_dims=2)
    z = points(15).reshape(3, 5, 2)
    k, diagonal = kernel(z).to_dense(), kernel(z, diag=True)
    assert k.shape == (3, 5, 5)
    torch.testing.assert_close(diagonal, k.diagonal(dim1=-2, dim2=-1))
    for i in range(3):
        torch.testing.assert_close(kernel[i](z[i]).to_dense(), k[i])


@DEGREES
@pytest.mark.parametrize("depth", [1, 2])
def test_gradients_equal_finite_differences(degree: int, depth: int) -> None:
    kernel = arc_cosine(degree, depth, ard_num_dims=2)

    def covariance(z1: Tensor, z2: Tensor, *_: Tensor) -> Tensor:
        return kernel.forward(z1, z2)

    z = points(6).requires_grad_()
    assert torch.autograd.gradcheck(covariance, (z[:3], z[3:], *kernel.parameters()))


@DEGREES
@pytest.mark.parametrize("depth", [1, 3])
def test_gradients_are_finite_where_points_coincide(degree: int, depth: int) -> None:
    kernel, z = ArcCosine(degree, depth), points(50, dtype=torch.float32)
    z = torch.cat([z, z, z + 1e-4, z + 1e-7]).requires_grad_()
    kernel(z).to_dense().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in (z, *kernel.parameters()))


@pytest.mark.parametrize("degree", [1, 2])
def test_gradient_on_the_diagonal_is_that_of_the_closed_form(degree: int) -> None:
    """k(z, z) = J_n(0) / pi |a|^2n: nothing is lost where the angle is cut to zero."""
    kernel, z = arc_cosine(degree), points().requires_grad_()
    closed = {1: 1, 2: 3}[degree] * ((z / kernel.lengthscale).square().sum(-1) + kernel.bias.squeeze()) ** degree
    (expected,) = torch.autograd.grad(closed.sum(), z)
    for diagonal in (kernel(z, diag=True), kernel(z).to_dense().diagonal()):
        torch.testing.assert_close(torch.autograd.grad(diagonal.sum(), z)[0], expected)


@DEGREES
def test_runs_on_the_meta_device(degree: int) -> None:
    kernel = gpytorch.kernels.ScaleKernel(ArcCosine(degree, 2)).to("meta")
    z = torch.empty(5, 2, device="meta", requires_grad=True)
    k = kernel(z, z[:3]).to_dense()
    assert (k.shape, k.device.type, kernel(z, diag=True).shape) == ((5, 3), "meta", (5,))
    k.sum().backward()


@pytest.mark.parametrize(("degree", "depth"), [(3, 1), (1, 0)])
def test_refuses_what_it_is_not(degree: int, depth: int) -> None:
    with pytest.raises(UserError, match="arc-cosine"):
        ArcCosine(degree, depth)


def test_refuses_to_take_dimensions_apart() -> None:
    with pytest.raises(NotImplementedError, match="latent dimensions"):
        ArcCosine().forward(points(), points(), last_dim_is_batch=True)


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_configured_kernel_can_be_trained(path: Path) -> None:
    assert path.read_text().startswith("# ")
    config = OmegaConf.create({"model": {"latent_dim": 3}, "kernel": OmegaConf.load(path)})
    kernel = instantiate(config.kernel).double()
    z = points(30, latent_dim=3).requires_grad_()
    k = kernel(z).to_dense()
    torch.testing.assert_close(kernel(z, diag=True), k.diagonal())
    assert torch.linalg.eigvalsh(k).min() > -1e-10
    (k + torch.eye(30)).logdet().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() and p.grad.any() for p in (z, *kernel.parameters()))


def test_ard_follows_the_latent_dimension() -> None:
    config = OmegaConf.create({"model": {"latent_dim": 4}, "kernel": OmegaConf.load(CONF / "rbf_ard.yaml")})
    assert instantiate(config.kernel).base_kernel.lengthscale.shape == (1, 4)


@pytest.mark.parametrize("ard", [None, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_fast_matrix_of_the_scaled_rbf_is_gpytorchs(ard: int | None, dtype: torch.dtype) -> None:
    """Values and gradients, with a point that both sets share, far from the origin, and of one set with itself.

    At 50 the squares of float32 points that are not centred first lose all but three digits of a distance.
    """
    kernel = ScaleKernel(RBFKernel(ard_num_dims=ard)).to(dtype)
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.3, [[0.6, 1.4]] if ard else 0.8
    a = (50 + points(7)).to(dtype).requires_grad_()
    b = torch.cat([a[:1].detach(), (50 + points(11)[7:]).to(dtype)]).requires_grad_()
    rtol, atol = (1e-4, 1e-5) if dtype == torch.float32 else (1e-10, 1e-12)
    for other in (a, b):
        weights = points(len(a), len(other), dtype)
        learnt = [a, other, *kernel.parameters()]
        results = []
        for matrix in (covariance(kernel, a, other), kernel(a, other).to_dense()):
            results.append((matrix, *torch.autograd.grad((weights * matrix).sum(), learnt)))
        torch.testing.assert_close(results[0], results[1], rtol=rtol, atol=atol)


@pytest.mark.parametrize("kernel", [ScaleKernel(RBFKernel()), ScaleKernel(MaternKernel()), ArcCosine()])
def test_the_variances_are_the_diagonal(kernel: gpytorch.kernels.Kernel) -> None:
    kernel, z = kernel.double(), torch.randn(5, 2, dtype=torch.float64)
    weights, learnt = torch.randn(5, dtype=torch.float64), list(kernel.parameters())
    results = []
    for diagonal in (variances(kernel, z), kernel(z, z).to_dense().diagonal()):
        gradient = torch.autograd.grad((weights * diagonal).sum(), learnt, allow_unused=True, materialize_grads=True)
        results.append((diagonal, *gradient))
    torch.testing.assert_close(results[0], results[1], rtol=1e-9, atol=1e-12)


def test_the_gradient_of_the_fast_matrix() -> None:
    a, b, scale = (torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((4, 3), (5, 3), ()))
    assert torch.autograd.gradcheck(ScaledRBF.apply, (a, b, scale))


def test_other_kernels_are_left_to_gpytorch() -> None:
    z = torch.randn(5, 2)
    kernels = [RBFKernel(), ScaleKernel(RBFKernel(active_dims=(0,))), ScaleKernel(MaternKernel())]
    for kernel in [*kernels, ScaleKernel(RBFKernel(), batch_shape=torch.Size([2]))]:
        assert not is_scaled_rbf(kernel)
        torch.testing.assert_close(covariance(kernel, z, z), kernel(z, z).to_dense(), rtol=0, atol=0)
    stack, rbf = torch.randn(3, 5, 2), ScaleKernel(RBFKernel())
    torch.testing.assert_close(covariance(rbf, stack, stack)[1], covariance(rbf, stack[1], stack[1]))


def test_the_object_kernel_is_its_formula() -> None:
    torch.manual_seed(0)
    kernel = ObjectAngleKernel()
    assert kernel.lengthscale.item() == pytest.approx(1)
    kernel.lengthscale = 0.7
    a, b = 3 * torch.randn(4, 9).double(), 3 * torch.randn(5, 9).double()
    k = kernel(a, b).to_dense()
    for i in range(4):
        for j in range(5):
            periodic = torch.exp(-2 * torch.sin((a[i, 8] - b[j, 8]).abs() / 2) ** 2 / kernel.lengthscale.squeeze() ** 2)
            torch.testing.assert_close(k[i, j], periodic * (a[i, :8] @ b[j, :8]))
    torch.testing.assert_close(kernel(a, diag=True), kernel(a).to_dense().diagonal())
    turned = b + torch.tensor([0.0] * 8 + [2 * torch.pi], dtype=torch.float64)
    torch.testing.assert_close(kernel(a, turned).to_dense(), k)


SETS = torch.Size([3])  # of inducing inputs


def stack(base: type[gpytorch.kernels.Kernel], each: torch.Size, ard: int | None) -> ScaleKernel:
    """A kernel per set, or one for all, with parameters that all differ."""
    kernel = ScaleKernel(base(ard_num_dims=ard, batch_shape=each), batch_shape=each).double()
    for i, parameter in enumerate(kernel.parameters()):
        parameter.data += 0.3 * (i + torch.arange(parameter.numel()).reshape(parameter.shape))
    return kernel


@pytest.mark.parametrize("ard", [None, 2])
@pytest.mark.parametrize("each", [SETS, torch.Size([])], ids=["a kernel per set", "one kernel"])
@pytest.mark.parametrize("base", [RBFKernel, MaternKernel, ArcCosine])
def test_stacks_of_kernels_are_gpytorchs(
    base: type[gpytorch.kernels.Kernel], each: torch.Size, ard: int | None
) -> None:
    """Values and gradients, of the sets with themselves and with data, and the variances of the data."""
    kernel, x = stack(base, each, ard), points(7)
    assert is_stack_of_rbfs(kernel) == (base is RBFKernel)
    z = points(12)[:, :2].reshape(3, 4, 2).requires_grad_()
    theirs = [kernel(z, z).to_dense(), kernel(z, x).to_dense(), kernel(x, diag=True).view(-1, 7)]
    ours = [prior_stack(kernel, z), cross_stack(kernel, z, x), variance_stack(kernel, x)]
    for mine, other in zip(ours, theirs, strict=True):
        weights = torch.randn(mine.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        learnt = [z, *kernel.parameters()]
        slopes = [
            torch.autograd.grad((weights * k).sum(), learnt, allow_unused=True, materialize_grads=True)
            for k in (mine, other)
        ]
        torch.testing.assert_close((mine, *slopes[0]), (other, *slopes[1]), rtol=1e-9, atol=1e-12)


def test_the_gradients_of_the_stacks() -> None:
    torch.manual_seed(0)
    z = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True)
    precision, scale = (torch.rand(2, 1, d, dtype=torch.float64, requires_grad=True) for d in (3, 1))
    assert torch.autograd.gradcheck(PriorRBF.apply, (z, precision, scale))
    assert torch.autograd.gradcheck(CrossRBF.apply, (points(5, 3), z, precision, scale))


def test_a_prior_of_float32_points_is_a_covariance_in_float64() -> None:
    """Of the points as they are rounded: a matrix of float32 would have eigenvalues below -1e-7."""
    kernel, z = ScaleKernel(RBFKernel()), points(200, dtype=torch.float32).unsqueeze(0)
    k = prior_stack(kernel, z)
    assert k.dtype == torch.float64 and torch.linalg.eigvalsh(k).min() > -1e-12
    (gradient,) = torch.autograd.grad(prior_stack(kernel, z.requires_grad_()).sum(), z)
    assert gradient.dtype == torch.float32
