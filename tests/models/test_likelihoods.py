"""Likelihoods: their expectations against integrals, and values that were not observed."""

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from scipy.integrate import quad
from scipy.special import expit, log_expit
from scipy.stats import norm
from torch import Tensor

from src.data.facts import Facts
from src.models.likelihoods import (
    Bernoulli,
    Categorical,
    Gaussian,
    Likelihood,
    RegressionNetwork,
    likelihood_of,
    masked_log_prob,
)
from src.runs.errors import UserError

MEANS, VARIANCES = torch.tensor([-2.0, 0.3, 4.0]).double(), torch.tensor([0.2, 1.5, 6.0]).double()
LIKELIHOODS = {"gaussian": Gaussian(0.3), "fixed": Gaussian(0.3, learned=False), "bernoulli": Bernoulli()}
BITS = torch.tensor([1.0, 0.0, 1.0]).double()


def integral(function: Callable[[float], float], mean: float, variance: float) -> float:
    """E[function(f)] under N(mean, variance)."""
    sd = math.sqrt(variance)
    return float(quad(lambda f: function(f) * norm.pdf(f, mean, sd), mean - 12 * sd, mean + 12 * sd, epsabs=1e-12)[0])


def log_density(name: str, x: float, f: float) -> float:
    """log p(x | f) by scipy."""
    if name == "bernoulli":
        return float(log_expit(f) if x == 1 else log_expit(-f))
    return float(norm.logpdf(x, f, math.sqrt(0.3)))


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_density_of_a_value_is_that_of_scipy(name: str) -> None:
    likelihood = LIKELIHOODS[name].double()
    expected = [log_density(name, x, f) for x, f in zip(BITS.tolist(), MEANS.tolist(), strict=True)]
    np.testing.assert_allclose(likelihood.log_prob(BITS, MEANS).detach(), expected, rtol=1e-6)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_expected_density_is_an_integral(name: str) -> None:
    likelihood = LIKELIHOODS[name].double()
    values = zip(BITS.tolist(), MEANS.tolist(), VARIANCES.tolist(), strict=True)
    expected = [integral(lambda f, x=x: log_density(name, x, f), m, v) for x, m, v in values]  # type: ignore[misc]
    answer = likelihood.expected_log_prob(BITS, MEANS, VARIANCES).detach()
    np.testing.assert_allclose(answer, expected, rtol=1e-6)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_the_predictive_density_is_an_integral(name: str) -> None:
    likelihood = LIKELIHOODS[name].double()
    values = zip(BITS.tolist(), MEANS.tolist(), VARIANCES.tolist(), strict=True)
    expected = [math.log(integral(lambda f, x=x: math.exp(log_density(name, x, f)), m, v)) for x, m, v in values]  # type: ignore[misc]
    answer = likelihood.predictive(MEANS, VARIANCES).log_prob(BITS).detach()
    np.testing.assert_allclose(answer, expected, rtol=1e-5)


def test_gaussian_moments_are_variances_not_sds() -> None:
    likelihood = Gaussian(0.3).double()
    torch.testing.assert_close(likelihood.given(MEANS).variance, torch.full((3,), 0.3).double(), rtol=1e-6, atol=0)
    torch.testing.assert_close(likelihood.predictive(MEANS, VARIANCES).variance, VARIANCES + 0.3, rtol=1e-6, atol=0)
    torch.testing.assert_close(likelihood.predictive(MEANS, VARIANCES).mean, MEANS)


def test_a_bits_mean_is_its_probability() -> None:
    torch.testing.assert_close(Bernoulli().given(MEANS).mean, torch.from_numpy(expit(MEANS.numpy())))
    expected = [integral(expit, m, v) for m, v in zip(MEANS.tolist(), VARIANCES.tolist(), strict=True)]
    np.testing.assert_allclose(Bernoulli().predictive(MEANS, VARIANCES).mean, expected, rtol=1e-6)


def logits() -> tuple[Tensor, Tensor, Tensor]:
    """Means and variances [2, 3] of the logits of two points, and their classes."""
    mean = torch.tensor([[0.5, -1.0, 2.0], [0.0, 3.0, -0.5]]).double()
    return mean, torch.tensor([[0.3, 1.0, 0.1], [2.0, 0.2, 0.5]]).double(), torch.tensor([2, 0])


def test_a_class_has_the_probability_of_its_softmax() -> None:
    mean, _, classes = logits()
    weights = np.exp(mean.numpy())
    expected = np.log(weights[[0, 1], classes] / weights.sum(1))
    np.testing.assert_allclose(Categorical().log_prob(classes, mean), expected, rtol=1e-12)


def test_expectations_of_classes_are_those_of_many_samples() -> None:
    """The 256 samples of an expectation scatter: their mean over many calls is compared."""
    mean, variance, classes = logits()
    rng = np.random.default_rng(0)
    f = mean.numpy() + np.sqrt(variance.numpy()) * rng.standard_normal((400_000, 2, 3))
    log_softmax = f - np.log(np.exp(f).sum(-1, keepdims=True))
    torch.manual_seed(0)
    predicted = Categorical().predictive(mean, variance).probs
    np.testing.assert_allclose(predicted, np.exp(log_softmax).mean(0), atol=2e-3)
    expected = torch.stack([Categorical().expected_log_prob(classes, mean, variance) for _ in range(300)]).mean(0)
    np.testing.assert_allclose(expected, log_softmax.mean(0)[[0, 1], classes], atol=1.5e-2)


def test_expectations_of_classes_have_gradients_in_mean_and_variance() -> None:
    mean, variance, classes = logits()
    mean.requires_grad_()
    variance.requires_grad_()
    torch.manual_seed(0)
    Categorical().expected_log_prob(classes, mean, variance).sum().backward()
    assert mean.grad is not None and mean.grad.all() and variance.grad is not None and variance.grad.all()


def test_predicted_probabilities_are_a_function_of_mean_and_variance() -> None:
    """No random numbers are drawn, and a point is predicted alone as it is among others."""
    mean, variance, _ = logits()
    state = torch.get_rng_state()
    together = Categorical().predictive(mean, variance).probs
    assert torch.equal(torch.get_rng_state(), state)
    torch.testing.assert_close(Categorical().predictive(mean[1:], variance[1:]).probs, together[1:])
    stacked = Categorical().predictive(mean.expand(4, 2, 3), variance.expand(4, 2, 3)).probs
    torch.testing.assert_close(stacked, together.expand(4, 2, 3))


def test_two_classes_are_bits_with_the_difference_of_their_logits() -> None:
    mean, variance, _ = (part[:, :2] if part.ndim > 1 else part for part in logits())
    difference, spread, second = mean[:, 1] - mean[:, 0], variance.sum(1), torch.ones(2).double()
    torch.testing.assert_close(Categorical().log_prob(second.long(), mean), Bernoulli().log_prob(second, difference))
    probability = Categorical().predictive(mean, variance).probs[:, 1]
    torch.testing.assert_close(probability, Bernoulli().predictive(difference, spread).probs, rtol=0, atol=2e-3)
    categorical = Categorical()
    categorical.samples = 100_000
    torch.manual_seed(0)
    expected = Bernoulli().expected_log_prob(second, difference, spread)
    torch.testing.assert_close(categorical.expected_log_prob(second, mean, variance), expected, rtol=0, atol=0.02)


def test_outputs_may_have_noises_of_their_own() -> None:
    likelihood = Gaussian(0.3, outputs=2).double()
    assert likelihood.learned is not None
    likelihood.learned.noise = torch.tensor([[0.3], [0.7]])
    f, x = torch.randn(5, 2).double(), torch.randn(5, 2).double()
    expected = np.stack([norm.logpdf(x[:, p], f[:, p], math.sqrt(s2)) for p, s2 in enumerate((0.3, 0.7))], 1)
    np.testing.assert_allclose(likelihood.log_prob(x, f).detach(), expected, rtol=1e-5)
    torch.testing.assert_close(
        likelihood.predictive(f, f**2).variance, f**2 + torch.tensor([0.3, 0.7]), rtol=1e-5, atol=0
    )


def network() -> tuple[RegressionNetwork, Tensor, Tensor, Tensor]:
    """A network of two outputs, with means and variances of its two weights and its node at four points, and y."""
    torch.manual_seed(0)
    likelihood = RegressionNetwork(0.2, outputs=2).double()
    return likelihood, torch.randn(4, 3).double(), 0.2 + torch.rand(4, 3).double(), torch.randn(4, 2).double()


def test_the_network_multiplies_its_weights_with_its_node() -> None:
    likelihood, f, _, y = network()
    expected = norm.logpdf(y, f[:, :2] * f[:, 2:], math.sqrt(0.2))
    np.testing.assert_allclose(likelihood.log_prob(y, f).detach(), expected, rtol=1e-5)
    assert (
        likelihood.num_functions(7) == 8 and Bernoulli().num_functions(2) == 1 and Categorical().num_functions(4) == 4
    )


def test_expectations_of_the_network_are_those_of_many_samples() -> None:
    """The expected density is exact; the predictive one, of each output, by quadrature over the node."""
    likelihood, mean, variance, y = network()
    f = mean + variance.sqrt() * torch.randn(300_000, 4, 3).double()
    log_density = likelihood.log_prob(y, f).detach()
    expected = likelihood.expected_log_prob(y, mean, variance).detach()
    error = 5 * log_density.std(0) / math.sqrt(len(f))
    assert ((log_density.mean(0) - expected).abs() < error).all()
    predictive = likelihood.predictive(mean, variance).log_prob(y).detach().exp()
    error = 5 * log_density.exp().std(0) / math.sqrt(len(f))
    assert ((log_density.exp().mean(0) - predictive).abs() < error).all()


def test_the_network_is_for_predictors() -> None:
    with pytest.raises(UserError, match=r"gprn is for the targets of model=autogp; use model\.likelihood=gaussian"):
        likelihood_of("gprn", 0.1).check(Facts((4,), 10, 5))


MASK = torch.tensor([True, False, True])


def of_function(likelihood: Likelihood, x: Tensor, f: Tensor, mask: Tensor | None) -> Tensor:
    return likelihood.log_prob(x, f, mask)


def of_moments(likelihood: Likelihood, x: Tensor, f: Tensor, mask: Tensor | None) -> Tensor:
    return likelihood.expected_log_prob(x, f, VARIANCES[: len(x)] if mask is not None else VARIANCES[MASK], mask)


@pytest.mark.parametrize("density", [of_function, of_moments])
@pytest.mark.parametrize("hidden", [math.nan, math.inf, 7.0])
@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_hidden_value_adds_nothing_and_has_no_gradient(
    name: str, hidden: float, density: Callable[[Likelihood, Tensor, Tensor, Tensor | None], Tensor]
) -> None:
    """Whatever stands behind the mask: the sum is that of the data without the value, and so is every gradient."""
    likelihood, x = LIKELIHOODS[name].double(), BITS.clone()
    x[1] = hidden
    f = MEANS.clone().requires_grad_()
    answer = density(likelihood, x, f, MASK)
    assert answer[1].item() == 0
    parameters = [f, *likelihood.parameters()]
    gradients = torch.autograd.grad(answer.sum(), parameters)
    assert gradients[0][1].item() == 0 and all(g.isfinite().all() for g in gradients)
    removed = MEANS[MASK].clone().requires_grad_()
    expected = density(likelihood, BITS[MASK], removed, None)
    torch.testing.assert_close(answer.sum(), expected.sum())
    wanted = torch.autograd.grad(expected.sum(), [removed, *likelihood.parameters()])
    torch.testing.assert_close(gradients[0][MASK], wanted[0])
    torch.testing.assert_close(gradients[1:], wanted[1:])


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_a_hidden_value_adds_nothing_even_where_the_function_is_infinite(name: str) -> None:
    f = torch.tensor([-2.0, math.inf, 4.0]).double()
    answer = LIKELIHOODS[name].double().log_prob(BITS, f, MASK)
    torch.testing.assert_close(answer.sum(), LIKELIHOODS[name].log_prob(BITS[MASK], f[MASK]).sum())


def test_a_hidden_class_adds_nothing() -> None:
    mean, variance, classes = logits()
    mean.requires_grad_()
    mask = torch.tensor([False, True])
    hidden = torch.tensor([-1, 0])  # no class at all
    for answer in (
        Categorical().log_prob(hidden, mean, mask),
        Categorical().expected_log_prob(hidden, mean, variance, mask),
    ):
        (gradient,) = torch.autograd.grad(answer.sum(), mean)
        assert answer[0].item() == 0 and (gradient[0] == 0).all() and gradient[1].all()
    torch.testing.assert_close(Categorical().log_prob(hidden, mean, mask)[1], Categorical().log_prob(classes, mean)[1])


def test_a_mask_that_hides_nothing_changes_nothing() -> None:
    p = Gaussian(0.3).double().given(MEANS)
    assert torch.equal(masked_log_prob(p, BITS, torch.ones(3, dtype=torch.bool)), masked_log_prob(p, BITS, None))


def test_a_fixed_noise_has_no_parameter_and_a_learned_one_has_one() -> None:
    fixed, learned = Gaussian(0.02, learned=False), Gaussian(0.02)
    assert fixed.noise == 0.02 and list(fixed.parameters()) == [] and fixed.state_dict() == {}
    assert learned.noise.item() == pytest.approx(0.02) and len(list(learned.parameters())) == 1
    assert fixed.given(torch.zeros(2)).stddev.tolist() == pytest.approx([0.02**0.5] * 2)
    learned.log_prob(torch.ones(2), torch.zeros(2)).sum().backward()
    assert all(p.grad is not None and p.grad.any() for p in learned.parameters())


def test_grey_values_are_no_bits() -> None:
    grey, bits = (Facts((4,), 10, 5, binary=binary) for binary in (False, True))
    with pytest.raises(UserError, match=r"model\.likelihood=bernoulli needs binary values"):
        Bernoulli().check(grey)
    Bernoulli().check(bits)
    Gaussian().check(grey)


def test_likelihoods_have_names_and_metrics_that_do_not_mix() -> None:
    gaussian = likelihood_of("gaussian", 0.2)
    assert isinstance(gaussian, Gaussian) and gaussian.noise.item() == pytest.approx(0.2)
    assert isinstance(likelihood_of("bernoulli", 0.2), Bernoulli)
    assert isinstance(likelihood_of("categorical", 0.2), Categorical)
    assert Gaussian.score == "nlpd" and Bernoulli.score == Categorical.score == "nlp"
    with pytest.raises(UserError, match=r"model\.likelihood=poisson is none of gaussian, bernoulli, categorical"):
        likelihood_of("poisson", 0.2)
