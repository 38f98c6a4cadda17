"""The errors of published code, planted one by one: each must break one of the identities."""

import types
from collections.abc import Callable
from inspect import getsource

import pytest
import torch
from torch.autograd.gradcheck import GradcheckError

from src.gp import active_set
from src.gp.evidence import gaussian_log_density
from tests.gp import test_active_set as identities

SOURCE = getsource(active_set) + getsource(gaussian_log_density)  # one module: the later definition counts
MUTATIONS = {
    "the square of the mean": (
        "torch.linalg.vector_norm(error, dim=1).square()",
        "(x_rest - (projection.mT @ whitened).square()).sum(-1)",
    ),
    "Q for D": ("num_outputs * log_det", "2 * log_det"),
    "R / N": ("(num_data - active_size) / (len(x) - active_size)", "(len(x) - active_size) / num_data"),
    "no log 2 pi in the active term": (" + num_points * num_outputs * LOG_2PI", ""),
    "no log 2 pi in the rest": ("(variance.log() + LOG_2PI)", "variance.log()"),
    "sd for variance in the density": (
        "LOG_2PI) + squared_error / variance",
        "LOG_2PI) + squared_error / variance.sqrt()",
    ),
    "sd for variance in the log": ("variance.log()", "variance.sqrt().log()"),
    "no noise in the variance of the rest": ("k_rr + noise - projection", "k_rr - projection"),
    "no noise in the predictive variance": (" + self.noise - projection", " - projection"),
    "half the log-determinant": ("2 * chol.diagonal()", "chol.diagonal()"),
    "N for N - A": ("(num_data - active_size)", "num_data"),
    "no weight in the random-size form": ("len(x) / rest_size * rest", "rest"),
}
GRADIENT_MUTATIONS = {
    "the mean's share of K_AA once": ("through_mean, alpha=2", "through_mean, alpha=1"),
    "the variance's share of K_AA twice": ("torch.add(through_variance,", "torch.add(2 * through_variance,"),
    "half of K_AR": (".mul_(-2)", ".mul_(-1)"),
    "another sign in K_AR": (".mul_(-2)", ".mul_(2)"),
    "no D in the derivative in v": ("squared_error / variance - ctx.num_outputs", "squared_error / variance"),
    "no D K^-1": ("add_diagonal(whitened_gram, -ctx.num_outputs)", "whitened_gram"),
    "no noise of the rest": ("by_k_aa.trace() + by_variance.sum()", "by_k_aa.trace()"),
}
CHECKS: list[Callable[..., None]] = [
    identities.test_the_marginal_likelihood_is_the_gaussian_density,
    identities.test_the_closed_form_of_one_active_and_one_other_point,
    identities.test_batches_weigh_the_rest_so_that_their_mean_is_the_full_objective,
    identities.test_the_random_size_form_has_the_exact_value_as_its_mean,
    identities.test_predictions_equal_gpytorchs_exact_gp,
]


def failing_checks(source: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> list[str]:
    """The names of the checks that fail when `src.gp.active_set` reads like this."""
    with monkeypatch.context() as patch:
        plant(source, patch)
        return [check.__name__ for check in CHECKS if fails(check, request)]


def plant(source: str, patch: pytest.MonkeyPatch) -> None:
    """Let the identities test this source in place of `src.gp.active_set`."""
    module = types.ModuleType("src.gp.active_set")
    patch.setitem(__import__("sys").modules, module.__name__, module)
    exec(compile(source, "mutated", "exec"), module.__dict__)
    for name in ("condition", "fixed_size", "log_marginal", "random_size"):
        patch.setattr(identities, name, getattr(module, name))


def fails(check: Callable[..., None], request: pytest.FixtureRequest) -> bool:
    arguments = {name: request.getfixturevalue(name) for name in ("data", "kernel") if name in check.__annotations__}
    try:
        check(**arguments)
    except AssertionError:
        return True
    return False


data, kernel = identities.data, identities.kernel


def test_the_checks_pass_as_it_stands(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    assert failing_checks(SOURCE, monkeypatch, request) == []


@pytest.mark.parametrize("name", MUTATIONS)
def test_a_mutation_is_found(name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    old, new = MUTATIONS[name]
    assert SOURCE.count(old) == 1
    with torch.no_grad():
        assert failing_checks(SOURCE.replace(old, new), monkeypatch, request)


@pytest.mark.parametrize("name", GRADIENT_MUTATIONS)
def test_a_mutation_of_the_gradient_is_found(
    name: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    old, new = GRADIENT_MUTATIONS[name]
    assert SOURCE.count(old) == 1
    plant(SOURCE.replace(old, new), monkeypatch)
    with pytest.raises(GradcheckError):
        identities.test_gradients(request.getfixturevalue("data"), request.getfixturevalue("kernel"))
