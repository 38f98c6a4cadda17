"""The quadratic bound on the evidence of bits and classes, and the predictions that follow from it."""

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from gpytorch.kernels import Kernel, RBFKernel, ScaleKernel
from torch import Tensor
from torch.distributions import MultivariateNormal
from torch.nn.functional import one_hot

from src.gp import quadratic_bound
from src.gp.kernels import covariance
from src.gp.labels import Bits, Classes, Labels, OneHot
from src.gp.quadratic_bound import (
    Estimate,
    Logits,
    bound,
    condition,
    converged_mean,
    factor,
    log_densities,
    posterior_mean,
)

BITS, CLASSES = Bits(), Classes()
KINDS: list[Labels] = [BITS, CLASSES]


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def kernel_of(scale: float = 1.3, lengthscale: float = 0.8, dtype: torch.dtype = torch.float64) -> Kernel:
    kernel = ScaleKernel(RBFKernel()).to(dtype)
    kernel.outputscale, kernel.base_kernel.lengthscale = scale, lengthscale
    return kernel.requires_grad_(False)


def labels_of(kind: Labels, size: int, outputs: int = 3) -> Tensor:
    ids = torch.randint(0, outputs, (size,), generator=torch.Generator().manual_seed(3))
    if kind is CLASSES:
        return one_hot(ids, outputs).double()
    return (seeded(size, outputs, seed=4) > 0).double()


def log_evidence_of_bits(t: Tensor, k: Tensor, offset: float = 0.0) -> float:
    """log of the integral of prod_n p(t_n | f_n) under f ~ N(0, K), [A] points of one output, by a product grid."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(60)
    axes = [torch.from_numpy(nodes)] * len(k)
    f = torch.cartesian_prod(*axes).reshape(-1, len(k)) @ torch.linalg.cholesky(k).mT + offset
    log_weights = torch.cartesian_prod(*[torch.from_numpy(weights / weights.sum()).log()] * len(k)).reshape(-1, len(k))
    log_likelihood = torch.nn.functional.logsigmoid((2 * t - 1) * f).sum(1)
    return float((log_likelihood + log_weights.sum(1)).logsumexp(0))


def log_evidence_of_classes(t: Tensor, k: Tensor) -> float:
    """The same for classes [A, P] by many draws."""
    num_points, num_classes = t.shape
    f = torch.linalg.cholesky(k) @ seeded(400_000, num_points, num_classes, seed=9)
    return float((t * f.log_softmax(-1)).sum((1, 2)).logsumexp(0) - math.log(len(f)))


@pytest.mark.parametrize("scale", [0.1, 2.0, 30.0])
@pytest.mark.parametrize("offset", [0.0, -1.5])
@pytest.mark.parametrize("bits", [[1.0], [0.0], [1.0, 1.0], [1.0, 0.0]])
def test_the_bound_is_below_the_evidence_of_bits(bits: list[float], offset: float, scale: float) -> None:
    t = torch.tensor(bits, dtype=torch.float64)
    k = covariance(kernel_of(scale), seeded(2, 1), seeded(2, 1))[: len(t), : len(t)]
    chol, exact = factor(k, BITS), log_evidence_of_bits(t, k, offset)
    shift = torch.tensor([offset], dtype=torch.float64)
    best = bound(chol, converged_mean(chol, t[:, None], BITS, shift, 1e-12), t[:, None], BITS, shift)
    assert best < exact
    for psi in (0.0, 1.0, -3.0):  # any psi gives a bound
        assert bound(chol, torch.full_like(t[:, None], psi), t[:, None], BITS, shift) < best


@pytest.mark.parametrize("scale", [0.1, 2.0, 10.0])
def test_the_bound_is_below_the_evidence_of_classes(scale: float) -> None:
    t, z = labels_of(CLASSES, 2), seeded(2, 1)
    k = covariance(kernel_of(scale), z, z)
    chol = factor(k, CLASSES)
    best = bound(chol, converged_mean(chol, t, CLASSES, 0.0, 1e-12), t, CLASSES)
    exact = log_evidence_of_classes(t, k)
    assert exact - (0.02 + 0.6 * scale) < best < exact + 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_a_small_kernel_has_the_evidence_to_first_order_and_never_more(kind: Labels) -> None:
    """The bound's curvature at 0 is exact for bits, so there the error is of the second order in the variance."""
    t, z = labels_of(kind, 2, outputs=2), seeded(2, 1)
    errors = []
    for scale in (1e-2, 1e-3):
        k = covariance(kernel_of(scale), z, z)
        chol = factor(k, kind)
        best = float(bound(chol, converged_mean(chol, t, kind, 0.0, 1e-14), t, kind))
        if kind is BITS:
            exact = sum(log_evidence_of_bits(column, k) for column in t.mT)
        else:  # two classes are a bit, whose logit is the difference of theirs
            exact = log_evidence_of_bits(t[:, 0], 2 * k)
        errors.append(exact - best)
    assert 0 < errors[1] < errors[0] / 90


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_rises_with_every_iteration_to_that_at_the_mode(kind: Labels) -> None:
    t, z = labels_of(kind, 12), seeded(12, 2)
    chol = factor(covariance(kernel_of(20.0), z, z), kind)
    values = [float(bound(chol, posterior_mean(chol, t, kind, 0.0, n), t, kind)) for n in range(30)]
    best = float(bound(chol, converged_mean(chol, t, kind, 0.0, 1e-12), t, kind))
    assert all(a < b for a, b in pairwise(values)) and values[-1] < best
    assert float(bound(chol, posterior_mean(chol, t, kind, 0.0, 5000), t, kind)) == pytest.approx(best, abs=1e-9)


@pytest.mark.parametrize("kind", KINDS)
def test_the_best_psi_is_the_mode_and_the_bound_there_is_that_of_a_constant_curvature(kind: Labels) -> None:
    """psi = K g(psi), and log p(t | psi) - psi^T K^-1 psi / 2 - (functions / 2) log|I + K / w|."""
    t, z, offset = labels_of(kind, 7), seeded(7, 2), seeded(3, seed=8)
    k = covariance(kernel_of(5.0), z, z)
    chol = factor(k, kind)
    psi = converged_mean(chol, t, kind, offset, 1e-13)
    torch.testing.assert_close(psi, k @ (t - kind.mean(psi + offset)))
    p = kind.mean(psi + offset)
    log_p = (t * p.log()).sum() + (0 if kind is CLASSES else ((1 - t) * (1 - p).log()).sum())
    functions = 3 if kind is BITS else 2
    log_det = torch.logdet(torch.eye(7, dtype=torch.float64) + k / kind.width)
    expected = log_p - 0.5 * (psi * torch.linalg.solve(k, psi)).sum() - functions / 2 * log_det
    torch.testing.assert_close(bound(chol, psi, t, kind, offset), expected)


@pytest.mark.parametrize("kind", KINDS)
def test_the_bound_is_that_of_a_gaussian_with_pseudo_targets(kind: Labels) -> None:
    """At any psi: the integral over f of N(f | 0, K) times the quadratic bound on p(t | f), in coordinates of f."""
    t, z, psi = labels_of(kind, 4), seeded(4, 2), seeded(4, 3, seed=5)
    psi = psi - psi.mean(-1, keepdim=True) if kind is CLASSES else psi
    k = covariance(kernel_of(2.0), z, z)
    g = t - kind.mean(psi)
    y = psi + kind.width * g
    if kind is CLASSES:  # coordinates in the directions orthogonal to 1
        basis = torch.linalg.svd(torch.eye(3, dtype=torch.float64) - 1 / 3).U[:, :-1]
        assert (y @ basis @ basis.mT - y).abs().max() < 1e-12
        y = y @ basis
    noisy = k + kind.width * torch.eye(4, dtype=torch.float64)
    density = MultivariateNormal(torch.zeros(4, dtype=torch.float64), noisy).log_prob(y.mT).sum()
    constant = y.numel() / 2 * math.log(2 * math.pi * kind.width) + kind.width / 2 * g.square().sum()
    expected = density + constant + kind.log_prob(t, psi)
    torch.testing.assert_close(bound(factor(k, kind), psi, t, kind), expected)


def test_two_classes_agree_with_bits() -> None:
    """The difference of two logits with kernel k is a logit with kernel 2 k."""
    z, bits = seeded(9, 2), labels_of(BITS, 9, outputs=1)
    classes = torch.cat([bits, 1 - bits], 1)
    for iterations in (1, 4):
        as_bits = log_densities(bits, z, kernel_of(6.0), BITS, 6, iterations)
        as_classes = log_densities(classes, z, kernel_of(3.0), CLASSES, 6, iterations)
        torch.testing.assert_close(as_bits.active, as_classes.active)
        torch.testing.assert_close(as_bits.rest, as_classes.rest)
    mean, variance = seeded(5, 2, seed=1), seeded(5, seed=2).square()
    difference = mean[:, :1] - mean[:, 1:]
    torch.testing.assert_close(CLASSES.predictive(mean, variance)[:, :1], BITS.predictive(difference, 2 * variance))


@pytest.mark.parametrize("kind", KINDS)
def test_predictions_are_those_of_a_gp_with_the_pseudo_targets(kind: Labels) -> None:
    t, z, new, kernel = labels_of(kind, 6), seeded(6, 2), seeded(4, 2, seed=1), kernel_of(4.0)
    offset = seeded(3, seed=8)
    mean, variance = condition(t, z, kernel, Logits(kind, offset), tolerance=1e-13).predict(new)
    k_aa, k_ra = covariance(kernel, z, z), covariance(kernel, new, z)
    psi = converged_mean(factor(k_aa, kind), t, kind, offset, 1e-13)
    y = psi + kind.width * (t - kind.mean(psi + offset))
    noisy = k_aa + kind.width * torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(mean, k_ra @ torch.linalg.solve(noisy, y) + offset)
    torch.testing.assert_close(variance, 4.0 - (k_ra * torch.linalg.solve(noisy, k_ra.mT).mT).sum(1))


@pytest.mark.parametrize("kind", KINDS)
def test_the_gradients_are_right(kind: Labels) -> None:
    """The rest through all iterations; the bound with psi held constant, which at the fixed point is the same."""
    t, z, offset = labels_of(kind, 7), seeded(7, 2), seeded(3, seed=8)
    kernel = kernel_of()

    def estimate(iterations: int, z: Tensor, offset: Tensor, scale: Tensor) -> Estimate:
        return log_densities(t, z, Scaled(kernel, scale), kind, 4, iterations, offset)

    inputs = [v.requires_grad_() for v in (z, offset, torch.tensor(0.5, dtype=torch.float64))]
    assert torch.autograd.gradcheck(lambda *v: estimate(3, *v).rest, inputs)
    assert torch.autograd.gradcheck(lambda *v: estimate(60, *v).active, inputs)


class Scaled(Kernel):
    """A kernel times a tensor."""

    def __init__(self, kernel: Kernel, scale: Tensor) -> None:
        super().__init__()
        self.kernel, self.scale = kernel, scale

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        return self.scale * (self.kernel(x1, x2, diag=True) if diag else self.kernel(x1, x2).to_dense())


@pytest.mark.parametrize("kind", KINDS)
def test_the_bounds_gradient_before_the_fixed_point_is_that_with_psi_held(kind: Labels) -> None:
    t, z = labels_of(kind, 7), seeded(7, 2).requires_grad_()
    kernel = kernel_of(3.0)
    (by_estimate,) = torch.autograd.grad(log_densities(t, z, kernel, kind, 4, 2).active, z)
    chol = factor(covariance(kernel, z[:4], z[:4]), kind)
    psi = posterior_mean(chol, t[:4], kind, 0.0, 2).detach()
    (held,) = torch.autograd.grad(bound(chol, psi, t[:4], kind), z)
    torch.testing.assert_close(by_estimate, held)


@pytest.mark.parametrize("kind", KINDS)
def test_few_iterations_reach_the_tolerance(kind: Labels, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the plain iteration takes thousands."""
    z = torch.linspace(-3, 3, 60, dtype=torch.float64)[:, None]
    steps = (z > torch.tensor([-1.0, 0.0, 1.0])).double()
    t = steps if kind is BITS else one_hot(steps.sum(1).long(), 4).double()
    chol = factor(covariance(kernel_of(1000.0), z, z), kind)
    best = bound(chol, converged_mean(chol, t, kind, 0.0, 1e-12), t, kind)
    monkeypatch.setattr(quadratic_bound, "MAX_ITERATIONS", 300)
    few, plain = converged_mean(chol, t, kind, 0.0, 1e-4), posterior_mean(chol, t, kind, 0.0, 300)
    assert 0 <= best - bound(chol, few, t, kind) < 0.02 * (best - bound(chol, plain, t, kind))


@pytest.mark.parametrize("kind", KINDS)
def test_float32_survives_constant_columns_and_saturated_logits(kind: Labels) -> None:
    """A pixel that is always 0, a class that is always true, and a kernel that makes their logits huge."""
    t = torch.zeros(30, 3)
    t[:, 0] = 1
    z = torch.cat([torch.zeros(15, 2), 1e-3 * torch.randn(15, 2, generator=torch.Generator().manual_seed(0))])
    z.requires_grad_()
    offset = torch.tensor([40.0, -40.0, -40.0], requires_grad=True)
    for start in (offset, torch.zeros(3, requires_grad=True)):
        active, rest = log_densities(t, z, kernel_of(1e4, dtype=torch.float32), kind, 20, 10, start)
        assert active.isfinite() and rest.isfinite() and active < 0 and -10 < rest <= 1e-3
        gradients = torch.autograd.grad(active + rest, [z, start])
        assert all(g.isfinite().all() for g in gradients)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_agrees_with_float64(kind: Labels) -> None:
    t, z = labels_of(kind, 200), seeded(200, 3)
    precise = log_densities(t, z, kernel_of(5000.0, 5.0), kind, 100, 10)
    rough = log_densities(t.float(), z.float(), kernel_of(5000.0, 5.0, dtype=torch.float32), kind, 100, 10)
    for a, b in zip(precise, rough, strict=True):
        assert b.dtype == torch.float32 and float(b) == pytest.approx(float(a), rel=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_float32_predicts_with_a_kernel_a_million_times_as_large_as_the_noise(kind: Labels) -> None:
    """As trainings of many steps learn it: rounded to float32, the covariance of the active points is not positive."""
    t, z, new = labels_of(kind, 200), seeded(200, 2), seeded(50, 2, seed=5)
    mean, variance = condition(t, z, kernel_of(1.4e6, 20.0), Logits(kind, 0.0)).predict(new)
    kernel = kernel_of(1.4e6, 20.0, torch.float32)
    rough = condition(t.float(), z.float(), kernel, Logits(kind, 0.0)).predict(new.float())
    assert rough[0].dtype == rough[1].dtype == torch.float32
    torch.testing.assert_close(rough[0].double(), mean, rtol=0.01, atol=0.05)
    torch.testing.assert_close(rough[1].double(), variance, rtol=0.01, atol=1e-3)


def test_one_factor_for_all_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: list[torch.Size] = []
    cholesky = quadratic_bound.well_conditioned_cholesky

    def counted(k: Tensor) -> Tensor:
        shapes.append(k.shape)
        return cholesky(k)

    monkeypatch.setattr(quadratic_bound, "well_conditioned_cholesky", counted)
    log_densities(labels_of(BITS, 8, outputs=20), seeded(8, 2), kernel_of(), BITS, 5, 4)
    assert shapes == [(5, 5)]


def holes(kind: Labels, outputs: int, size: int = 9) -> Tensor:
    """A mask with three patterns in the active set, one of which saw nothing; classes are missing as a whole."""
    mask = seeded(size, outputs, seed=11) > -0.5
    mask[:5, 0] = False
    mask[:5, -1] = mask[:5, -2]
    if isinstance(kind, OneHot):
        starts = torch.tensor([0, 2, 5])
        mask = mask[:, starts].repeat_interleave(torch.tensor(kind.sizes), 1)
    return mask


def kinds_with_parts() -> list[tuple[Labels, list[list[int]]]]:
    """Labels of nine outputs, and the outputs that are a problem by themselves."""
    return [(BITS, [[d] for d in range(9)]), (OneHot([2, 3, 4]), [[0, 1], [2, 3, 4], [5, 6, 7, 8]])]


def labels_of_nine(kind: Labels) -> Tensor:
    if kind is BITS:
        return labels_of(BITS, 9, outputs=9)
    return torch.cat([one_hot(torch.arange(9) * 7 % size, size) for size in (2, 3, 4)], 1).double()


@pytest.mark.parametrize(("kind", "parts"), kinds_with_parts(), ids=["bits", "groups"])
def test_groups_and_missing_labels_are_problems_by_themselves(kind: Labels, parts: list[list[int]]) -> None:
    """Each output, or group of one-hot outputs, sees the active points where it was observed, and no others."""
    t, z, offset, kernel = labels_of_nine(kind), seeded(9, 2), 0.3 * seeded(9, seed=8), kernel_of(3.0)
    mask, new = holes(kind, 9), seeded(4, 2, seed=1)
    assert not mask[:5, parts[0]].any()  # one output was seen at no active point
    active, rest, means, variances = [], [], [], []
    for outputs in parts:
        seen = mask[:, outputs[0]]
        own = BITS if kind is BITS else CLASSES
        rows = torch.cat([seen[:5].nonzero().squeeze(1), 5 + seen[5:].nonzero().squeeze(1)])
        single = log_densities(t[rows][:, outputs], z[rows], kernel, own, int(seen[:5].sum()), 4, offset[outputs])
        active.append(single.active)
        rest.append(single.rest)
        known = seen[:5]
        given = condition(t[:5][known][:, outputs], z[:5][known], kernel, Logits(own, offset[outputs]))
        mean, variance = given.predict(new)
        means.append(mean)
        variances.append(variance.unsqueeze(1).expand_as(mean))
    blank = torch.where(mask, t, 0.0)
    estimate = log_densities(blank, z, kernel, kind, 5, 4, offset, mask)
    torch.testing.assert_close(estimate.active, torch.stack(active).sum())
    torch.testing.assert_close(estimate.rest, torch.stack(rest).sum())
    mean, variance = condition(blank[:5], z[:5], kernel, Logits(kind, offset), mask[:5]).predict(new)
    torch.testing.assert_close(mean, torch.cat(means, 1), atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(variance, torch.cat(variances, 1))
    assert_prior_where_nothing_was_seen(mean, variance, offset, parts[0])


def assert_prior_where_nothing_was_seen(mean: Tensor, variance: Tensor, offset: Tensor, outputs: list[int]) -> None:
    torch.testing.assert_close(mean[:, outputs], offset[outputs].expand(4, -1))
    torch.testing.assert_close(variance[:, outputs], torch.full((4, len(outputs)), 3.0, dtype=torch.float64))


def test_gradients_with_missing_labels_are_right() -> None:
    t, z, offset, mask = labels_of(BITS, 6), seeded(6, 1), seeded(3, seed=8), holes(BITS, 3, size=6)
    inputs = [v.requires_grad_() for v in (z, offset)]
    blank = torch.where(mask, t, 0.0)
    for term, iterations in ((0, 40), (1, 3)):
        assert torch.autograd.gradcheck(
            lambda z, o: log_densities(blank, z, kernel_of(), BITS, 4, iterations, o, mask)[term],  # noqa: B023
            inputs,
        )


def test_a_mask_of_ones_changes_nothing() -> None:
    t, z = labels_of(BITS, 8), seeded(8, 2)
    plain, masked = (log_densities(t, z, kernel_of(), BITS, 5, 4, 0.0, m) for m in (None, torch.ones(8, 3).bool()))
    assert torch.equal(plain.active, masked.active) and torch.equal(plain.rest, masked.rest)


def test_the_weights_are_those_of_eq_6_and_eq_4() -> None:
    t, z, logits, kernel = labels_of(BITS, 8), seeded(8, 2), Logits(BITS, seeded(3, seed=8)), kernel_of()
    steps = quadratic_bound.ITERATIONS
    active, rest = log_densities(t, z, kernel, BITS, 5, steps, logits.offset)
    fixed = quadratic_bound.fixed_size(t, z, kernel, logits, 5, 100)
    torch.testing.assert_close(fixed[:2], (active, (100 - 5) / 3 * rest))
    random = quadratic_bound.random_size(t, z, kernel, logits, 3)
    torch.testing.assert_close(random[:2], (torch.zeros_like(rest), 8 / 3 * rest))
    everything = log_densities(t, z, kernel, BITS, 8, steps, logits.offset)
    assert everything.rest == 0
    torch.testing.assert_close(quadratic_bound.log_evidence(t, z, kernel, logits), everything.active)


def test_with_one_point_left_the_estimate_is_close_to_the_evidence() -> None:
    """log p(t_A) + log p(t_n | t_A) is log p(t), for any point left out; the bound is 0.02 nats below it here."""
    z, k = seeded(3, 1), None
    kernel = kernel_of(0.5)
    k = covariance(kernel, z, z)
    for bits in ([1.0, 1.0, 0.0], [0.0, 1.0, 1.0]):
        t = torch.tensor(bits, dtype=torch.float64)[:, None]
        estimate = sum(log_densities(t, z, kernel, BITS, 2, 100))
        assert float(estimate) == pytest.approx(log_evidence_of_bits(t[:, 0], k), abs=0.02)
