"""The logit warp: its slope, its densities in every place that reports one, and bits per dimension."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from src.data.batch import Batch, split_of
from src.models.warp import LogitWarp, Warped
from src.runs.errors import UserError
from tests.models.builders import Given, built, far_curve, first_batch, rows, started
from tests.models.direct import slopes

GREYS = torch.randint(0, 256, (30, 1, 4, 4), generator=torch.Generator().manual_seed(0)).byte()
R = 2 * math.log(0.95 / 0.05)
MODELS = ["sas", "bayesian_sas", "gplvm", "bayesian_gplvm", "vae"]


def greys(batch_size: int | None = 12, **options: Any) -> Given:
    return Given(GREYS[:24], batch_size=batch_size, test=split_of(GREYS[24:]), **options)


def warped(name: str, data: Given, **arguments: Any) -> Any:
    small = {"num_inducing": 6} if name == "bayesian_gplvm" else {}
    sizes = ("active_set.size=6", "encoder.hidden=[8]")
    return built(data, name, *sizes, warp="logit", **small, **arguments)


def test_the_slope_is_the_derivative_and_the_inverse_goes_back() -> None:
    warp, u = LogitWarp(0), torch.linspace(0, 1, 11, dtype=torch.float64, requires_grad=True)
    y = warp.forward(u)
    (by_u,) = torch.autograd.grad(y.sum(), u)
    torch.testing.assert_close(warp.log_slope(y), by_u.log())
    torch.testing.assert_close(warp.inverse(y), u)
    assert (y[-1] - y[0]).item() == pytest.approx(1)  # the range of intensities


def test_bytes_lie_in_the_middle_of_their_levels() -> None:
    warp, x = LogitWarp(256), torch.arange(256).double() / 255
    torch.testing.assert_close(warp.unit(x, 0.5), (torch.arange(256) + 0.5).double() / 256)
    torch.testing.assert_close(warp.inverse(warp.forward(warp.unit(x, 0.5))), x)
    assert warp.unit(x, 0.0).min() == 0 and warp.unit(x, 1.0).max() == 1


@pytest.mark.parametrize("levels", [0, 256])
def test_the_density_of_intensities_integrates_to_the_mass_between_black_and_white(levels: int) -> None:
    """Over u in [0, 1]; of bytes, exp of the mean log density of a level is a little below its mass."""
    normal, warp = Normal(torch.tensor(0.4, dtype=torch.float64), 0.9), LogitWarp(levels)
    ends = warp.forward(torch.tensor([0.0, 1.0], dtype=torch.float64))
    mass = normal.cdf(ends).diff().item()
    x = (torch.arange(256).double() / 255) if levels else (torch.arange(4000) + 0.5).double() / 4000
    density = Warped(Normal(normal.mean.expand(len(x)), 0.9), warp).log_prob(x).exp()
    assert density.mean().item() == pytest.approx(mass, rel=1e-4)
    if levels:
        edges = warp.forward(torch.arange(257).double() / 256)
        assert (density / 256 <= normal.cdf(edges).diff() * (1 + 1e-4)).all()


def test_mean_and_variance_by_draws() -> None:
    normal = Normal(torch.tensor([[-1.0, 0.5]], dtype=torch.float64), torch.tensor([[0.8]], dtype=torch.float64))
    p = Warped(normal, LogitWarp(256))
    torch.manual_seed(0)
    x = p.warp.inverse(normal.expand([1, 2]).sample([200_000]))
    torch.testing.assert_close(p.mean, x.mean(0), atol=3e-3, rtol=0)
    torch.testing.assert_close(p.variance, x.var(0), atol=3e-3, rtol=0)


@pytest.mark.parametrize("name", MODELS)
def test_the_model_is_that_of_the_warped_values_plus_the_slope(name: str) -> None:
    """Trained on y = logit(.05 + .9 u) / R directly, the loss differs by the mean log slope."""
    data = greys()
    u = (GREYS.double() + 0.5) / 256
    y = (0.05 + 0.9 * u).logit() / R
    plain_data = Given(y[:24].float(), batch_size=12, test=split_of(y[24:].float()))
    model = warped(name, data)
    plain = built(
        plain_data,
        name,
        "active_set.size=6",
        "encoder.hidden=[8]",
        **({"num_inducing": 6} if name == "bayesian_gplvm" else {}),
    )
    index = torch.arange(12)
    torch.manual_seed(1)
    loss = model.objective(data.train[index]).loss
    torch.manual_seed(1)
    expected = plain.objective(plain_data.train[index]).loss
    s = 0.05 + 0.9 * u[:12]
    slope = (0.9 / (R * s * (1 - s))).log().mean()
    torch.testing.assert_close(loss, expected - slope, rtol=1e-5, atol=1e-6)
    z = torch.randn(5, 2, dtype=torch.float64)
    mine, theirs = model.decode(z), plain.decode(z)
    torch.testing.assert_close(mine.normal.mean, theirs.mean, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
def test_training_batches_are_dequantised_and_gradients_right(name: str) -> None:
    data = greys()
    model = warped(name, data)
    by_gradient, by_values = slopes(model, first_batch(data))
    assert by_gradient == pytest.approx(by_values, rel=1e-3, abs=1e-6)
    batch = data.train[torch.arange(12)]
    torch.manual_seed(0)
    first, second = model.dequantised(batch).x, model.dequantised(batch).x
    for u in (first, second):
        assert torch.equal((u * 256).floor(), batch.x.double()) and not torch.equal(first, second)
        assert len((u * 256 % 1).unique()) > 100  # each pixel has its own noise
    assert model.objective(model.dequantised(batch)).loss != model.objective(batch).loss
    test = data.test.all()
    p = model.decode(model.encode(test, seen=False).mean)
    assert ((p.mean >= 0) & (p.mean <= 1)).all() and (p.variance > 0).all()


def test_the_stored_active_set_predicts_as_the_same_bytes_do() -> None:
    data = greys()
    model = warped("sas", data)
    z = torch.randn(5, 2, dtype=torch.float64)
    again = model.given(data.train[model.active_index])
    torch.testing.assert_close(model.decode(z).mean, model.decode(z, again).mean)


def test_bounds_of_points_include_the_slope() -> None:
    """The log likelihood of a point by hand, at the middle of each of eight parts of a level."""
    data = greys()
    model, batch, z = warped("vae", data), data.test.all(), torch.randn(6, 2, dtype=torch.float64)
    f = model.mean(z).flatten(1)
    total = torch.zeros(6, 16, dtype=torch.float64)
    for part in range(8):
        s = 0.05 + 0.9 * (batch.x.flatten(1).double() + (part + 0.5) / 8) / 256
        density = Normal(f, model.likelihood.noise.sqrt()).log_prob(s.logit() / R) + (0.9 / (R * s * (1 - s))).log()
        total += density / 8
    torch.testing.assert_close(model.log_likelihood(batch, z, None), total.sum(1))


def test_hidden_pixels_have_no_part() -> None:
    data = greys(missing={"fraction": 0.3, "split": "both"})
    for name in MODELS:
        model, batch = warped(name, data), first_batch(data)
        assert batch.mask is not None
        noise = torch.randint(0, 256, batch.x.shape).byte()
        values: list[Tensor] = []
        for x in (batch.x, torch.where(batch.mask, batch.x, noise)):
            torch.manual_seed(0)
            values.append(model.objective(replace(batch, x=x)).loss)
        assert values[0].isfinite() and torch.equal(*values)
        s = 0.05 + 0.9 * (batch.x[batch.mask].double() + 0.5) / 256
        slope = model.objective(batch).parts["warp"]
        torch.testing.assert_close(slope, 2 * (0.9 / (R * s * (1 - s))).log().sum() / data.facts.observed)


def test_what_cannot_be_warped_is_refused() -> None:
    with pytest.raises(UserError, match=r"model\.warp=log must be logit or null"):
        started(greys(), "model=sas", "active_set.size=6", warp="log")
    with pytest.raises(UserError, match=r"model\.warp=logit needs images with intensities"):
        started(Given(far_curve(12)), "model=sas", "active_set.size=6", warp="logit")
    with pytest.raises(UserError, match=r"model\.warp=logit needs model\.likelihood=gaussian"):
        started(greys(), "model=vae", warp="logit", likelihood="bernoulli")


def test_floats_are_not_dequantised() -> None:
    data = Given(GREYS[:24].float() / 255, batch_size=12)
    model = warped("sas", data)
    batch = rows(data, *range(12))
    assert model.dequantised(batch) is batch and model.warp.levels == 0
    s = 0.05 + 0.9 * batch.x.double()
    torch.testing.assert_close(model.modelled(batch.x), s.logit() / R, rtol=1e-5, atol=1e-6)
    assert model.objective(Batch.of(batch.x)).loss.isfinite()
