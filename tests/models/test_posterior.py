"""q(z): what its numbers mean, its divergence, and fitting it to unseen points."""

import pytest
import torch
from torch.distributions import MultivariateNormal, kl_divergence
from torch.nn.functional import softplus

from src.models.posterior import Amortised, Free, Kind, Point, build, fit, kl_to_prior, spread_size

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


def test_fit_finds_the_exact_posterior_of_a_linear_model() -> None:
    """x = w z + noise with z ~ N(0, 1): the posterior is known."""
    w, noise = 2.0, 0.5
    x = torch.tensor([[1.0], [-2.0], [0.3]], dtype=torch.float64)
    torch.manual_seed(0)
    q = fit(
        "diagonal", torch.zeros_like(x), lambda z: -0.5 * ((x - w * z) ** 2).squeeze(1) / noise, steps=3000, lr=0.01
    )
    variance = 1 / (1 + w**2 / noise)
    torch.testing.assert_close(q.mean, variance * w * x / noise, atol=0.02, rtol=0)
    torch.testing.assert_close(q.variance, torch.full_like(x, variance), atol=0.02, rtol=0)


def test_fit_never_ends_below_its_start() -> None:
    start = torch.tensor([[0.0], [3.0]])

    def bumpy(z: torch.Tensor) -> torch.Tensor:
        return (-(z**2) + 5 * torch.cos(50 * z)).squeeze(1)

    fitted = fit("point", start, bumpy, steps=3, lr=10.0).mean
    assert (bumpy(fitted) >= bumpy(start)).all()
