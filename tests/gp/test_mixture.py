"""The divergence of a mixture against torch's densities, and of one Gaussian against its exact value."""

import math

import torch
from torch import Tensor
from torch.distributions import Categorical, Independent, MixtureSameFamily, MultivariateNormal, Normal

from src.gp.mixture import divergence_bound, entropy_bound, expected_log_prior
from src.gp.sparse import Whitened

P, M = 2, 3


def mixture(components: int) -> tuple[Tensor, Tensor, Tensor]:
    """log weights [K], means [K, P, M] and lower triangular factors [K, P, M, M]."""
    generator = torch.Generator().manual_seed(0)
    mean = torch.randn(components, P, M, dtype=torch.float64, generator=generator)
    raw = 0.4 * torch.randn(components, P, M, M, dtype=torch.float64, generator=generator)
    scale = raw.tril(-1) + raw.diagonal(dim1=-2, dim2=-1).exp().diag_embed()
    return torch.randn(components, dtype=torch.float64, generator=generator).log_softmax(0), mean, scale


def test_one_component_has_the_exact_divergence_less_a_constant() -> None:
    """H[q] exceeds its bound by P M (1 - log 2) / 2, so that the divergence is that much too large."""
    log_weights, mean, scale = mixture(1)
    exact = Whitened(mean[0].mT, scale[0]).kl()
    excess = P * M * (1 - math.log(2)) / 2
    torch.testing.assert_close(divergence_bound(log_weights, mean, scale), exact + excess, rtol=1e-12, atol=1e-12)


def test_the_bound_of_the_entropy_is_its_formula() -> None:
    log_weights, mean, scale = mixture(3)
    total, weights = torch.zeros((), dtype=torch.float64), log_weights.exp()
    for k in range(3):
        overlaps = []
        for j in range(3):
            cov = scale[k] @ scale[k].mT + scale[j] @ scale[j].mT
            overlaps.append(weights[j] * MultivariateNormal(mean[j], cov).log_prob(mean[k]).sum().exp())
        total = total - weights[k] * torch.stack(overlaps).sum().log()
    torch.testing.assert_close(entropy_bound(log_weights, mean, scale), total, rtol=1e-12, atol=0)


def test_the_bound_is_above_the_divergence_of_the_mixture() -> None:
    """By 50,000 samples; far components have exactly the divergence of each, the constant, and log pi."""
    log_weights, mean, scale = mixture(3)
    each = Independent(MultivariateNormal(mean, scale_tril=scale), 1)
    q = MixtureSameFamily(Categorical(logits=log_weights), each)
    torch.manual_seed(0)
    v = q.sample((50_000,))
    prior = Normal(torch.zeros(P, M, dtype=torch.float64), 1.0).log_prob(v).sum((-2, -1))
    differences = q.log_prob(v) - prior
    error = 5 * differences.std() / math.sqrt(len(v))
    bound = divergence_bound(log_weights, mean, scale)
    assert differences.mean() - error < bound < differences.mean() + error + P * M * (1 - math.log(2)) / 2
    torch.testing.assert_close(expected_log_prior(log_weights, mean, scale), prior.mean(), rtol=0.02, atol=0)


def test_a_mixture_of_equal_components_is_one() -> None:
    _, mean, scale = mixture(1)
    log_weights = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64).log()
    repeated = divergence_bound(log_weights, mean.repeat(3, 1, 1), scale.repeat(3, 1, 1, 1))
    torch.testing.assert_close(repeated, divergence_bound(torch.zeros(1).double(), mean, scale))


def test_gradients() -> None:
    leaves = [leaf.requires_grad_() for leaf in mixture(2)]
    assert torch.autograd.gradcheck(divergence_bound, leaves)
