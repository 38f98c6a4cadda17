"""GPs of low rank against dense matrices: densities, gradients, batches and predictions."""

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal

from src.gp.low_rank import Moments, expand, expected_log_prior, moments, weights_given

N, H, P = 60, 7, 3


@pytest.fixture
def values() -> list[Tensor]:
    """Means, variances, rows V and the noise."""
    generator = torch.Generator().manual_seed(0)
    mean, v = (torch.randn(N, columns, generator=generator).double() for columns in (P, H))
    return [mean, 0.1 + torch.rand(N, P, generator=generator).double(), v, torch.tensor([0.3]).double()]


def dense(v: Tensor, noise: Tensor) -> Tensor:
    return v @ v.mT + noise * torch.eye(len(v)).double()


def expected_densely(mean: Tensor, variance: Tensor, v: Tensor, noise: Tensor) -> Tensor:
    """The density at the means by torch, less half the trace of S K^-1 for every function."""
    k = dense(v, noise)
    density = MultivariateNormal(torch.zeros(len(v)).double(), k).log_prob(mean.mT).sum()
    return density - 0.5 * (torch.linalg.inv(k).diagonal()[:, None] * variance).sum()


def gradients(function: object, values: list[Tensor]) -> tuple[Tensor, ...]:
    leaves = [value.clone().requires_grad_() for value in values]
    return torch.autograd.grad(function(*leaves), leaves)  # type: ignore[operator]


def test_woodbury_and_the_determinant_lemma_are_the_dense_density(values: list[Tensor]) -> None:
    result = expected_log_prior(*values)
    assert result.shape == ()
    torch.testing.assert_close(result, expected_densely(*values), rtol=1e-11, atol=0)


def test_it_is_the_mean_density_of_samples(values: list[Tensor]) -> None:
    mean, variance, v, noise = values
    z = mean + variance.sqrt() * torch.randn(20_000, N, P, generator=torch.Generator().manual_seed(1)).double()
    density = MultivariateNormal(torch.zeros(N).double(), dense(v, noise)).log_prob(z.mT).sum(1)
    error = 5 * density.std() / len(density) ** 0.5
    assert abs(density.mean() - expected_log_prior(*values)) < error


def test_the_gradient_is_that_of_dense_matrices(values: list[Tensor]) -> None:
    torch.testing.assert_close(gradients(expected_log_prior, values), gradients(expected_densely, values))


def test_the_expansion_and_its_gradient_are_exact_where_it_was_made(values: list[Tensor]) -> None:
    taylor, rows = expand(*values), torch.arange(N)
    torch.testing.assert_close(taylor.at(rows, *values), expected_densely(*values))
    result = gradients(lambda *now: taylor.at(rows, *now), values)
    torch.testing.assert_close(result, gradients(expected_densely, values))
    assert not any(coefficient.requires_grad for coefficient in taylor)


def test_the_expansion_is_of_first_order(values: list[Tensor]) -> None:
    """Its error falls by four when the distance is halved."""
    generator = torch.Generator().manual_seed(2)
    step = [1e-3 * torch.rand(value.shape, generator=generator).double() for value in values]
    taylor, rows = expand(*values), torch.arange(N)

    def error(part: float) -> float:
        near = [value + part * change for value, change in zip(values, step, strict=True)]
        return float(taylor.at(rows, *near) - expected_log_prior(*near))

    assert error(1.0) / error(0.5) == pytest.approx(4, rel=0.01)


def test_batches_add_up_to_all_points_with_the_noise_counted_once(values: list[Tensor]) -> None:
    taylor, (mean, variance, v, noise) = expand(*values), values
    order = torch.randperm(N, generator=torch.Generator().manual_seed(3))
    parts = [taylor.at(rows, mean[rows], variance[rows], v[rows], noise) for rows in order.split(16)]
    torch.testing.assert_close(torch.stack(parts).sum(), taylor.at(torch.arange(N), *values))


def test_weights_predict_as_gp_regression_of_uncertain_values(values: list[Tensor]) -> None:
    """E_q[p(f* | z)]: the variance of GP regression, and what the variances of z add."""
    mean, variance, v, noise = values
    new = torch.randn(4, H, generator=torch.Generator().manual_seed(4)).double()
    unexplained = torch.tensor([0.0, 0.1, 0.2, 0.3]).double()
    gain = torch.linalg.solve(dense(v, noise), v @ new.mT).mT  # [4, N]
    regression = new.square().sum(1) - (gain * (new @ v.mT)).sum(1) + unexplained
    result = weights_given(moments(mean, variance, v), noise).marginals(new, unexplained)
    expected = regression[:, None] + gain.square() @ variance
    torch.testing.assert_close(result, (gain @ mean, expected))


def test_moments_of_chunks_add_up(values: list[Tensor]) -> None:
    chunks = [moments(*parts) for parts in zip(*(value.split(25) for value in values[:3]), strict=True)]
    total = Moments(*(torch.stack(parts).sum(0) for parts in zip(*chunks, strict=True)))
    torch.testing.assert_close(total, moments(*values[:3]))


def test_without_data_the_weights_have_their_prior() -> None:
    q = weights_given(moments(torch.zeros(0, P), torch.zeros(0, P), torch.zeros(0, H)), torch.tensor([0.3]))
    assert (q.mean == 0).all()
    torch.testing.assert_close(q.scale, torch.eye(H).double().expand(P, H, H))


def test_results_have_the_precision_of_the_means(values: list[Tensor]) -> None:
    single = [value.float() for value in values]
    result = expected_log_prior(*single)
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), expected_log_prior(*values), rtol=1e-5, atol=0)
