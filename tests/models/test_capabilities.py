"""Capabilities: what each model says that it can do, and that it can."""

from typing import Any

import pytest
import torch

from src.models.base import Model, build
from src.models.capabilities import (
    ConditionsOnPoints,
    Generates,
    HasEvidence,
    HasLatents,
    HasMetric,
    Predicts,
    PredictsFromPoints,
    Traced,
    TracedClosely,
)
from tests.models.builders import OBJECT_ANGLE, SMALL_NETS, Given, built, far_curve, little_views, rows, spec_of

OF_POINTS = {HasLatents, HasMetric, ConditionsOnPoints, HasEvidence}
EXPECTED: dict[str, set[Any]] = {
    "sas": OF_POINTS,
    "bayesian_sas": OF_POINTS,
    "gplvm": OF_POINTS,
    "bayesian_gplvm": {HasLatents, HasMetric},
    "vae": {HasLatents, HasMetric},
    "cvae": {HasLatents, HasMetric, Generates},
    "gp_vae": {HasLatents, HasMetric, Generates},
    "casale_gp_vae": {HasLatents, HasMetric, Generates},
    "svgp_vae": {HasLatents, HasMetric, Generates, TracedClosely},
}
ALL = (HasLatents, HasMetric, ConditionsOnPoints, HasEvidence, Generates, Predicts, PredictsFromPoints, TracedClosely)


def example(name: str) -> tuple[Any, Given]:
    """A small model of each kind, with what it needs."""
    if name in ("cvae", "gp_vae", "casale_gp_vae", "svgp_vae"):
        data, options = little_views(), dict[str, Any](SMALL_NETS)
        options |= {} if name == "cvae" else {**OBJECT_ANGLE, "likelihood": "gaussian"}
        return built(data, name, **options, **({"num_inducing": 4} if name == "svgp_vae" else {})), data
    options = {"active_set": 4} if name in ("sas", "bayesian_sas", "gplvm") else {}
    options |= {"num_inducing": 4} if name == "bayesian_gplvm" else {}
    data = Given(far_curve(12))
    return built(data, name, **options), data


def predictor() -> Model:
    data = Given(far_curve(12), y=far_curve(12, 2))
    data.setup()
    optimizer = spec_of("model=sas")["optimizer"]
    spec = {"_target_": "tests.models.linear_gaussian.LinearGaussian", "optimizer": optimizer}
    model: Model = build(spec, data.facts)
    return model


@pytest.mark.parametrize("name", EXPECTED)
def test_a_model_has_these_capabilities_and_no_others(name: str) -> None:
    model, _ = example(name)
    assert {capability for capability in ALL if isinstance(model, capability)} == EXPECTED[name]
    assert isinstance(model, Traced)  # like every model


def test_a_predictor_predicts_and_has_no_latents() -> None:
    model = predictor()
    assert {capability for capability in ALL if isinstance(model, capability)} == {Predicts}


@pytest.mark.parametrize("name", ["sas_regression", "sas_classifier"])
def test_sas_predicts_from_points(name: str) -> None:
    y = torch.arange(12) % 2 if name == "sas_classifier" else far_curve(12, 2)
    model = built(Given(far_curve(12), y=y), name, active_set=4)
    assert {capability for capability in ALL if isinstance(model, capability)} == {Predicts, PredictsFromPoints}


@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_promised_is_kept(name: str) -> None:
    model, data = example(name)
    batch = rows(data, 0, 3)
    with torch.no_grad():
        q = model.encode(batch, seen=True)
        assert q.mean.shape == (2, model.latent_dim)
        assert model.decode(q.mean, model.given(), batch.aux).mean.shape == (2, *model.facts.shape)
        if isinstance(model, ConditionsOnPoints):
            assert model.active_size == 4
            few, many = (model.decode(q.mean, model.given(rows(data, *range(n)))).variance for n in (2, 10))
            assert (many < few).all()
        if isinstance(model, HasEvidence):
            assert model.centred(data.train.all().x).mean(0).abs().max() < 1e-6 and "noise" in model.describe_gp()
        assert model.metric(q.mean, model.given(), batch.aux).shape == (2, model.latent_dim, model.latent_dim)
        if isinstance(model, Generates):
            assert batch.aux is not None
            assert model.generate(batch.aux).mean.shape == (2, model.latent_dim)
