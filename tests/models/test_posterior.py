"""q(z): what its numbers mean, its divergence, and fitting it to unseen points."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, kl_divergence
from torch.nn.functional import softplus

from src.models.posterior import (
    Amortised,
    Free,
    Gain,
    GaussianNet,
    Kind,
    Point,
    around,
    build,
    divergence,
    fit,
    gaussian,
    inverse_positive,
    kl_to_prior,
    numbers,
    positive,
    rows_of,
    spread_size,
    with_rows,
)

KINDS: tuple[Kind, ...] = ("point", "diagonal", "full")


def example(kind: Kind, latent_dim: int = 3) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = (latent_dim, spread_size(kind, latent_dim))
    return tuple(torch.randn(5, size, dtype=torch.float64, generator=generator) for size in sizes)  # type: ignore[return-value]


def test_softplus_of_the_spread_is_the_variance() -> None:
    """Not the standard deviation."""
    mean, spread = example("diagonal")
    torch.testing.assert_close(build("diagonal", mean, spread).variance, softplus(spread))


def test_the_full_covariance_is_any_positive_definite_matrix() -> None:
    mean, spread = example("full")
    q = build("full", mean, spread)
    assert isinstance(q, MultivariateNormal)
    factor = q.scale_tril
    assert (factor == factor.tril()).all() and (factor.diagonal(dim1=-2, dim2=-1) > 0).all()
    torch.testing.assert_close(factor.diagonal(dim1=-2, dim2=-1).square(), softplus(spread[:, :3]))
    torch.testing.assert_close(factor[:, [1, 2, 2], [0, 0, 1]], spread[:, 3:])


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_the_divergence_is_that_of_torch_and_of_the_formula(kind: Kind) -> None:
    mean, spread = example(kind)
    q = build(kind, mean, spread)
    covariance = q.variance.diag_embed() if kind == "diagonal" else q.covariance_matrix  # type: ignore[union-attr]
    prior = MultivariateNormal(torch.zeros(3).double(), torch.eye(3).double())
    torch.testing.assert_close(kl_to_prior(q), kl_divergence(MultivariateNormal(mean, covariance), prior))
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum(-1)
    torch.testing.assert_close(kl_to_prior(q), 0.5 * (trace + mean.square().sum(-1) - 3 - torch.logdet(covariance)))


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_a_net_that_asks_for_no_variance_at_all_does_not_stop_the_training(kind: Kind) -> None:
    """As happens in the first steps on CIFAR-10, in float32."""
    spread = torch.full((3, spread_size(kind, 2)), -190.0)
    spread[:, 2:] = 0
    spread.requires_grad_()
    q = build(kind, torch.zeros(3, 2), spread)
    (q.rsample().sum() + kl_to_prior(q).sum()).backward()
    assert kl_to_prior(q).isfinite().all() and spread.grad is not None and spread.grad.isfinite().all()


def test_a_point_has_no_divergence() -> None:
    with pytest.raises(TypeError, match="no density"):
        kl_to_prior(Point(torch.zeros(2, 2)))


@pytest.mark.parametrize("kind", KINDS)
def test_a_full_factor_without_correlation_is_the_diagonal(kind: Kind) -> None:
    mean, spread = example("diagonal")
    full = build("full", mean, torch.cat([spread, torch.zeros(5, 3).double()], 1))
    torch.testing.assert_close(full.variance, build("diagonal", mean, spread).variance)
    torch.testing.assert_close(kl_to_prior(full), kl_to_prior(build("diagonal", mean, spread)))


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_samples_have_the_moments(kind: Kind) -> None:
    mean, spread = example(kind)
    q = build(kind, mean[:1].expand(200_000, -1), spread[:1].expand(200_000, -1))
    torch.manual_seed(0)
    z = q.rsample()
    covariance = q.variance[0].diag() if kind == "diagonal" else q.covariance_matrix[0]  # type: ignore[union-attr]
    torch.testing.assert_close(z.mean(0), mean[0], atol=0.02, rtol=0)
    torch.testing.assert_close(z.T.cov(), covariance, atol=0.03, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_free_rows_start_where_told_and_gradients_are_sparse(kind: Kind) -> None:
    free = Free(kind, 2, 10)
    start = torch.randn(10, 2)
    free.start_at(start, variance=0.3)
    q = free(torch.empty(3, 1), torch.tensor([7, 2, 5]))
    torch.testing.assert_close(q.mean, start[[7, 2, 5]])
    if kind != "point":
        torch.testing.assert_close(q.variance, torch.full((3, 2), 0.3))
    q.mean.sum().backward()
    assert free.mean.weight.grad is not None and free.mean.weight.grad.is_sparse


def test_amortised_has_one_net_for_the_mean_and_one_for_the_spread() -> None:
    amortised = Amortised("full", 3, lambda outputs: torch.nn.Linear(4, outputs))
    q = amortised(torch.randn(5, 4))
    assert q.mean.shape == (5, 3) and q.covariance_matrix.shape == (5, 3, 3)
    assert Amortised("point", 3, lambda outputs: torch.nn.Linear(4, outputs)).spread is None


def gain_of(log_likelihood: Callable[[Tensor], Tensor]) -> Gain:
    """E_q[log p(x | z)] - KL, from a log likelihood [B] of z [B, Q]."""
    return lambda q: log_likelihood(q.rsample()) - divergence(q)


def test_fit_finds_the_exact_posterior_of_a_linear_model() -> None:
    """x = w z + noise with z ~ N(0, 1): the posterior is known."""
    w, noise = 2.0, 0.5
    x = torch.tensor([[1.0], [-2.0], [0.3]], dtype=torch.float64)
    torch.manual_seed(0)
    gain = gain_of(lambda z: -0.5 * ((x - w * z) ** 2).squeeze(1) / noise)
    q = fit(around("diagonal", torch.zeros_like(x)), gain, steps=800, lr=0.03)
    variance = 1 / (1 + w**2 / noise)
    torch.testing.assert_close(q.mean, variance * w * x / noise, atol=0.02, rtol=0)
    torch.testing.assert_close(q.variance, torch.full_like(x, variance), atol=0.02, rtol=0)


def test_fit_never_ends_below_its_start() -> None:
    start = torch.tensor([[0.0], [3.0]])

    def bumpy(z: Tensor) -> Tensor:
        return (-(z**2) + 5 * torch.cos(50 * z)).squeeze(1)

    fitted = fit(Point(start), gain_of(bumpy), steps=3, lr=10.0).mean
    assert (bumpy(fitted) >= bumpy(start)).all()


def test_fit_keeps_the_start_of_single_rows_that_end_worse() -> None:
    """One row improves much, another worsens a little: each is judged by itself, whatever the sum says."""

    def hill_and_needle(z: Tensor) -> Tensor:
        hill, needle = -((z[:1] - 5) ** 2), torch.exp(-((100 * z[1:]) ** 2)) + 0.01 * z[1:]
        return torch.cat([hill, needle]).squeeze(1)

    start = torch.tensor([[0.0], [0.0]])  # the second row stands on the needle, and climbs away from it
    fitted = fit(Point(start), gain_of(hill_and_needle), steps=20, lr=0.2).mean
    assert fitted[0] > 1 and fitted[1] == 0


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_fit_without_data_is_the_prior(kind: Kind) -> None:
    start = torch.full((2, 2), 0.5, dtype=torch.float64)
    q = fit(around(kind, start), gain_of(lambda z: torch.zeros(2, dtype=z.dtype)), steps=300, lr=0.05)
    torch.testing.assert_close(q.mean, torch.zeros_like(start), atol=0.02, rtol=0)
    torch.testing.assert_close(q.variance, torch.ones_like(start), atol=0.03, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_fit_starts_where_it_is_told_to(kind: Kind) -> None:
    start = build(kind, *example(kind))
    q = fit(start, gain_of(lambda z: z.sum(1)), steps=0, lr=0.05)
    torch.testing.assert_close((q.mean, q.variance), (start.mean, start.variance))
    if kind == "full":
        assert isinstance(q, MultivariateNormal) and isinstance(start, MultivariateNormal)
        torch.testing.assert_close(q.covariance_matrix, start.covariance_matrix)


def test_around_a_mean_there_is_little_variance_and_no_correlation() -> None:
    q = around("full", torch.ones(1, 2))
    assert isinstance(q, MultivariateNormal) and torch.equal(q.mean, torch.ones(1, 2))
    assert q.covariance_matrix[0, 0, 1] == 0 and 0 < q.variance.max() < 0.1


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_what_q_was_built_of(kind: Kind) -> None:
    mean, spread = example(kind)
    found, *numbers_found = numbers(build(kind, mean, spread))
    assert found == kind
    torch.testing.assert_close(numbers_found, [mean, spread])
    large = torch.tensor([[1e-30, 1e-3, 1.0, 500.0]])
    torch.testing.assert_close(positive(inverse_positive(large)), large)


@pytest.mark.parametrize("kind", KINDS)
def test_rows_of_q_can_be_taken_and_replaced(kind: Kind) -> None:
    mean, spread = example(kind)
    q, rows = build(kind, mean, spread), torch.tensor([3, 1])
    part = rows_of(q, rows)
    torch.testing.assert_close((part.mean, part.variance), (q.mean[rows], q.variance[rows]))
    other = build(kind, mean[:2] + 1, spread[:2] / 2)
    replaced = with_rows(q, rows, other)
    for found, before, new in ((replaced.mean, q.mean, other.mean), (replaced.variance, q.variance, other.variance)):
        torch.testing.assert_close(found[rows], new)
        torch.testing.assert_close(found[[0, 2, 4]], before[[0, 2, 4]])


def test_rows_are_fitted_independently() -> None:
    x = torch.tensor([[1.0], [-2.0], [0.3]])

    def fitted(targets: Tensor) -> Tensor:
        gain = gain_of(lambda z: -((targets - z) ** 2).squeeze(1))
        return fit(Point(torch.zeros_like(targets)), gain, steps=20, lr=0.05).mean

    torch.testing.assert_close(fitted(x)[1:2], fitted(x[1:2]))


def test_a_point_samples_itself_and_has_no_variance() -> None:
    point = Point(torch.randn(3, 2))
    assert torch.equal(point.rsample(), point.mean) and not point.variance.any()


def test_one_net_gives_mean_then_log_variance_within_limits() -> None:
    net = torch.nn.Linear(1, 4, bias=False)
    with torch.no_grad():
        net.weight.copy_(torch.tensor([[1.0], [2.0], [0.5], [-100.0]]))
    q = GaussianNet(net, (1e-3, 10))(torch.tensor([[1.0], [-1.0], [1e4]]))
    torch.testing.assert_close(q.mean[:2], torch.tensor([[1.0, 2.0], [-1.0, -2.0]]))
    expected = torch.tensor([[0.5, -100.0], [-0.5, 100.0], [1e4, -1e6]]).exp().clamp(1e-3, 10)
    torch.testing.assert_close(q.variance, expected)
    q.variance.sum().backward()
    assert net.weight.grad is not None and net.weight.grad.isfinite().all()


def test_a_gaussian_is_made_of_its_variance() -> None:
    q = gaussian(torch.zeros(2, 3), torch.full((2, 3), 4.0))
    torch.testing.assert_close(q.stddev, torch.full((2, 3), 2.0))
    assert q.batch_shape == (2,) and q.event_shape == (3,)


def test_amortised_rows_do_not_depend_on_their_index_nor_free_ones_on_their_image() -> None:
    amortised = Amortised("diagonal", 2, lambda outputs: torch.nn.Linear(4, outputs))
    x = torch.randn(3, 4)
    assert torch.equal(amortised(x, torch.arange(3)).mean, amortised(x, torch.arange(3) + 5).mean)
    free = Free("diagonal", 2, 10)
    assert torch.equal(free(x, torch.arange(3)).mean, free(x + 1, torch.arange(3)).mean)
