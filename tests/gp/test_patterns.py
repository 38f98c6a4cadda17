"""Missing values: everything equals the direct computation, output by output, from the points that each was seen at."""

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor
from torch.distributions import MultivariateNormal

from src.gp.active_set import ActiveSet, condition, fixed_size, log_densities, random_size
from src.gp.evidence import log_density
from src.gp.kernels import covariance
from src.gp.linalg import add_diagonal
from src.gp.patterns import (
    PatternedActiveSet,
    condition_by_pattern,
    log_densities_by_pattern,
    log_density_by_pattern,
    patterns_of,
)

B, A, D, Q = 11, 6, 5, 2
NOISE = torch.tensor([0.2], dtype=torch.float64)


@pytest.fixture
def kernel() -> ScaleKernel:
    kernel = ScaleKernel(RBFKernel()).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.3, 0.8
    return kernel


@pytest.fixture(params=["scattered", "whole columns", "complete active set", "whole points"])
def problem(request: pytest.FixtureRequest) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x, z = (torch.randn(B, size, dtype=torch.float64, generator=generator) for size in (D, Q))
    mask = torch.rand(B, D, generator=generator) > 0.4
    if request.param == "whole columns":
        mask = (torch.arange(D) != 2).expand(B, D).clone()
    elif request.param == "complete active set":
        mask[:A] = True
    elif request.param == "whole points":
        mask = (torch.arange(B) % 3 != 1).unsqueeze(1).expand(B, D).clone()
    return x, mask, z


def direct(x: Tensor, mask: Tensor, z: Tensor, kernel: ScaleKernel) -> tuple[Tensor, Tensor]:
    """The two densities by torch's own distributions, one output at a time."""
    k = add_diagonal(covariance(kernel, z, z), NOISE)
    active, rest = torch.zeros((), dtype=x.dtype), torch.zeros((), dtype=x.dtype)
    for d in range(D):
        rows = mask[:A, d].nonzero().squeeze(1)
        if len(rows):
            active = active + MultivariateNormal(x.new_zeros(len(rows)), k[rows][:, rows]).log_prob(x[rows, d])
        for n in (A + mask[A:, d].nonzero().squeeze(1)).tolist():
            weights = torch.linalg.solve(k[rows][:, rows], k[rows, n])
            variance = k[n, n] - k[n, rows] @ weights
            rest = rest + torch.distributions.Normal(weights @ x[rows, d], variance.sqrt()).log_prob(x[n, d])
    return active, rest


def test_the_densities_are_those_of_each_output_alone(
    problem: tuple[Tensor, Tensor, Tensor], kernel: ScaleKernel
) -> None:
    x, mask, z = problem
    active, rest, jitter = log_densities_by_pattern(x, mask, z, kernel, NOISE, A)
    expected = direct(x, mask, z, kernel)
    torch.testing.assert_close((active, rest), expected)
    assert jitter == 0


def test_gradients_are_those_of_the_direct_computation(
    problem: tuple[Tensor, Tensor, Tensor], kernel: ScaleKernel
) -> None:
    x, mask, z = problem
    z = z.clone().requires_grad_()
    leaves = [z, *kernel.parameters()]
    noise = NOISE.clone().requires_grad_()
    ours = log_densities_by_pattern(x, mask, z, kernel, noise, A)
    theirs = direct(x, mask, z, kernel)
    for weights in ((1.0, 0.0), (0.0, 1.0), (0.3, 2.0)):
        expected = torch.autograd.grad(weights[0] * theirs[0] + weights[1] * theirs[1], leaves, retain_graph=True)
        found = torch.autograd.grad(weights[0] * ours[0] + weights[1] * ours[1], leaves, retain_graph=True)
        torch.testing.assert_close(found, expected)
    torch.autograd.gradcheck(lambda noise: log_densities_by_pattern(x, mask, z, kernel, noise, A)[:2], (noise,))


def test_unseen_values_have_no_part_in_it(problem: tuple[Tensor, Tensor, Tensor], kernel: ScaleKernel) -> None:
    x, mask, z = problem
    other = torch.where(mask, x, torch.nan)
    before, after = (log_densities_by_pattern(values, mask, z, kernel, NOISE, A) for values in (x, other))
    assert before == after
    given, again = (condition_by_pattern(values, mask, z, kernel, NOISE) for values in (x, other))
    assert torch.equal(given.weights, again.weights)


def test_columns_that_nobody_saw_could_as_well_not_exist(kernel: ScaleKernel) -> None:
    x, z = torch.randn(B, D).double(), torch.randn(B, Q).double()
    mask = (torch.arange(D) != 2).expand(B, D)
    smaller = x[:, [0, 1, 3, 4]]
    torch.testing.assert_close(
        log_densities_by_pattern(x, mask, z, kernel, NOISE, A), log_densities(smaller, z, kernel, NOISE, A)
    )


def test_a_mask_of_ones_changes_no_digit(kernel: ScaleKernel) -> None:
    x, z, mask = torch.randn(B, D).double(), torch.randn(B, Q).double(), torch.ones(B, D, dtype=torch.bool)
    assert fixed_size(x, z, kernel, NOISE, A, 40, mask) == fixed_size(x, z, kernel, NOISE, A, 40)
    assert random_size(x, z, kernel, NOISE, 4, mask) == random_size(x, z, kernel, NOISE, 4)
    given, plain = condition(x, z, kernel, NOISE, mask), condition(x, z, kernel, NOISE)
    assert isinstance(given, ActiveSet) and isinstance(plain, ActiveSet) and torch.equal(given.chol, plain.chol)


def test_the_estimates_take_the_mask_and_weigh_as_before(
    problem: tuple[Tensor, Tensor, Tensor], kernel: ScaleKernel
) -> None:
    x, mask, z = problem
    active, rest, _ = log_densities_by_pattern(x, mask, z, kernel, NOISE, A)
    fixed = fixed_size(x, z, kernel, NOISE, A, 40, mask)
    torch.testing.assert_close((fixed.active, fixed.rest), (active, (40 - A) / (B - A) * rest))
    random = random_size(x, z, kernel, NOISE, B - A, mask)
    torch.testing.assert_close((random.active, random.rest), (torch.zeros_like(rest), B / (B - A) * rest))


def test_the_evidence_of_incomplete_points(problem: tuple[Tensor, Tensor, Tensor], kernel: ScaleKernel) -> None:
    x, mask, z = (part[:A] for part in problem)
    leaf = add_diagonal(covariance(kernel, z, z), NOISE).detach().requires_grad_()
    rows = [mask[:, d].nonzero().squeeze(1) for d in range(D)]
    expected = sum(
        MultivariateNormal(x.new_zeros(len(r)), leaf[r][:, r]).log_prob(x[r, d]) for d, r in enumerate(rows) if len(r)
    )
    found, jitter = log_density_by_pattern(x, mask, leaf)
    assert isinstance(expected, Tensor) and jitter == 0
    torch.testing.assert_close(found, expected)
    (by_k,), (by_k_directly,) = (torch.autograd.grad(value, leaf) for value in (found, expected))
    torch.testing.assert_close(by_k + by_k.mT, by_k_directly + by_k_directly.mT)
    complete = torch.ones_like(mask)
    torch.testing.assert_close(log_density_by_pattern(x, complete, leaf)[0], log_density(x, leaf)[0])


def test_predictions_are_those_of_each_output_alone(
    problem: tuple[Tensor, Tensor, Tensor], kernel: ScaleKernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("src.gp.patterns.NUMBERS_AT_ONCE", 2 * A * A)  # several chunks
    x, mask, z = problem
    seen = mask[:A]
    given = condition_by_pattern(x[:A], seen, z[:A], kernel, NOISE)
    assert isinstance(given, PatternedActiveSet)
    mean, variance = given.predict(z[A:])
    for d in range(D):
        rows = seen[:, d].nonzero().squeeze(1)
        if not len(rows):
            assert not mean[:, d].any() and (variance[:, d] - kernel.outputscale - NOISE).abs().max() < 1e-12
            continue
        alone = condition(x[rows, d : d + 1], z[rows], kernel, NOISE).predict(z[A:])
        torch.testing.assert_close((mean[:, d], variance[:, d]), (alone[0].squeeze(1), alone[1]))


def test_no_predicted_variance_is_below_the_noise(kernel: ScaleKernel) -> None:
    z, x = torch.randn(40, Q), torch.randn(40, D)
    kernel, noise = kernel.float(), torch.tensor([1e-5])
    given = condition_by_pattern(x, torch.rand(40, D) > 0.3, z, kernel, noise)
    assert (given.predict(z)[1] >= noise).all()


def test_each_pattern_is_found_once_with_all_its_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    mask = torch.tensor([[1, 1, 0, 1, 0], [1, 0, 1, 1, 1], [1, 0, 1, 1, 1]], dtype=torch.bool)
    monkeypatch.setattr("src.gp.patterns.NUMBERS_AT_ONCE", 18)  # two at a time
    found = list(patterns_of(mask, torch.float32))
    assert [len(patterns.seen) for patterns in found] == [2, 1]
    outputs = [
        (seen.bool().tolist(), sorted(o[real].tolist()))
        for patterns in found
        for seen, o, real in zip(*patterns, strict=True)
    ]
    assert sorted(outputs) == [([False, True, True], [2, 4]), ([True, False, False], [1]), ([True, True, True], [0, 3])]
