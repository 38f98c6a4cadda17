"""Bayesian GP-LVM as a model: how its two bounds and its weights fit together."""

import pytest
import torch

from src.runs.errors import UserError
from tests.models.builders import Given, built, noisy_curve, rows

SMALL = {"num_inducing": 12}


@pytest.mark.parametrize("posterior", ["diagonal", "full"])
def test_the_collapsed_bound_is_the_uncollapsed_one_at_its_optimum(posterior: str) -> None:
    data = Given(noisy_curve())
    collapsed = built(data, "bayesian_gplvm", bound="collapsed", posterior=posterior, **SMALL)
    svi = built(data, "bayesian_gplvm", posterior=posterior, **SMALL)
    svi.set_optimal(rows(data))
    torch.testing.assert_close(svi.objective(rows(data)).loss, collapsed.objective(rows(data)).loss, rtol=1e-6, atol=0)
    with torch.no_grad():
        svi.q_mean.add_(0.1)
    assert svi.objective(rows(data)).loss > collapsed.objective(rows(data)).loss


def test_the_mean_over_disjoint_batches_is_the_full_objective() -> None:
    data = Given(noisy_curve(60))
    model = built(data, "bayesian_gplvm", **SMALL)
    losses = [model.objective(rows(data, *b.tolist())).loss for b in torch.randperm(60).split(20)]
    torch.testing.assert_close(torch.stack(losses).mean(), model.objective(rows(data)).loss)


def test_samples_agree_with_the_closed_form() -> None:
    data = Given(noisy_curve())
    exact = built(data, "bayesian_gplvm", **SMALL)
    sampled = built(data, "bayesian_gplvm", samples=10, **SMALL)
    sampled.load_state_dict(exact.state_dict())
    torch.manual_seed(0)
    with torch.no_grad():
        losses = torch.stack([sampled.objective(rows(data)).loss for _ in range(300)])
        error = losses.mean() - exact.objective(rows(data)).loss
    assert abs(error) < 4 * losses.std() / len(losses) ** 0.5


def test_the_collapsed_model_predicts_after_training() -> None:
    data = Given(noisy_curve())
    model = built(data, "bayesian_gplvm", bound="collapsed", amortised=False, **SMALL)
    optimizer = model.make_optimizer()
    for _ in range(200):
        optimizer.zero_grad()
        model.objective(rows(data)).loss.backward()
        optimizer.step()
    model.finalise(data)
    with torch.no_grad():
        prediction = model.decode(model.encode(data.train.x, torch.arange(60)).mean)
    assert (prediction.mean - data.train.x).square().mean().sqrt() < 0.2


@pytest.mark.parametrize(
    ("overrides", "batch_size", "reason"),
    [
        (["model.bound=collapsed"], 20, "needs all 60 samples in every batch"),
        (["kernel=matern52"], None, "no closed-form expectations: set model.samples=1"),
        (["model.num_inducing=61"], None, "must not exceed N = 60"),
    ],
)
def test_what_cannot_work_is_refused(overrides: list[str], batch_size: int | None, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        built(Given(noisy_curve(), batch_size), "bayesian_gplvm", *overrides)
