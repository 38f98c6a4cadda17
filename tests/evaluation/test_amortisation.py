"""The amortisation gap: exact for a linear decoder, whose refined bound is the evidence of each point."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.distributions import MultivariateNormal, kl_divergence

from src.data.batch import Split, split_of
from src.evaluation import amortisation
from src.evaluation.amortisation import Amortisation
from src.evaluation.task import Scores
from src.models.posterior import Amortised, Free
from src.runs.errors import UserError
from tests.evaluation.subjects import SETTINGS, Known, LinearDecoder, MadeUp, incomplete, subject

REFINED = SETTINGS | {"refine": True}
COMPLETE = split_of(incomplete(30).truth(torch.arange(30)))


def scores(train: Split, test: Split, seed: int = 0) -> Scores:
    return Amortisation().scores(subject(LinearDecoder, MadeUp(train, test), seed, refine=True))


def log_evidence(split: Split) -> Tensor:
    """log p(observed values) of each point, from the joint Gaussian."""
    batch = split.all()
    mean, covariance = LinearDecoder.marginal(LinearDecoder)  # type: ignore[arg-type]
    rows = torch.ones_like(batch.x, dtype=torch.bool) if batch.mask is None else batch.mask
    parts = [
        MultivariateNormal(mean[row], covariance[row][:, row]).log_prob(x[row]) if row.any() else torch.tensor(0.0)
        for x, row in zip(batch.x, rows, strict=True)
    ]
    return torch.stack([part.double() for part in parts])


@pytest.mark.parametrize("test", [COMPLETE, incomplete(30)], ids=["complete", "incomplete"])
def test_the_refined_bound_of_a_linear_decoder_is_the_evidence(test: Split) -> None:
    """log p(x) - bound(q) = KL[q || p(z | x)]: zero after the refinement, and the gap before it."""
    train = replace(COMPLETE)
    found = scores(train, test)
    model = LinearDecoder(MadeUp(train).facts)
    for name, split in (("train", train), ("test", test)):
        assert found[f"refined_bound_{name}"] == pytest.approx(log_evidence(split).mean().item(), rel=1e-8)
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
    assert found["refined_bound_train"] != pytest.approx(log_evidence(COMPLETE)[:10].mean().item())


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
