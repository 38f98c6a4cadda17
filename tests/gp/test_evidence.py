"""The exact log marginal likelihood with its written-out gradient."""

import gpytorch
import torch

from src.gp.active_set import log_marginal
from src.gp.evidence import log_density
from src.gp.kernels import covariance
from src.gp.linalg import add_diagonal


def example() -> tuple[torch.Tensor, torch.Tensor, gpytorch.kernels.Kernel, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(9, size, dtype=torch.float64, generator=generator) for size in (4, 2))
    return x, z.requires_grad_(), gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()).double(), torch.tensor(0.1)


def test_value_and_gradients_are_those_through_the_cholesky_factor() -> None:
    x, z, kernel, noise = example()
    expected = log_marginal(x, z, kernel, noise)
    found, jitter = log_density(x, add_diagonal(covariance(kernel, z, z), noise))
    inputs = [z, *kernel.parameters()]
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(torch.autograd.grad(found, inputs), torch.autograd.grad(expected, inputs))
    assert jitter == 0


def test_gradient_by_differences() -> None:
    x, z, kernel, noise = example()

    def evidence(z: torch.Tensor) -> torch.Tensor:
        return log_density(x, add_diagonal(covariance(kernel, z, z), noise))[0]

    assert torch.autograd.gradcheck(evidence, (z,))


def test_one_factorisation(cholesky_sizes: list[int]) -> None:
    x, z, kernel, noise = example()
    log_density(x, add_diagonal(covariance(kernel, z, z), noise))[0].backward()
    assert cholesky_sizes == [9]
