"""Leave-one-out densities of GP regression: the closed form of Rasmussen & Williams, and N regressions."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from src.gp.leave_one_out import leave_one_out

NOISE = 0.5


def regression() -> tuple[Tensor, Tensor, Tensor]:
    """Observations y [N] and their covariance without noise, and y's leave-one-out densities by N regressions."""
    generator = torch.Generator().manual_seed(0)
    x = 5 * torch.rand(8, dtype=torch.float64, generator=generator)
    k = torch.exp(-0.5 * (x[:, None] - x) ** 2)
    y = torch.randn(8, dtype=torch.float64, generator=generator)
    densities = []
    for n in range(8):
        rest = [i for i in range(8) if i != n]
        gain = torch.linalg.solve(k[rest][:, rest] + NOISE * torch.eye(7), k[rest, n])
        sd = (k[n, n] + NOISE - gain @ k[rest, n]).sqrt()
        densities.append(Normal(gain @ y[rest], sd).log_prob(y[n]))
    return y, k, torch.stack(densities)


def posterior(y: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances [N] of f given all observations."""
    gain = torch.linalg.solve(k + NOISE * torch.eye(len(y)), k).mT
    return gain @ y, (k - gain @ k).diagonal()


def test_the_closed_form_is_that_of_rasmussen_and_williams() -> None:
    """Eq. 5.12: mean y - (K^-1 y)_n / (K^-1)_nn, variance 1 / (K^-1)_nn, with the noise in K."""
    y, k, expected = regression()
    inverse = torch.linalg.inv(k + NOISE * torch.eye(len(y)))
    variance = 1 / inverse.diagonal()
    torch.testing.assert_close(Normal(y - (inverse @ y) * variance, variance.sqrt()).log_prob(y), expected)


def test_equation_19_with_the_exact_posterior_is_exact() -> None:
    """The integral by 60 nodes, weighted as components are: to 1e-6."""
    y, k, expected = regression()
    mean, variance = posterior(y, k)
    nodes, weights = (torch.from_numpy(part) for part in np.polynomial.hermite_e.hermegauss(60))
    f = mean + variance.sqrt() * nodes[:, None]  # [60, N]
    answer = leave_one_out(Normal(f, math.sqrt(NOISE)).log_prob(y)[None], (weights / weights.sum()).log())
    torch.testing.assert_close(answer.log_density, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("components", [1, 2])
def test_equation_19_by_samples(components: int) -> None:
    """40,000 samples of each component; here all components are the posterior."""
    y, k, expected = regression()
    mean, variance = posterior(y, k)
    torch.manual_seed(0)
    f = mean + variance.sqrt() * torch.randn(40_000, components, len(y), dtype=torch.float64)
    log_weights = torch.tensor([0.3, 0.7][:components], dtype=torch.float64).log().log_softmax(0)
    answer = leave_one_out(Normal(f, math.sqrt(NOISE)).log_prob(y), log_weights)
    torch.testing.assert_close(answer.log_density, expected, rtol=0, atol=0.05)


def test_the_sample_size_counts_equal_weights() -> None:
    """Two of four samples with all the weight count as two; the densities are harmonic means."""
    log_likelihood = torch.tensor([[-3.0], [-3.0], [50.0], [50.0]], dtype=torch.float64)[:, None]
    answer = leave_one_out(log_likelihood, torch.zeros(1, dtype=torch.float64))
    torch.testing.assert_close(answer.sample_size, torch.tensor([2.0], dtype=torch.float64))
    torch.testing.assert_close(answer.log_density, torch.tensor([-3 + math.log(2)], dtype=torch.float64))


def test_a_likelihood_of_nearly_nothing_is_no_overflow() -> None:
    answer = leave_one_out(torch.tensor([[[-2000.0]], [[-1.0]]]), torch.zeros(1))
    torch.testing.assert_close(answer.log_density, torch.tensor([-2000 + math.log(2)]))
