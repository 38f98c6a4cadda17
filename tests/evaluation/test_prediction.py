"""Scores of supervised models by hand, for classes and for real targets."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy.stats import norm
from torch import Tensor
from torch.distributions import Categorical, Distribution, MixtureSameFamily, Normal

from src.data.batch import Batch, split_of
from src.data.facts import Facts
from src.evaluation import prediction
from src.evaluation.prediction import Prediction, bins, calibration_error, confidently_wrong, confusion
from src.evaluation.reconstruction import with_size
from src.evaluation.registry import draw, metric
from src.evaluation.task import Subject
from src.runs.randomness import stream
from tests.evaluation.subjects import SETTINGS, Known, MadeUp


class Predicting:
    """Predicts from the observation itself: its values are the probabilities, or the means of the targets."""

    device, dtype = torch.device("cpu"), torch.float32

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.sizes: list[int] = []

    def as_float(self, x: Tensor) -> Tensor:
        return x.float() / 10 if x.dtype == torch.uint8 else x

    def given(self, batch: Batch | None = None) -> Any:
        return None

    def predict(self, x: Tensor, given: Any = None) -> Distribution:
        self.sizes.append(len(x))
        return Categorical(probs=x) if self.facts.target.kind == "class" else Normal(x, 0.5)


class FromPoints(Predicting):
    """Adds the mean target of its active set to what it predicts; a class gets more likely the more points it has."""

    active_size = 2

    def given(self, batch: Batch | None = None) -> Tensor:
        assert batch is not None and batch.y is not None
        self.sets = [*getattr(self, "sets", []), len(batch)]
        return batch.y.double().mean(0).float()

    def predict(self, x: Tensor, given: Any = None) -> Distribution:
        if self.facts.target.kind == "real":
            return Normal(x + given, 0.5)
        return Categorical(probs=torch.cat([x[:, :1] + given, x[:, 1:]], 1))


def scores(data: MadeUp, model: type[Predicting] = Predicting) -> dict[str, float]:
    return Prediction().scores(Subject(model(data.facts), data, SETTINGS))


def class_data() -> MadeUp:
    x = torch.tensor([[7, 2, 1], [3, 6, 1], [5, 1, 4]], dtype=torch.uint8)
    return MadeUp(split_of(x.flip(0), torch.tensor([0, 1, 2])), split_of(x, torch.tensor([0, 1, 2])))


def real_data() -> MadeUp:
    x, y = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[1.5, 2.0], [2.0, 4.0]])
    train = split_of(x, torch.tensor([[0.0, 10.0], [4.0, 30.0]]))
    return MadeUp(train, split_of(x, y))


def test_classes() -> None:
    """Two of three are right; bytes become floats first."""
    nlp = -(math.log(0.7) + math.log(0.6) + math.log(0.4)) / 3
    ece = (abs(0 - 0.5) + abs(1 - 0.6) + abs(1 - 0.7)) / 3
    expected = {"error_rate": 1 / 3, "target_nlp": nlp, "ece": ece}
    assert scores(class_data()) == pytest.approx(expected, rel=1e-6)


def test_real_targets() -> None:
    """Means over points and targets; a density in nats per target; SMSE by the variance of the training targets."""
    errors = (0.5, 0.0, 1.0, 0.0)
    smse = [(0.5**2 + 1) / 2 / 4, 0.0]
    expected = {
        "target_rmse": math.sqrt((0.5**2 + 1.0**2) / 4),
        "target_mae": 1.5 / 4,
        "target_nlpd": -sum(norm.logpdf(e, 0, 0.5) for e in errors) / 4,
        "smse": sum(smse) / 2,
        "coverage_50": 2 / 4,  # errors up to 0.337
        "coverage_90": 3 / 4,  # errors up to 0.822
        "smse_t1": smse[0],
        "smse_t2": smse[1],
    }
    assert scores(real_data()) == pytest.approx(expected, rel=1e-6)


def test_coverage_is_that_of_the_intervals_of_any_distribution() -> None:
    """The targets of a mixture of two normals, which has no closed-form intervals, at its own quantiles."""

    class Mixture(Predicting):
        def predict(self, x: Tensor, given: Any = None) -> Distribution:
            parts = Normal(torch.cat([x - 1, x + 1], 1).unsqueeze(1), 0.5)
            return MixtureSameFamily(Categorical(torch.ones(len(x), 1, 2)), parts)

    generator = torch.Generator().manual_seed(0)
    sign = torch.randint(0, 2, (4000, 1), generator=generator) * 2 - 1
    y = sign + 0.5 * torch.randn(4000, 1, generator=generator)
    found = scores(MadeUp(split_of(torch.zeros(4000, 1), y)), Mixture)
    assert found["coverage_50"] == pytest.approx(0.5, abs=0.03) and found["coverage_90"] == pytest.approx(0.9, abs=0.02)
    assert "smse_t1" not in found and found["smse"] == pytest.approx(1, abs=0.05)


def test_the_calibration_error_has_15_bins_of_the_top_probability() -> None:
    """Points of one bin are judged together: half of them right at 0.5 is perfect."""
    p = torch.tensor([[0.51, 0.49], [0.49, 0.51], [0.95, 0.05], [0.05, 0.95], [1.0, 0.0]], dtype=torch.float64)
    y = torch.tensor([0, 0, 0, 0, 0])
    found = bins(p, y)
    assert len(found.points) == 15 and found.points.tolist() == [0] * 7 + [2] + [0] * 6 + [3]
    assert found.accuracy[[7, 14]].tolist() == pytest.approx([0.5, 2 / 3])
    assert found.confidence[[7, 14]].tolist() == pytest.approx([0.51, 2.9 / 3])
    assert calibration_error(found) == pytest.approx((2 * 0.01 + 3 * 0.3) / 5)


def test_confusion_and_the_most_confident_mistakes(monkeypatch: pytest.MonkeyPatch) -> None:
    p = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.9, 0.0], [0.3, 0.0, 0.7], [0.0, 1.0, 0.0]])
    y = torch.tensor([1, 0, 0, 1])
    assert confusion(p, y).tolist() == [[0, 1, 1], [1, 1, 0], [0, 0, 0]]
    assert confidently_wrong(p, y).tolist() == [1, 2, 0]
    monkeypatch.setattr(prediction, "SHOWN", 2)
    assert confidently_wrong(p, y).tolist() == [1, 2]


def test_active_sets_of_two_sizes_each_alone_and_mixed() -> None:
    x = torch.arange(6.0)[:, None]
    train = split_of(x, torch.tensor([[0.0], [1.0], [4.0], [9.0], [16.0], [25.0]]))
    data = MadeUp(train, split_of(x[:2], torch.tensor([[8.0], [9.0]])))
    settings = SETTINGS | {"active_sets": 3, "condition_on": 4}
    model = FromPoints(data.facts)
    found = Prediction().scores(Subject(model, data, settings))
    assert model.sets == [2, 2, 2, 4, 4, 4]
    means = [data.train.draw(2, stream(0, 2, i)).y for i in range(3)]
    levels = [float(y.mean()) for y in means if y is not None]
    errors = [level - 8 for level in levels]  # of both test points
    assert min(errors) < 0 < max(errors)
    singles = torch.tensor(errors, dtype=torch.float64).abs()
    assert found["target_rmse"] == pytest.approx(singles.mean().item(), rel=1e-5)
    assert found["target_rmse_sd"] == pytest.approx(singles.std().item(), rel=1e-5)
    assert found["target_rmse_mixture"] == pytest.approx(abs(sum(errors) / 3), rel=1e-5)
    densities = [norm.pdf(error, 0, 0.5) for error in errors]
    assert found["target_nlpd_mixture"] == pytest.approx(-math.log(sum(densities) / 3), rel=1e-4)
    assert {"target_rmse_c4", "smse_c4_sd", "coverage_50_c4_mixture"} <= found.keys()
    assert all(metric(name) for name in found)


def test_the_mixture_of_classes_is_the_mean_of_probabilities() -> None:
    x = torch.tensor([[0.2, 0.8], [0.5, 0.5], [0.9, 0.1], [0.4, 0.6]])
    data = MadeUp(split_of(x, torch.tensor([0, 0, 1, 1])))
    model = FromPoints(data.facts)
    givens = [torch.tensor(0.0), torch.tensor(1.0)]
    *single, mixture = prediction.predicted(model, data.test, givens)
    expected = torch.stack([model.predict(x, given).probs for given in givens]).mean(0)  # type: ignore[attr-defined]
    torch.testing.assert_close(mixture.p.exp(), expected.double(), rtol=1e-5, atol=0)
    assert len(single) == 2


def test_one_set_of_all_training_points_has_no_spread() -> None:
    x = torch.tensor([[0.2, 0.8], [0.5, 0.5]])
    found = scores(MadeUp(split_of(x, torch.tensor([0, 1]))), FromPoints)
    assert found.keys() == {"error_rate", "target_nlp", "ece"}


def test_names_with_sizes() -> None:
    names = with_size({"error_rate": 1.0, "error_rate_sd": 2.0, "smse_t3_mixture": 3.0}, 60)
    assert names == {"error_rate_c60": 1.0, "error_rate_c60_sd": 2.0, "smse_t3_c60_mixture": 3.0}
    found = metric("smse_t3_c60_mixture")
    assert found is not None and found.label == "SMSE of target 3 given 60 points of the mixture"


def test_chunks_add_up_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups are scored together, so that chunks do not come in the order of the rows."""
    x = torch.rand(10, 4, generator=torch.Generator().manual_seed(0))
    data = MadeUp(split_of(x, torch.arange(10) % 4, groups=torch.arange(10) % 3))
    whole = scores(MadeUp(split_of(x, torch.arange(10) % 4)))
    monkeypatch.setattr(prediction, "CHUNK", 3)
    model = Predicting(data.facts)
    assert Prediction().scores(Subject(model, data, SETTINGS)) == pytest.approx(whole, rel=1e-6)
    assert model.sizes == [4, 3, 3]


def test_it_takes_a_predictor_and_targets_in_the_test_split() -> None:
    x, y = torch.ones(4, 2), torch.arange(4)
    labelled, bare = MadeUp(split_of(x, y)), MadeUp(split_of(x, y), split_of(x))
    assert Prediction().fits(Predicting(labelled.facts), labelled)
    assert not Prediction().fits(Predicting(bare.facts), bare)
    assert not Prediction().fits(Known(labelled.facts), labelled)


def test_figures_of_images_of_vectors_and_of_real_targets(tmp_path: Path) -> None:
    images = torch.softmax(torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), 1)

    class OfImages(Predicting):
        def predict(self, x: Tensor, given: Any = None) -> Distribution:
            return Categorical(probs=x.flatten(1))

    def drawn(x: Tensor, y: Tensor, model: type[Predicting], name: str) -> list[str]:
        data = MadeUp(split_of(x, y))
        draw(Subject(model(data.facts), data, SETTINGS), tmp_path / name)
        return sorted(path.stem for path in (tmp_path / name).glob("*.png"))

    y = torch.arange(30) % 3
    assert drawn(images.view(-1, 1, 1, 3), y, OfImages, "images") == ["confidently_wrong", "reliability"]
    assert drawn(images, y, Predicting, "vectors") == ["reliability"]
    assert drawn(images.view(-1, 1, 1, 3), images.argmax(1), OfImages, "right") == ["reliability"]
    assert drawn(images, images, Predicting, "reals") == []


def test_the_summary_is_a_table_with_published_values() -> None:
    found = {
        "error_rate": 0.0143,
        "error_rate_sd": 0.0004,
        "target_nlp": 0.05,
        "ece": 0.004,
        "error_rate_mixture": 0.014,
    }
    found |= {"error_rate_c2000": 0.013, "ece_c2000": 0.003, "rmse": 1.0}
    lines = Prediction().summary(found, {"error_rate": "0.017"})
    assert lines[0].split() == ["targets", "error_rate", "target_nlp", "ece"]
    assert [line[:20].strip() for line in lines[1:-1]] == [
        "given an active set",
        "published",
        "mixture over sets",
        "given 2000 points",
    ]
    assert "0.0143 ± 0.0004" in lines[1] and "0.017" in lines[2] and lines[4].split()[-2:] == ["0.0130", "0.0030"]
    assert Prediction().summary({"rmse": 1.0}, {}) == []
