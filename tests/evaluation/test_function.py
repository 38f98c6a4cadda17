"""The density of noise-free test targets under p(f(x))."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from src.data.batch import split_of
from src.evaluation import function
from src.evaluation.function import FunctionValues
from src.evaluation.task import Subject
from tests.evaluation.subjects import SETTINGS, MadeUp


class Curve(MadeUp):
    noise_free_test = True


class Guess:
    """Predicts f = x + what it is given, with sd 0.5, and noise beyond that."""

    device = torch.device("cpu")

    def __init__(self, facts: Any) -> None:
        self.facts = facts

    def as_float(self, x: Tensor) -> Tensor:
        return x

    def given(self, batch: Any = None) -> float:
        return 1.0

    def predict(self, x: Tensor, given: Any = None) -> Normal:
        return Normal(x + given, 3.0)

    def predict_function(self, x: Tensor, given: Any = None) -> Normal:
        return Normal(x + given, 0.5)


def data_of(kind: type[MadeUp] = Curve) -> MadeUp:
    x = torch.linspace(0, 1, 7)[:, None]
    return kind(split_of(x, x), split_of(x, x + 0.8))


def test_the_score_is_the_mean_log_density_of_the_function(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(function, "CHUNK", 3)
    data = data_of()
    scores = FunctionValues().scores(Subject(Guess(data.facts), data, SETTINGS))
    assert scores == {
        "function_log_density": pytest.approx(Normal(0.2, 0.5).log_prob(torch.zeros(())).item(), rel=1e-6)
    }


def test_it_takes_noise_free_targets_and_models_of_functions() -> None:
    data = data_of()
    assert FunctionValues().fits(Guess(data.facts), data)
    assert not FunctionValues().fits(Guess(data.facts), data_of(MadeUp)) and not FunctionValues().fits(object(), data)
