"""The marginal likelihood: the direct form, the blocked form whatever the blocks, and torch's density."""

import subprocess
import sys

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from torch import Tensor
from torch.distributions import MultivariateNormal

from src.gp.active_set import log_marginal
from src.gp.evidence import (
    COLUMNS,
    blocked_log_density,
    blocked_memory,
    blocked_work,
    gaussian_log_density,
    log_density,
)
from src.gp.kernels import covariance
from src.gp.linalg import NotPositiveDefiniteError, add_diagonal

KERNEL = ScaleKernel(RBFKernel()).double()
NOISE = torch.tensor([0.1], dtype=torch.float64)


def points(num_data: int = 50, num_outputs: int = 3) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(num_data, size, generator=generator, dtype=torch.float64) for size in (num_outputs, 2))
    return x, z


def by_torch(x: Tensor, z: Tensor, kernel: Kernel) -> float:
    k = kernel(z).to_dense() + NOISE * torch.eye(len(z), dtype=z.dtype)
    return MultivariateNormal(torch.zeros_like(z[:, 0]), k).log_prob(x.mT).sum().item()


def direct(x: Tensor, z: Tensor, kernel: Kernel) -> Tensor:
    value, jitter = log_density(x, add_diagonal(covariance(kernel, z, z), NOISE))
    assert jitter == 0
    return value


def test_the_density_from_a_determinant_and_squares() -> None:
    """Of two outputs at three points with variances 4, in scalars."""
    x = torch.tensor([[1.0, 2.0], [0.0, -1.0], [3.0, 0.5]], dtype=torch.float64)
    expected = torch.distributions.Normal(0, 2.0).log_prob(x).sum()
    log_det = 3 * torch.tensor(4.0, dtype=torch.float64).log()
    torch.testing.assert_close(gaussian_log_density(log_det, x.square().sum() / 4, 3, 2), expected)


def test_value_and_gradients_are_those_through_the_cholesky_factor() -> None:
    x, z = points(9, 4)
    z.requires_grad_()
    found, expected = direct(x, z, KERNEL), log_marginal(x, z, KERNEL, NOISE)
    inputs = [z, *KERNEL.parameters()]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs))


def test_gradient_by_differences() -> None:
    x, z = points(9, 4)
    assert torch.autograd.gradcheck(lambda z: direct(x, z, KERNEL), (z.requires_grad_(),))


def test_one_factorisation(cholesky_sizes: list[int]) -> None:
    x, z = points(9, 4)
    direct(x, z.requires_grad_(), KERNEL).backward()
    assert cholesky_sizes == [9]


@pytest.mark.parametrize("columns", [1, 7, 25, 49, 50, 64])
@pytest.mark.parametrize("kernel", [KERNEL, ScaleKernel(MaternKernel(nu=2.5)).double()])
def test_both_forms_are_the_multivariate_normal_density(columns: int, kernel: Kernel) -> None:
    x, z = points()
    expected = by_torch(x, z, kernel)
    assert blocked_log_density(x.clone(), z, kernel, NOISE, columns) == pytest.approx(expected, rel=1e-12)
    assert direct(x, z, kernel).item() == pytest.approx(expected, rel=1e-12)


def test_they_are_so_across_blocks_of_the_usual_size_and_in_float32() -> None:
    x, z = points(COLUMNS + 300)
    expected = by_torch(x, z, KERNEL)
    assert direct(x, z, KERNEL).item() == pytest.approx(expected, rel=1e-11)
    assert blocked_log_density(x.clone(), z, KERNEL, NOISE) == pytest.approx(expected, rel=1e-11)
    single = blocked_log_density(x.float(), z.float(), ScaleKernel(RBFKernel()), NOISE.float())
    assert single == pytest.approx(expected, rel=1e-4)


def test_no_jitter_hides_a_covariance_that_has_no_factor() -> None:
    with pytest.raises(NotPositiveDefiniteError, match="float64"):
        blocked_log_density(*points(), KERNEL, -5 * NOISE, columns=20)


@pytest.mark.parametrize(("num_data", "columns"), [(50, 7), (50, 50), (1, 4), (64, 8)])
def test_the_bar_ends_where_the_work_does(num_data: int, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[int] = []
    monkeypatch.setattr("src.runs.bars.tqdm.update", lambda self, n=1: done.append(n))
    blocked_log_density(*points(num_data), KERNEL, NOISE, columns)
    assert sum(done) == blocked_work(num_data, columns)


def test_memory_is_as_announced() -> None:
    """In a process of its own, whose peak is compared with that before."""
    code = (
        "import resource, torch\n"
        "from gpytorch.kernels import RBFKernel\n"
        "from src.gp.evidence import blocked_log_density, blocked_memory\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "x, z = torch.randn(5000, 8), torch.randn(5000, 2)\n"
        "blocked_log_density(x[:1100].clone(), z[:1100], RBFKernel(), torch.tensor([0.1]))\n"
        "before = peak()\n"
        "blocked_log_density(x, z, RBFKernel(), torch.tensor([0.1]))\n"
        "print(peak() - before, blocked_memory(5000, 8, torch.float32))"
    )
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    kilobytes, announced = map(int, result.stdout.split())
    unit = 1 if sys.platform == "darwin" else 1024
    assert kilobytes * unit < announced < 5000**2 * 4 * 1.5
    assert blocked_memory(40_000, 784, torch.float64) < 8.5e9 < 16e9
