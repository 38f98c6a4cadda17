"""The scores against hand computation, on a model whose predictions are known."""

import math

import pytest
import torch
from scipy.stats import norm
from torch import Tensor
from torch.distributions import Normal

from src.data.module import Batch, DataModule, Split
from src.evaluation.metrics import accuracy_1nn, evaluate, metrics_table, name_with_size, predictive_scores
from src.models.base import Decoder, Terms
from src.models.posterior import Point, Posterior


class Known(Decoder):
    """Encodes an image as its first two pixels; decodes to (z, level) with level set by what it is given."""

    posteriors = ("point",)

    def __init__(self) -> None:
        encoder = {"_target_": "torch.nn.Flatten", "_partial_": True}
        super().__init__((3,), 4, 2, None, False, encoder, {}, 0)

    def objective(self, batch: Batch) -> Terms:
        raise NotImplementedError

    def encode(self, x: Tensor, index: Tensor | None = None, aux: Tensor | None = None) -> Posterior:
        return Point(x[:, :2])

    def given(self, batch: Batch | None = None) -> float:
        return 0.0 if batch is None else float(batch.x.mean())

    def decode(self, z: Tensor, given: float | None = None) -> Normal:
        return Normal(torch.cat([z, torch.full((len(z), 1), given or 0.0)], 1), torch.tensor(0.5))


TEST = Split(torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, -0.5]]), torch.tensor([0, 1]))
TRAIN = Split(
    torch.tensor([[0.1, 0.9, 0.0], [0.9, 0.1, 0.0], [5.0, 5.0, 0.0], [0.0, 0.8, 0.0]]), torch.tensor([0, 1, 1, 1])
)


def test_scores_by_hand() -> None:
    """Errors are only in the third pixel: 0.5 - level and -0.5 - level, for levels 0 and 1."""
    scores = predictive_scores(Known(), TEST, TEST.x[:, :2], [0.0, 1.0])
    errors = {0.0: [0.5, -0.5], 1.0: [-0.5, -1.5]}
    rmse = [math.sqrt(sum(e**2 for e in errors[level]) / 6) for level in errors]
    mae = [sum(abs(e) for e in errors[level]) / 6 for level in errors]
    log_density = [[2 * norm.logpdf(0, 0, 0.5) + norm.logpdf(e, 0, 0.5) for e in errors[level]] for level in errors]
    nlpd = [-sum(values) / 6 for values in log_density]
    mixture = -sum(math.log((math.exp(a) + math.exp(b)) / 2) for a, b in zip(*log_density, strict=True)) / 6
    assert scores["rmse"] == pytest.approx(sum(rmse) / 2)
    assert scores["mae"] == pytest.approx(sum(mae) / 2)
    assert scores["nlpd"] == pytest.approx(sum(nlpd) / 2)
    assert scores["rmse_sd"] == pytest.approx(abs(rmse[0] - rmse[1]) / math.sqrt(2))
    assert scores["nlpd_mixture"] == pytest.approx(mixture)
    assert scores["rmse_mixture"] == pytest.approx(math.sqrt((0.0**2 + 1.0**2) / 6))
    assert scores["mae_mixture"] == pytest.approx(1 / 6)


def test_a_good_model_has_a_negative_nlpd() -> None:
    """The sign is kept: a density above 1 is a negative loss."""
    sharp = Known()
    sharp.decode = lambda z, given=None: Normal(TEST.x, torch.tensor(0.01))  # type: ignore[method-assign]
    assert predictive_scores(sharp, TEST, TEST.x[:, :2], [None])["nlpd"] == pytest.approx(-norm.logpdf(0, 0, 0.01))


class KnownData(DataModule):
    def load(self) -> tuple[Split, Split]:
        return TRAIN, TEST


def test_nearest_neighbours_and_keys() -> None:
    data = KnownData(batch_size=2)
    data.setup()
    model = Known()
    metrics = evaluate(model, data, TEST.x[:, :2], active_sets=3, condition_on=2, seed=0)
    assert metrics["accuracy_1nn"] == 1.0
    assert {"rmse", "mae", "nlpd"} <= metrics.keys() and "rmse_sd" not in metrics
    model.active_size = 1
    metrics = evaluate(model, data, TEST.x[:, :2], active_sets=3, condition_on=2, seed=0)
    assert {"rmse_sd", "nlpd_mixture", "rmse_c2", "mae_c2_sd", "nlpd_c2_mixture"} <= metrics.keys()
    assert metrics == evaluate(model, data, TEST.x[:, :2], active_sets=3, condition_on=2, seed=0)
    whole = evaluate(model, data, TEST.x[:, :2], active_sets=3, condition_on=9, seed=0)
    assert "rmse_c4" in whole and "rmse_c4_sd" not in whole


@pytest.mark.parametrize("latent_dim", [2, 20])
def test_the_nearest_of_many_neighbours_is_that_of_brute_force(latent_dim: int) -> None:
    """A tree for few latent dimensions, everything for many."""
    generator = torch.Generator().manual_seed(0)
    known, z = (torch.randn(size, latent_dim, generator=generator) for size in (20_000, 300))
    labels, expected = (torch.randint(0, 10, (len(points),), generator=generator) for points in (known, z))
    nearest = torch.cdist(z.double(), known.double()).argmin(1)
    assert accuracy_1nn(known, labels, z, labels[nearest]) == 1
    assert accuracy_1nn(known, labels, z, expected) == (labels[nearest] == expected).double().mean().item()


def test_names_and_table() -> None:
    assert [name_with_size(key, 9) for key in ("rmse", "rmse_sd", "mae_mixture")] == [
        "rmse_c9",
        "rmse_c9_sd",
        "mae_c9_mixture",
    ]
    table = metrics_table(
        {"rmse": 0.2, "mae": 0.1, "nlpd": -0.3, "rmse_sd": 0.01, "mae_sd": 0.01, "nlpd_sd": 0.02, "epochs": 3}
    )
    assert "0.2000 ± 0.0100" in table and "-0.3000 ± 0.0200" in table and "epochs" in table
