"""Scores of supervised models by hand, for classes and for real targets."""

import math

import pytest
import torch
from scipy.stats import norm
from torch import Tensor
from torch.distributions import Categorical, Distribution, Normal

from src.data.batch import split_of
from src.data.facts import Facts
from src.evaluation import prediction
from src.evaluation.prediction import Prediction
from src.evaluation.task import Subject
from tests.evaluation.subjects import SETTINGS, Known, MadeUp


class Predicting:
    """Predicts from the observation itself: its values are the probabilities, or the means of the targets."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.sizes: list[int] = []

    def as_float(self, x: Tensor) -> Tensor:
        return x.float() / 10 if x.dtype == torch.uint8 else x

    def predict(self, x: Tensor) -> Distribution:
        self.sizes.append(len(x))
        return Categorical(probs=x) if self.facts.target.kind == "class" else Normal(x, 0.5)


def scores(data: MadeUp) -> dict[str, float]:
    return Prediction().scores(Subject(Predicting(data.facts), data, SETTINGS))


def test_classes() -> None:
    """Two of three are right; bytes become floats first."""
    x = torch.tensor([[7, 2, 1], [3, 6, 1], [5, 1, 4]], dtype=torch.uint8)
    data = MadeUp(split_of(x.flip(0), torch.tensor([0, 1, 2])), split_of(x, torch.tensor([0, 1, 2])))
    nlp = -(math.log(0.7) + math.log(0.6) + math.log(0.4)) / 3
    assert scores(data) == pytest.approx({"error_rate": 1 / 3, "target_nlp": nlp}, rel=1e-6)


def test_real_targets() -> None:
    """Means over points and targets; a density in nats per target."""
    x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.5, 2.0], [2.0, 4.0]])
    nlpd = -sum(norm.logpdf(e, 0, 0.5) for e in (0.5, 0.0, 1.0, 0.0)) / 4
    expected = {"target_rmse": math.sqrt((0.5**2 + 1.0**2) / 4), "target_nlpd": nlpd}
    assert scores(MadeUp(split_of(x, y + 1), split_of(x, y))) == pytest.approx(expected, rel=1e-6)


def test_chunks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.rand(10, 4, generator=torch.Generator().manual_seed(0))
    data = MadeUp(split_of(x, torch.arange(10) % 4))
    whole = scores(data)
    monkeypatch.setattr(prediction, "CHUNK", 3)
    model = Predicting(data.facts)
    assert Prediction().scores(Subject(model, data, SETTINGS)) == pytest.approx(whole, rel=1e-6)
    assert model.sizes == [3, 3, 3, 1]


def test_it_takes_a_predictor_and_targets_in_the_test_split() -> None:
    x, y = torch.ones(4, 2), torch.arange(4)
    labelled, bare = MadeUp(split_of(x, y)), MadeUp(split_of(x, y), split_of(x))
    assert Prediction().fits(Predicting(labelled.facts), labelled)
    assert not Prediction().fits(Predicting(bare.facts), bare)
    assert not Prediction().fits(Known(labelled.facts), labelled)
