"""The evidence of training points: exact against the direct computation, the estimate where it is exact too."""

from typing import Any

import pytest
import torch
from gpytorch.constraints import Positive

from src.data.module import DataModule
from src.evaluation.evidence import check_evidence, evidence_scores
from src.evaluation.metrics import evaluate, latent_means, metrics_table
from src.gp.active_set import log_marginal
from src.runs.errors import NumericalError, UserError
from tests.models.builders import Given, built, noisy_curve

ALL: dict[str, Any] = {"exact_evidence": True, "evidence_points": None, "evidence_precision": "float64"}


def sas(data: DataModule, active_size: int, *overrides: str, name: str = "sas") -> Any:
    return built(data, name, f"active_set.size={active_size}", *overrides)


@pytest.mark.parametrize("name", ["sas", "bayesian_sas", "gplvm"])
@pytest.mark.parametrize("amortised", ["true", "false"])
def test_exact_and_its_estimate_that_leaves_one_point_out(name: str, amortised: str) -> None:
    """With A = N - 1 Eq. 6 has no error, whatever point is left."""
    data = Given(noisy_curve())
    model = sas(data, 59, f"model.amortised={amortised}", name=name)
    scores = evidence_scores(model, data, None, "float64", seed=0)
    x, z = model.centred(data.x), model.encode(data.x, torch.arange(60)).mean
    exact = log_marginal(x, z, model.kernel, model.likelihood.noise).item() / data.x.numel()
    assert scores["exact_evidence"] == pytest.approx(exact, rel=1e-10)
    assert scores["sas_estimate"] == pytest.approx(exact, rel=1e-8) and scores["sas_estimate_sd"] < 1e-8
    assert scores["evidence_points"] == 60


def test_a_part_of_the_points_in_either_precision() -> None:
    data = Given(noisy_curve(), batch_size=20)
    model = sas(data, 10)
    double, single = (evidence_scores(model, data, 40, precision, seed=1) for precision in ("float64", "float32"))
    index = data.train.draw(40, 0).index
    assert len(index) == 40 and double["evidence_points"] == 40
    assert single == pytest.approx(double, rel=1e-3)
    assert abs(double["sas_estimate"] - double["exact_evidence"]) < 5 * double["sas_estimate_sd"]
    assert double == evidence_scores(model, data, 40, "float64", seed=1)
    assert double != evidence_scores(model, data, 40, "float64", seed=2)


def test_it_stands_among_the_metrics() -> None:
    data = Given(noisy_curve(), batch_size=20)
    model = sas(data, 10)
    z = latent_means(model, data.test, seen=False)
    metrics = evaluate(model, data, z, active_sets=2, condition_on=20, seed=0, exact_evidence=True)
    table = metrics_table(metrics)
    assert "60 training points" in table and f"{metrics['exact_evidence']:.4f}" in table
    assert f"{metrics['sas_estimate']:.4f} ± {metrics['sas_estimate_sd']:.4f}" in table
    assert "exact_evidence" not in evaluate(model, data, z, active_sets=2, condition_on=20, seed=0)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"evidence_points": 10}, "must exceed the 10 active points"),
        ({"evidence_points": 61}, "not the 60 training points"),
        ({"evidence_precision": "float16"}, "must be float32 or float64"),
    ],
)
def test_what_cannot_be_is_refused(settings: dict[str, Any], reason: str) -> None:
    data = Given(noisy_curve(), batch_size=20)
    with pytest.raises(UserError, match=reason):
        check_evidence(sas(data, 10), data, **ALL | settings)


def test_a_model_without_a_gp_is_refused_if_asked() -> None:
    data = Given(noisy_curve())
    vae = built(data, "vae")
    check_evidence(vae, data, **ALL | {"exact_evidence": False})
    with pytest.raises(UserError, match=r"needs a GP decoder with an active set .*, not VAE"):
        check_evidence(vae, data, **ALL)


def test_more_than_the_memory_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = Given(noisy_curve())
    monkeypatch.setattr("src.evaluation.evidence.installed_memory", lambda: 1000)
    with pytest.raises(UserError, match=r"more than there is: set evaluation\.evidence_points to fewer"):
        check_evidence(sas(data, 10), data, **ALL)


def test_a_covariance_without_a_factor_names_the_hyperparameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """All points at one place and almost no noise: float32 cannot tell their covariance from a singular one."""
    data = Given(noisy_curve(), batch_size=20)
    model = sas(data, 10, "model.amortised=false")
    model.latents.mean.weight.data.zero_()
    model.likelihood.noise_covar.register_constraint("raw_noise", Positive())
    model.likelihood.noise = 1e-12
    with pytest.raises(NumericalError, match=r"float32: try .*=float64; hyperparameters: .*lengthscale"):
        evidence_scores(model, data, None, "float32", seed=0)
