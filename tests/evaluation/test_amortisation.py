"""The amortisation gap: exact for a linear decoder, whose refined bound is the evidence of each point."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence

from src.data.batch import Split, split_of
from src.data.missing import Missing
from src.evaluation import amortisation
from src.evaluation.amortisation import Amortisation
from src.evaluation.task import Scores, Subject
from src.models.posterior import Amortised, Free
from src.runs.errors import UserError
from tests.evaluation.subjects import SETTINGS, Known, LinearDecoder, MadeUp, built, incomplete, noisy_curve, subject

REFINED = SETTINGS | {"refine": True}
COMPLETE = split_of(incomplete(30).truth(torch.arange(30)))


def scores(train: Split, test: Split, seed: int = 0) -> Scores:
    return Amortisation().scores(subject(LinearDecoder, MadeUp(train, test), seed, refine=True))


def log_evidence(split: Split, mean: Tensor, covariance: Tensor) -> Tensor:
    """log p(observed values) of each point, from the joint Gaussian."""
    batch = split.all()
    rows = torch.ones_like(batch.x, dtype=torch.bool) if batch.mask is None else batch.mask
    parts = [
        MultivariateNormal(mean[row], covariance[row][:, row]).log_prob(x[row].to(mean))
        if row.any()
        else torch.tensor(0.0)
        for x, row in zip(batch.x, rows, strict=True)
    ]
    return torch.stack([part.double() for part in parts])


@pytest.mark.parametrize("test", [COMPLETE, incomplete(30)], ids=["complete", "incomplete"])
def test_the_refined_bound_of_a_linear_decoder_is_the_evidence(test: Split) -> None:
    """log p(x) - bound(q) = KL[q || p(z | x)]: zero after the refinement, and the gap before it."""
    train = replace(COMPLETE)
    found, model = scores(train, test), LinearDecoder(MadeUp(train).facts)
    for name, split in (("train", train), ("test", test)):
        assert found[f"refined_bound_{name}"] == pytest.approx(
            log_evidence(split, *model.marginal()).mean().item(), rel=1e-8
        )
        batch = split.all()
        encoder = model.recognise(batch)
        assert isinstance(encoder, MultivariateNormal)
        gap = kl_divergence(encoder, model.exact(batch)).mean().item()
        assert found[f"amortisation_gap_{name}"] == pytest.approx(gap, rel=1e-8) and gap > 0.1
        difference = found[f"refined_bound_{name}"] - found[f"bound_{name}"]
        assert found[f"amortisation_gap_{name}"] == pytest.approx(difference)


def test_each_split_has_bounds_of_its_own_random_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(amortisation, "POINTS", 10)
    others = split_of(COMPLETE.all().x + 1)
    found = scores(COMPLETE, others)
    assert found.keys() == set(Amortisation.metrics) and found["bound_train"] != found["bound_test"]
    assert found == scores(COMPLETE, others) != scores(COMPLETE, others, seed=1)
    first = log_evidence(COMPLETE, *LinearDecoder(MadeUp(COMPLETE).facts).marginal())[:10]
    assert found["refined_bound_train"] != pytest.approx(first.mean().item())


def test_it_is_computed_on_request_only() -> None:
    data = MadeUp(COMPLETE)
    assert Amortisation().scores(subject(LinearDecoder, data)) == {}
    for refine in (None, False):
        Amortisation().check(Known(data.facts), data, SETTINGS | {"refine": refine})


class PointEncoder(LinearDecoder):
    latents = Amortised("point", 2, lambda outputs: nn.Identity())


class FreeRows(LinearDecoder):
    latents: Any = Free("diagonal", 2, 30)


class Together(LinearDecoder):
    lower_bound = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (PointEncoder, r"q\(z\) of PointEncoder is a point"),
        (FreeRows, "model.amortised=false has no encoder"),
        (Together, "Together has no bound of a single point"),
        (Known, "Known has no bound of a single point"),
    ],
)
def test_models_without_a_gap_are_told_why(kind: type[Known], reason: str) -> None:
    data = MadeUp(COMPLETE)
    assert not Amortisation().fits(kind(data.facts), data)
    with pytest.raises(UserError, match=rf"refine=true needs an encoder .*{reason}"):
        Amortisation().check(kind(data.facts), data, REFINED)
    Amortisation().check(LinearDecoder(data.facts), data, REFINED)


def test_the_summary_has_one_line_per_split() -> None:
    lines = Amortisation().summary(scores(COMPLETE, incomplete(30)), {})
    assert [line.split()[0] for line in lines if line] == ["bound,", "training", "test"]
    assert Amortisation().summary({"rmse": 1.0}, {}) == []


def test_a_real_model_with_a_linear_decoder_comes_close_to_the_evidence() -> None:
    """x = W z + mean + noise: a refined full q(z) is almost p(z | x), whatever the untrained encoder says.

    The training points are complete, half of the values of the test points are hidden.
    """
    x = noisy_curve(40)
    data = MadeUp(split_of(x), Missing(0.5).applied(split_of(x), "test", 0))
    model = built(data, "model=vae", "model.posterior=full", "model.decoder.hidden=[]", dtype=torch.float64)
    found = Amortisation().scores(Subject(model, data, REFINED))
    with torch.no_grad():
        zero = model.mean(torch.zeros(1, 2).double())[0]
        weight = torch.stack([model.mean(unit[None])[0] - zero for unit in torch.eye(2).double()], 1)  # [D, Q]
        covariance = weight @ weight.mT + model.likelihood.noise * torch.eye(5).double()
        exact = {"train": log_evidence(data.train, zero, covariance), "test": log_evidence(data.test, zero, covariance)}
    for name, evidence in exact.items():
        left, gap = evidence.mean().item() - found[f"refined_bound_{name}"], found[f"amortisation_gap_{name}"]
        assert abs(left) < 0.3 and gap > 3 * abs(left)
