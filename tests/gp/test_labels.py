"""Bits and classes as functions of normal logits: their probabilities, with the slopes, in any precision."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid, one_hot

from src.gp import labels
from src.gp.labels import Bits, Classes, OneHot, fixed_points


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_the_probabilities_of_all_outcomes_add_up_to_one() -> None:
    for num_classes in (2, 3, 10, 40):
        mean, variance = 3 * seeded(20, num_classes), 4 * seeded(20, seed=1).square()
        torch.testing.assert_close(
            Classes().predictive(mean, variance).exp().sum(1), torch.ones(20, dtype=torch.float64)
        )
    one, zero = (Bits().predictive(sign * mean, variance).exp() for sign in (1, -1))
    torch.testing.assert_close(one + zero, torch.ones_like(one))


def test_the_probabilities_of_bits_by_draws() -> None:
    mean, variance = seeded(4, 3), seeded(4, seed=1).square()
    f = mean + variance.sqrt()[:, None] * seeded(200_000, 4, 3, seed=2)
    torch.testing.assert_close(Bits().predictive(mean, variance).exp(), f.sigmoid().mean(0), atol=3e-3, rtol=0)
    t = (seeded(4, 3, seed=4) > 0).double()
    p = torch.where(t == 1, f.sigmoid().mean(0), 1 - f.sigmoid().mean(0))
    torch.testing.assert_close(Bits().log_predictive(t, mean, variance), p.log().sum(), atol=3e-2, rtol=0)


@pytest.mark.parametrize("variance", [0.01, 1.0, 6.0])
def test_the_probabilities_of_classes_by_draws(variance: float) -> None:
    """64 fixed points err by less than a hundredth on average, even for logits with an sd of 2.4."""
    mean, t = 2 * seeded(40, 10), one_hot(torch.arange(40) % 10, 10).double()
    draws = math.sqrt(variance) * seeded(20_000, 10, seed=2)
    exact = torch.stack([(m + draws).softmax(-1).mean(0) for m in mean])
    spread = torch.full((40,), variance, dtype=torch.float64)
    log_p = Classes().predictive(mean, spread)
    assert (log_p.exp() - exact).square().mean().sqrt() < 0.0005 + 0.0015 * variance
    torch.testing.assert_close(Classes().log_predictive(t, mean, spread), (t * log_p).sum())


@pytest.mark.parametrize("num_classes", [3, 10, 100])
def test_the_fixed_points_have_the_moments_of_a_normal(num_classes: int) -> None:
    points = fixed_points(num_classes)
    centring = torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes
    torch.testing.assert_close(points.mT @ points / len(points), centring)
    assert points.mean(0).abs().max() < 1e-12 and points.sum(1).abs().max() < 1e-12
    assert points.isfinite().all() and (points**3).mean(0).abs().max() < 1e-12


@pytest.mark.parametrize("each", [False, True])
def test_the_slopes_of_a_bits_log_probability(each: bool) -> None:
    """Rows and parts of them at a time; one variance per point, or one per output."""
    mean = 3 * seeded(5, 4)
    variance = seeded(5, *([4] if each else []), seed=1).square() + 0.1
    inputs = [v.requires_grad_() for v in (mean, variance)]
    assert torch.autograd.gradcheck(Bits().predictive, inputs)


def test_rows_are_taken_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    mean, variance = seeded(7, 4), seeded(7, seed=1).square()
    whole = Bits().predictive(mean, variance)
    monkeypatch.setattr(labels, "NUMBERS_AT_ONCE", 8)
    torch.testing.assert_close(Bits().predictive(mean, variance), whole)


def test_impossible_bits_have_a_finite_probability_and_slope_in_float32() -> None:
    """Far below 0 it is E[exp(f)] = exp(m + v / 2); without variance it is the sigmoid."""
    mean = torch.tensor([[-500.0, -95.0, -30.0, 0.0, 30.0, 500.0]], requires_grad=True)
    for variance in (1e-7, 1.0, 9.0):
        v = torch.tensor([variance], requires_grad=True)
        log_p = Bits().predictive(mean, v)
        torch.testing.assert_close(log_p[0, :3], mean[0, :3] + variance / 2, atol=2e-2, rtol=1e-3)
        by_mean, by_v = torch.autograd.grad(log_p.sum(), [mean, v])
        torch.testing.assert_close(by_mean[0, [0, 1, 2, 5]], torch.tensor([1.0, 1, 1, 0]), atol=1e-4, rtol=0)
        assert by_v.isfinite().all()
    exact = logsigmoid(mean.detach())
    torch.testing.assert_close(Bits().predictive(mean.detach(), torch.tensor([1e-12])), exact, atol=1e-5, rtol=1e-5)


def test_masked_bits_and_classes_do_not_count() -> None:
    mean, variance = seeded(6, 5), seeded(6, seed=1).square()
    seen = seeded(6, 5, seed=2) > 0
    t = (seeded(6, 5, seed=3) > 0).double()
    single = [
        Bits().log_predictive(t[[n]][:, [d]], mean[[n]][:, [d]], variance[[n]]) for n, d in seen.nonzero().tolist()
    ]
    torch.testing.assert_close(Bits().log_predictive(t, mean, variance, seen), torch.stack(single).sum())
    t, rows = one_hot(torch.arange(6) % 5, 5).double(), seen[:, 0]
    expected = Classes().log_predictive(t[rows], mean[rows], variance[rows])
    masked = Classes().log_predictive(t, mean, variance, rows[:, None].expand(-1, 5))
    torch.testing.assert_close(masked, expected)


def test_groups_of_columns_are_classes_side_by_side() -> None:
    """Three groups, of 2, 3 and 4 columns, each with classes and missing rows of its own."""
    groups = OneHot([2, 3, 4])
    f, variance = seeded(8, 9), seeded(8, seed=1).square()
    t = torch.cat([one_hot(torch.arange(8) % size, size) for size in (2, 3, 4)], 1).double()
    known = seeded(8, 3, seed=2) > 0
    seen = known.repeat_interleave(torch.tensor([2, 3, 4]), 1)
    parts = [slice(0, 2), slice(2, 5), slice(5, 9)]
    assert groups.num_functions(9) == 1 + 2 + 3 and groups.width == Classes.width
    for name in ("mean", "log_prob", "predictive", "log_predictive"):
        if name == "mean":
            mine, theirs = groups.mean(f), torch.cat([Classes().mean(f[:, p]) for p in parts], 1)
        elif name == "log_prob":
            mine = groups.log_prob(t, f)
            theirs = torch.stack([Classes().log_prob(t[:, p], f[:, p]) for p in parts]).sum()
        elif name == "predictive":
            mine = groups.predictive(f, variance)
            theirs = torch.cat([Classes().predictive(f[:, p], variance) for p in parts], 1)
        else:
            mine = groups.log_predictive(t, f, variance, seen)
            each = [
                Classes().log_predictive(t[k][:, p], f[k][:, p], variance[k])
                for p, k in zip(parts, known.mT, strict=True)
            ]
            theirs = torch.stack(each).sum()
        torch.testing.assert_close(mine, theirs)
    assert groups.part(torch.tensor([0, 1, 5, 6, 7, 8])).sizes == (2, 4)


@pytest.mark.parametrize(
    ("kind", "worst"), [(Bits(), [0.0, 9, 9]), (Classes(), [0.0, 0, -60]), (OneHot([3]), [0, 0, -60])]
)
def test_the_curvature_is_at_most_one_over_the_width_and_has_the_rank_of_the_functions(
    kind: labels.Labels, worst: list[float]
) -> None:
    """The eigenvalues of minus the Hessian of log p(t | f), anywhere, and where they are largest."""
    t = torch.tensor([[1.0, 0, 0]], dtype=torch.float64)

    def curvature(f: Tensor) -> Tensor:
        hessian = torch.autograd.functional.hessian(lambda logits: -kind.log_prob(t, logits.unsqueeze(0)), f)
        return torch.linalg.eigvalsh(hessian)

    for seed in range(20):
        eigenvalues = curvature(2 * seeded(3, seed=seed))
        assert eigenvalues.max() <= 1 / kind.width + 1e-12
        assert (eigenvalues > 1e-9).sum() == kind.num_functions(3)
    assert curvature(torch.tensor(worst, dtype=torch.float64)).max() == pytest.approx(1 / kind.width)
