"""Sparse regression: both bounds against dense matrices and AutoGP, the regulariser, and a published number."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal

from src.data.toy_curve import ToyCurve
from src.runs.errors import UserError
from tests.models.builders import Given, built, far_curve, rows
from tests.models.direct import log_density, rbf, regression, set_hyperparameters, with_jitter

N, M = 12, 5


def data_of(inputs: int = 3, targets: int = 2, batch_size: int | None = None) -> Given:
    """Inputs far from 0 on different scales, and targets of them far from 0."""
    x = (far_curve(N) * torch.tensor([1.0, 10.0, 0.1]))[:, :inputs]
    y = torch.stack([x[:, 0].square() + 50, 100 - 3 * x[:, 0]], 1)[:, :targets]
    data = Given(x, batch_size, y=y)
    data.setup()
    return data


def sparse(data: Given | None = None, **options: Any) -> Any:
    options = {"num_inducing": M} | options
    return set_hyperparameters(built(data or data_of(), "sparse_regression", **options))


def z_scores(values: Tensor) -> Tensor:
    values = values.double()
    return (values - values.mean(0)) / values.std(0, correction=0)


def whole(data: Given) -> tuple[Tensor, Tensor]:
    """All standardised inputs and targets."""
    batch = data.train.all()
    assert batch.y is not None
    return z_scores(batch.x), z_scores(batch.y)


def at_all_points(data: Given, bound: str) -> Any:
    """A model whose inducing inputs are the inputs, with the optimal q(u)."""
    model = sparse(data, num_inducing=N, bound=bound)
    with torch.no_grad():
        model.inducing.copy_(whole(data)[0])
    model.set_optimal(rows(data))
    return model


@pytest.mark.parametrize("bound", ["svi", "collapsed"])
def test_with_inducing_inputs_at_all_points_the_bound_is_the_density_of_the_targets(bound: str) -> None:
    data = data_of()
    model, (x, y) = at_all_points(data, bound), whole(data)
    exact = log_density(y, rbf(model.kernel, x, x) + 0.3 * torch.eye(N).double())
    loss = model.objective(rows(data)).loss
    assert -loss.item() == pytest.approx(exact.item() / (2 * N), rel=1e-6)


@torch.no_grad()
def test_predictions_are_those_of_the_exact_gp_in_the_units_of_the_data() -> None:
    data = data_of()
    model, (x, y) = at_all_points(data, "collapsed"), whole(data)
    raw, targets = data.train.all().x, data.train.all().y
    assert targets is not None
    new = raw[:4] + torch.tensor([0.1, 1.0, -0.02])
    at = (new.double() - raw.double().mean(0)) / raw.double().std(0, correction=0)
    k = rbf(model.kernel, x, x) + 0.3 * torch.eye(N).double()
    mean, covariance = regression(k, rbf(model.kernel, x, at), rbf(model.kernel, at, at), y)
    centre, unit = targets.double().mean(0), targets.double().std(0, correction=0)
    for predict, extra in ((model.predict, 0.3), (model.predict_function, 0.0)):
        p = predict(new)
        torch.testing.assert_close(p.mean, centre + unit * mean, rtol=1e-5, atol=1e-5)
        sd = unit * (covariance.diagonal()[:, None] + extra).sqrt()
        torch.testing.assert_close(p.stddev, sd, rtol=1e-4, atol=1e-6)


def test_the_collapsed_bound_is_that_of_titsias() -> None:
    """log N(y | 0, Q + noise) - tr(K - Q) / (2 noise) of each target, with Q = K_NM K_MM^-1 K_MN."""
    data = data_of()
    model, (x, y) = sparse(data, bound="collapsed"), whole(data)
    z = model.inducing.detach()
    k_nm = rbf(model.kernel, x, z)
    q = k_nm @ torch.linalg.solve(with_jitter(rbf(model.kernel, z, z)), k_nm.mT)
    density = MultivariateNormal(torch.zeros(N).double(), q + 0.3 * torch.eye(N).double()).log_prob(y.mT).sum()
    expected = density - 2 * (N * 1.7 - q.trace()) / (2 * 0.3)
    torch.testing.assert_close(-model.objective(rows(data)).loss, expected.detach() / (2 * N), rtol=1e-6, atol=0)


def test_svi_at_its_optimum_is_the_collapsed_bound() -> None:
    data = data_of()
    svi, collapsed = sparse(data), sparse(data, bound="collapsed")
    svi.set_optimal(rows(data))
    torch.testing.assert_close(svi.objective(rows(data)).loss, collapsed.objective(rows(data)).loss, rtol=1e-8, atol=0)
    svi.q_mean.data.add_(0.1)
    assert svi.objective(rows(data)).loss > collapsed.objective(rows(data)).loss


def test_svi_is_autogp_with_a_gaussian_likelihood() -> None:
    """One GP, one target: the same bound and the same predictions at the same parameters."""
    data = data_of(targets=1)
    model = sparse(data)
    other = built(data, "autogp", share="all", num_inducing=M)
    with torch.no_grad():
        other.kernel.load_state_dict(model.kernel.state_dict())
        other.likelihood.learned.noise = 0.3
        other.inducing.copy_(model.inducing[None])
        other.q_mean.copy_(model.q_mean.mT[None])
        other.q_raw_scale.copy_(model.q_raw_scale[None, None])
    batch = rows(data, 3, 1, 7, 10)
    torch.testing.assert_close(model.objective(batch).loss, other.objective(batch).loss, rtol=1e-8, atol=0)
    torch.testing.assert_close(model.predict(batch.x).mean, other.predict(batch.x).mean)


@pytest.mark.parametrize("bound", ["svi", "collapsed"])
def test_the_regulariser_is_the_distance_in_the_units_of_the_data(bound: str) -> None:
    data = data_of()
    plain, model = sparse(data, bound=bound), sparse(data, bound=bound, regularisation=0.7)
    x = data.train.all().x.double()
    z = x.mean(0) + x.std(0, correction=0) * model.inducing.detach()
    distance = sum(min((a - b).square().sum().sqrt().item() for b in z) for a in x)
    loss, parts = model.objective(rows(data))
    assert parts["regularisation"].item() == pytest.approx(-0.7 * distance / (2 * N), rel=1e-8)
    assert loss.item() == pytest.approx(plain.objective(rows(data)).loss.item() + 0.7 * distance / (2 * N), rel=1e-8)


def test_no_weight_is_no_regulariser_digit_by_digit_and_the_word_stands_for_m() -> None:
    data = data_of()
    losses = [sparse(data, regularisation=weight).objective(rows(data)).loss.item() for weight in (None, 0)]
    assert losses[0] == losses[1]
    losses = [sparse(data, regularisation=weight).objective(rows(data)).loss.item() for weight in ("inducing", M)]
    assert losses[0] == losses[1]


def test_the_mean_over_disjoint_batches_is_the_full_objective() -> None:
    data = data_of()
    model = sparse(data, regularisation=0.7)
    losses = [model.objective(rows(data, *b.tolist())).loss for b in torch.randperm(N).split(4)]
    torch.testing.assert_close(torch.stack(losses).mean(), model.objective(rows(data)).loss)


def test_inducing_inputs_start_evenly_in_an_interval_and_fixed_ones_do_not_learn() -> None:
    data = data_of(inputs=1, targets=1)
    model = sparse(data, start=[4.0, 6.0], inducing="fixed", bound="collapsed")
    x = data.train.all().x.double()
    places = model.inputs.mean + model.inputs.scale * model.inducing
    torch.testing.assert_close(places.flatten(), torch.linspace(4, 6, M).double(), rtol=1e-5, atol=0)
    assert "inducing" not in dict(model.named_parameters()) and "inducing" in model.state_dict()
    free = sparse(data, bound="collapsed")
    assert "inducing" in dict(free.named_parameters())
    assert torch.cdist(free.inducing, z_scores(x)).min(1).values.max() < 0.5


def test_data_may_be_taken_as_they_are() -> None:
    data = data_of()
    batch = rows(data)
    model = sparse(data, standardise=False)
    assert batch.y is not None
    assert torch.equal(model.rows(batch.x), batch.x.double()) and torch.equal(model.observed(batch), batch.y.double())


def test_the_evenly_spaced_inducing_inputs_of_the_paper_have_its_numbers() -> None:
    """Meng et al., Table 1, M_2: l = 1.5792 and RMSE = 0.0504, of the optimum, which is the same for SVGP and SGPR."""
    data = ToyCurve("full")
    options = {"num_inducing": 10, "inducing": "fixed", "start": [0, 1], "standardise": False, "bound": "collapsed"}
    model = built(data, "sparse_regression", "kernel=matern32_linear", "optimizer=lbfgs", **options)
    optimizer = model.make_optimizer()

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model.objective(rows(data)).loss
        loss.backward()
        return loss

    for _ in range(10):
        optimizer.step(closure)
    model.finalise(data)
    with torch.no_grad():
        test = data.test.all()
        assert test.y is not None
        p: Normal = model.predict_function(test.x)
        assert p.log_prob(test.y).mean().item() == pytest.approx(1.5792, abs=1e-4)
        assert math.sqrt((p.mean - test.y).square().mean()) == pytest.approx(0.0504, abs=5e-5)


@pytest.mark.parametrize(
    ("options", "batch_size", "reason"),
    [
        ({"bound": "collapsed"}, 4, "needs all 12 points in every batch"),
        ({"num_inducing": 13}, None, "must not exceed the 12 training points"),
        ({"start": [0, 1]}, None, "is neither kmeans nor, for data with one input, an interval"),
        ({"start": "even"}, None, "model.start=even is neither kmeans nor"),
        ({"inducing": "still"}, None, "model.inducing=still is neither free nor fixed"),
        ({"regularisation": -1}, None, "model.regularisation=-1 is neither"),
    ],
)
def test_what_cannot_work_is_refused(options: dict[str, Any], batch_size: int | None, reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        sparse(data_of(batch_size=batch_size), **options)


def test_classes_are_refused() -> None:
    data = Given(far_curve(N), y=torch.arange(N) % 2)
    with pytest.raises(
        UserError, match="predicts real numbers, but the targets are classes: use model=sas_classifier or"
    ):
        sparse(data)
