"""The evidence of training points: exact against the direct computation, the estimate where it is exact too."""

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from gpytorch.constraints import Positive

from src.data.batch import split_of
from src.data.module import DataModule
from src.evaluation.evidence import ESTIMATES, Evidence, observed, random_batches
from src.evaluation.task import Scores, Subject
from src.gp.active_set import log_marginal
from src.runs.errors import NumericalError, UserError
from src.runs.randomness import stream
from tests.evaluation.subjects import SETTINGS, Known, MadeUp, built, noisy_curve

ASKED: dict[str, Any] = SETTINGS | {"exact_evidence": True}


def curve(batch_size: int | None = None) -> MadeUp:
    return MadeUp(split_of(noisy_curve()), batch_size=batch_size)


def sas(data: DataModule, active_size: int, *overrides: str, name: str = "sas") -> Any:
    return built(data, f"model={name}", f"active_set.size={active_size}", *overrides, dtype=torch.float64)


@torch.no_grad()
def evidence(model: Any, data: DataModule, seed: int = 0, **settings: Any) -> Scores:
    return Evidence().scores(Subject(model, data, ASKED | settings, seed))


@torch.no_grad()
def direct(model: Any, data: DataModule, rows: torch.Tensor) -> float:
    """log p(x | z) of these rows in nats per value."""
    batch = data.train[rows]
    x, z = model.centred(batch.x), model.encode(batch, seen=True).mean
    return log_marginal(x, z, model.kernel, model.likelihood.noise).item() / x.numel()


def test_each_batch_is_drawn_anew() -> None:
    batches = random_batches(50, 8, seed=0)
    assert len({tuple(rows.tolist()) for rows in batches}) == ESTIMATES
    assert all(len(rows.unique()) == 8 for rows in batches)
    assert not torch.equal(batches[0], random_batches(50, 8, seed=1)[0])


@pytest.mark.parametrize("amortised", ["true", "false"])
def test_a_part_of_the_points_is_estimated_as_if_it_were_all(amortised: str) -> None:
    """With A = points - 1 the estimate has no error either, though points < N."""
    data = curve()
    model = sas(data, 24, f"model.amortised={amortised}")
    scores = evidence(model, data, seed=3, evidence_points=25)
    exact = direct(model, data, data.train.draw(25, stream(3, 25)).index)
    assert scores["exact_evidence"] == pytest.approx(exact, rel=1e-10)
    assert scores["sas_estimate"] == pytest.approx(exact, rel=1e-8) and scores["sas_estimate_sd"] < 1e-8


@pytest.mark.parametrize("name", ["sas", "bayesian_sas", "gplvm"])
@pytest.mark.parametrize("amortised", ["true", "false"])
def test_exact_and_its_estimate_that_leaves_one_point_out(name: str, amortised: str) -> None:
    """With A = N - 1 Eq. 6 has no error, whatever point is left."""
    data = curve()
    model = sas(data, 59, f"model.amortised={amortised}", name=name)
    scores, exact = evidence(model, data), direct(model, data, torch.arange(60))
    assert scores["exact_evidence"] == pytest.approx(exact, rel=1e-10)
    assert scores["sas_estimate"] == pytest.approx(exact, rel=1e-8) and scores["sas_estimate_sd"] < 1e-8
    assert scores["evidence_points"] == 60


def test_a_part_of_the_points_in_either_precision() -> None:
    data = curve(batch_size=20)
    model = sas(data, 10)
    double, single = (
        evidence(model, data, seed=1, evidence_points=40, evidence_precision=precision)
        for precision in ("float64", "float32")
    )
    assert double["evidence_points"] == 40
    assert single == pytest.approx(double, rel=1e-3)
    assert abs(double["sas_estimate"] - double["exact_evidence"]) < 5 * double["sas_estimate_sd"]
    assert double == evidence(model, data, seed=1, evidence_points=40)
    assert double != evidence(model, data, seed=2, evidence_points=40)


def test_points_and_latents_are_of_the_same_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also in several chunks, and for free latents, which are looked up by row."""
    monkeypatch.setattr("src.evaluation.evidence.CHUNK", 7)
    data = curve()
    model = sas(data, 10, "model.amortised=false")
    with torch.no_grad():
        x, z = observed(model, data.train, 20, torch.float64, seed=0)
    rows = torch.cdist(x, data.train.all().x.double() - model.data_mean).argmin(1)
    assert len(rows.unique()) == 20
    torch.testing.assert_close(z, model.latents.mean.weight[rows].detach())


def test_the_summary_has_both_values() -> None:
    data = curve(batch_size=20)
    scores = evidence(sas(data, 10), data)
    table = "\n".join(Evidence().summary(scores, {}))
    assert "60 training points" in table and f"{scores['exact_evidence']:.4f}" in table
    assert f"{scores['sas_estimate']:.4f} ± {scores['sas_estimate_sd']:.4f}" in table
    assert Evidence().summary({"rmse": 1.0}, {}) == []


def test_it_is_computed_on_request_only() -> None:
    data = curve(batch_size=20)
    assert evidence(sas(data, 10), data, exact_evidence=False) == {}


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"evidence_points": 10}, "must exceed the 10 active points"),
        ({"evidence_points": 61}, "must not exceed the 60 training points"),
        ({"evidence_precision": "float16"}, "must be float32 or float64"),
    ],
)
def test_settings_that_cannot_be_met(settings: dict[str, Any], reason: str) -> None:
    data = curve(batch_size=20)
    with pytest.raises(UserError, match=reason):
        Evidence().check(sas(data, 10), data, ASKED | settings)


def test_a_model_without_a_gp_is_an_error_only_if_asked() -> None:
    data = curve()
    vae = built(data, "model=vae")
    Evidence().check(vae, data, SETTINGS)
    assert not Evidence().fits(vae, data) and not Evidence().fits(Known(data.facts), data)
    assert Evidence().fits(sas(data, 10), data)
    with pytest.raises(UserError, match=r"needs a GP decoder with an active set .*, not VAE"):
        Evidence().check(vae, data, ASKED)


def test_incomplete_training_data_have_no_evidence() -> None:
    """Incomplete test data do not matter."""
    data, model = curve(), sas(curve(), 10)
    x = noisy_curve()
    holes = replace(split_of(x), mask=torch.rand(x.shape, generator=torch.Generator().manual_seed(0)) > 0.1)
    train, test = MadeUp(holes, split_of(x)), MadeUp(split_of(x), holes)
    assert Evidence().fits(model, test) and not Evidence().fits(model, train)
    Evidence().check(model, test, ASKED)
    Evidence().check(model, train, SETTINGS)
    with pytest.raises(UserError, match="needs complete training data"):
        Evidence().check(model, train, ASKED)
    assert evidence(model, test) == evidence(model, data)


def test_more_than_the_memory_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    data = curve()
    monkeypatch.setattr("src.evaluation.evidence.installed_memory", lambda: 1000)
    with pytest.raises(UserError, match=r"more than this machine has: reduce evaluation\.evidence_points"):
        Evidence().check(sas(data, 10), data, ASKED)


def test_a_covariance_without_a_factor_names_the_hyperparameters() -> None:
    """All points at one place and almost no noise: float32 cannot tell their covariance from a singular one."""
    data = curve(batch_size=20)
    model = sas(data, 10, "model.amortised=false")
    model.latents.mean.weight.data.zero_()
    gaussian = model.likelihood.learned
    gaussian.noise_covar.register_constraint("raw_noise", Positive())
    gaussian.noise = 1e-12
    with pytest.raises(NumericalError, match=r"float32: try .*=float64; hyperparameters: .*lengthscale"):
        evidence(model, data, evidence_precision="float32")


def test_warped_images_have_the_slope_in_their_evidence() -> None:
    """The density of intensities u is that of y = logit(.05 + .9 u) / R times dy/du, with R the range of the logits."""
    x = torch.randint(0, 256, (20, 1, 3, 3), generator=torch.Generator().manual_seed(0)).byte()
    data = MadeUp(split_of(x))
    model = sas(data, 19, "model.warp=logit")
    scores, of_y = evidence(model, data), direct(model, data, torch.arange(20))
    s = 0.05 + 0.9 * (x.double() + 0.5) / 256
    exact = of_y + (0.9 / (2 * math.log(19) * s * (1 - s))).log().mean().item()
    assert scores["exact_evidence"] == pytest.approx(exact, abs=1e-6)
    assert scores["sas_estimate"] == pytest.approx(exact, abs=1e-6)


def test_bits_have_no_exact_evidence() -> None:
    data = MadeUp(split_of((noisy_curve() > 0).float()))
    data.binary = True
    model = sas(data, 19, "model.likelihood=bernoulli")
    assert not Evidence().fits(model, data)
    with pytest.raises(UserError, match="and Gaussian noise, not SAS"):
        Evidence().check(model, data, ASKED)
