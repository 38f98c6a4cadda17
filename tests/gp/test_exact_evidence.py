"""The blocked evidence against the direct computation, whatever the blocks."""

import subprocess
import sys

import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from torch.distributions import MultivariateNormal

from src.gp.exact_evidence import BLOCK, amount, log_evidence, memory
from src.gp.linalg import NotPositiveDefiniteError

KERNEL = ScaleKernel(RBFKernel()).double()


def points(num_data: int = 50, outputs: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(num_data, size, generator=generator, dtype=torch.float64) for size in (outputs, 2))
    return x, z


def direct(x: torch.Tensor, z: torch.Tensor, kernel: torch.nn.Module, noise: torch.Tensor) -> float:
    k = kernel(z).to_dense() + noise * torch.eye(len(z), dtype=z.dtype)
    return MultivariateNormal(torch.zeros_like(z[:, 0]), k).log_prob(x.mT).sum().item()


@pytest.mark.parametrize("block", [1, 7, 25, 49, 50, 64])
@pytest.mark.parametrize("kernel", [KERNEL, ScaleKernel(MaternKernel(nu=2.5)).double()])
def test_it_is_the_multivariate_normal_density(block: int, kernel: torch.nn.Module) -> None:
    (x, z), noise = points(), torch.tensor([0.1], dtype=torch.float64)
    assert log_evidence(x.clone(), z, kernel, noise, block) == pytest.approx(direct(x, z, kernel, noise), rel=1e-12)


def test_it_is_so_across_blocks_of_the_usual_size_and_in_float32() -> None:
    (x, z), noise = points(BLOCK + 300), torch.tensor([0.1], dtype=torch.float64)
    expected = direct(x, z, KERNEL, noise)
    assert log_evidence(x.clone(), z, KERNEL, noise) == pytest.approx(expected, rel=1e-11)
    single = log_evidence(x.float(), z.float(), ScaleKernel(RBFKernel()), noise.float())
    assert single == pytest.approx(expected, rel=1e-4)


def test_no_jitter_hides_a_covariance_that_has_no_factor() -> None:
    x, z = points()
    with pytest.raises(NotPositiveDefiniteError, match="float64"):
        log_evidence(x, z, KERNEL, torch.tensor([-0.5], dtype=torch.float64), block=20)


@pytest.mark.parametrize(("num_data", "block"), [(50, 7), (50, 50), (1, 4), (64, 8)])
def test_the_bar_ends_where_the_work_does(num_data: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    done = []
    monkeypatch.setattr("src.gp.exact_evidence.tqdm.update", lambda self, n=1: done.append(n))
    log_evidence(*points(num_data), KERNEL, torch.tensor([0.1], dtype=torch.float64), block)
    assert sum(done) == amount(num_data, block)


def test_memory_is_as_announced() -> None:
    """In a process of its own, whose peak is compared with that before."""
    code = (
        "import resource, torch\n"
        "from gpytorch.kernels import RBFKernel\n"
        "from src.gp.exact_evidence import log_evidence, memory\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "x, z = torch.randn(5000, 8), torch.randn(5000, 2)\n"
        "log_evidence(x[:1100].clone(), z[:1100], RBFKernel(), torch.tensor([0.1]))\n"
        "before = peak()\n"
        "log_evidence(x, z, RBFKernel(), torch.tensor([0.1]))\n"
        "print(peak() - before, memory(5000, 8, torch.float32))"
    )
    result = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=True)
    kilobytes, announced = map(int, result.stdout.split())
    unit = 1 if sys.platform == "darwin" else 1024
    assert kilobytes * unit < announced < 5000**2 * 4 * 1.5
    assert memory(40_000, 784, torch.float64) < 8.5e9 < 16e9
