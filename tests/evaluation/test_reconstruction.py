"""The scores against hand computation, on a model whose predictions are known."""

import math
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor
from torch.distributions import Normal

from src.data.batch import Batch, Split, split_of
from src.evaluation import reconstruction
from src.evaluation.reconstruction import (
    Reconstruction,
    active_sets,
    column_rmse,
    is_affordable,
    predictive_scores,
    with_sd,
    with_size,
)
from src.models.warp import LogitWarp
from tests.evaluation.subjects import Known, KnownActive, KnownBits, MadeUp, built, noisy_curve, subject

TEST = split_of(torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, -0.5]]))
TRAIN = split_of(torch.tensor([[0.1, 0.9, 0.0], [0.9, 0.1, 0.0], [5.0, 5.0, 0.0], [0.0, 0.8, 0.0]]))
DATA = MadeUp(TRAIN, TEST, batch_size=2)


def first_two(split: Split) -> Tensor:
    return split.all().x[:, :2].nan_to_num()


def test_scores_by_hand() -> None:
    """Errors are only in the third value: 0.5 - level and -0.5 - level, for levels 0 and 1."""
    scores = predictive_scores(Known(DATA.facts), TEST, first_two(TEST), [0.0, 1.0])
    errors = {0.0: [0.5, -0.5], 1.0: [-0.5, -1.5]}
    rmse = [math.sqrt(sum(e**2 for e in errors[level]) / 6) for level in errors]
    mae = [sum(abs(e) for e in errors[level]) / 6 for level in errors]
    log_density = [[2 * norm.logpdf(0, 0, 0.5) + norm.logpdf(e, 0, 0.5) for e in errors[level]] for level in errors]
    nlpd = [-sum(values) / 6 for values in log_density]
    mixture = -sum(math.log((math.exp(a) + math.exp(b)) / 2) for a, b in zip(*log_density, strict=True)) / 6
    expected: dict[str, float] = {}
    for name, values in {"rmse": rmse, "mae": mae, "nlpd": nlpd}.items():
        expected |= {name: sum(values) / 2, f"{name}_sd": abs(values[0] - values[1]) / math.sqrt(2)}
    expected |= {"rmse_mixture": math.sqrt((0.0**2 + 1.0**2) / 6), "mae_mixture": 1 / 6, "nlpd_mixture": mixture}
    assert scores == pytest.approx(expected, rel=1e-6)


def test_a_good_model_has_a_negative_nlpd() -> None:
    """The sign is kept: a density above 1 is a negative loss."""

    class Sharp(Known):
        def decode(self, z: Tensor, given: float | None = None, aux: Tensor | None = None) -> Normal:
            return Normal(TEST.all().x, torch.tensor(0.01))

    scores = predictive_scores(Sharp(DATA.facts), TEST, first_two(TEST), [None])
    assert scores["nlpd"] == pytest.approx(-norm.logpdf(0, 0, 0.01))


def test_chunks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups that are not neighbours come in another order, each point with its own latents."""
    test = split_of(torch.randn(50, 3, generator=torch.Generator().manual_seed(0)), groups=torch.arange(50) % 7)
    model, z = Known(DATA.facts), torch.randn(50, 2, generator=torch.Generator().manual_seed(1))
    whole = predictive_scores(model, test, z, [0.0, 1.0])
    monkeypatch.setattr(reconstruction, "CHUNK", 16)
    assert predictive_scores(model, test, z, [0.0, 1.0]) == pytest.approx(whole, rel=1e-6)


def test_missing_values_count_in_nothing() -> None:
    """The errors 0.5 of the first and -0.5 of the second point are left; of the others one value is missing."""
    nan = math.nan
    x = torch.tensor([[0.0, 1.0, 0.5], [1.0, nan, -0.5], [2.0, 2.0, nan], [nan, nan, nan]])
    test = split_of(x, mask=~x.isnan())
    scores = predictive_scores(Known(DATA.facts), test, first_two(test), [0.0, 1.0])
    errors = {0.0: [0.5, -0.5], 1.0: [-0.5, -1.5]}
    rmse = [math.sqrt(sum(e**2 for e in errors[level]) / 7) for level in errors]
    mae = [sum(abs(e) for e in errors[level]) / 7 for level in errors]
    nlpd = [-(5 * norm.logpdf(0, 0, 0.5) + sum(norm.logpdf(e, 0, 0.5) for e in errors[level])) / 7 for level in errors]
    for name, values in {"rmse": rmse, "mae": mae, "nlpd": nlpd}.items():
        assert scores[name] == pytest.approx(sum(values) / 2, rel=1e-6)
    assert scores["rmse_mixture"] == pytest.approx(math.sqrt(1 / 7), rel=1e-6)


def test_what_stands_at_a_missing_value_does_not_matter() -> None:
    mask = torch.tensor([[True, True, False], [True, False, True]])
    first, second = (replace(TEST, mask=mask, storage=split_of(TEST.all().x.where(mask, v)).storage) for v in (9.0, -3))
    scores = [predictive_scores(Known(DATA.facts), test, first_two(TEST), [0.0, 1.0]) for test in (first, second)]
    assert scores[0] == scores[1]


def test_bits_have_a_probability_and_no_density() -> None:
    """NLP is the mean binary cross-entropy in nats, and has a name of its own."""
    bits = split_of(torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]]))
    z = torch.tensor([[1.5, 0.0], [-0.3, 0.0]])
    scores = predictive_scores(KnownBits(DATA.facts), bits, z, [None])
    p = [1 / (1 + math.exp(-1.5)), 1 / (1 + math.exp(0.3))]
    entropy = -(2 * math.log(p[0]) + math.log(1 - p[0]) + 3 * math.log(1 - p[1])) / 6
    assert scores["nlp"] == pytest.approx(entropy, rel=1e-6) and "nlpd" not in scores
    assert scores["nlp"] == pytest.approx(
        torch.nn.functional.binary_cross_entropy_with_logits(z[:, :1].expand(-1, 3), bits.all().x).item()
    )
    assert scores["nlp_bits"] == pytest.approx(entropy / math.log(2), rel=1e-6)
    assert scores["nlp_point"] == pytest.approx(3 * entropy, rel=1e-6)
    frames = predictive_scores(KnownBits(replace(DATA.facts, group="video")), bits, z, [None])
    assert frames.keys() == {"rmse", "mae", "nlp"}
    squared = [2 * (1 - p[0]) ** 2 + p[0] ** 2, 3 * p[1] ** 2]
    assert scores["rmse"] == pytest.approx(math.sqrt(sum(squared) / 6), rel=1e-6)


def test_a_model_without_active_sets_is_scored_once() -> None:
    scores = Reconstruction().scores(subject(Known, DATA))
    assert scores.keys() == {"rmse", "mae", "nlpd"}
    assert scores["rmse"] == pytest.approx(math.sqrt(0.5 / 6))


def test_active_sets_of_two_sizes_have_names_of_their_own() -> None:
    scores = Reconstruction().scores(subject(KnownActive, DATA))
    names = [f"{name}{size}" for name in ("rmse", "mae", "nlpd") for size in ("", "_c2")]
    assert scores.keys() == {f"{name}{ending}" for name in names for ending in ("", "_sd", "_mixture")}
    assert scores == Reconstruction().scores(subject(KnownActive, DATA))
    assert scores != Reconstruction().scores(subject(KnownActive, DATA, seed=1))


def test_incomplete_active_sets_that_do_not_fit_into_memory_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless there are enough complete points; the model's own size is always scored."""
    mask = torch.rand(40, 6, generator=torch.Generator().manual_seed(0)) > 0.3
    mask[:, 0] = torch.arange(40) % 2 == 0  # no odd point is complete
    mask[:, 1] = ~mask[:, 0]  # nor is an even one
    data = MadeUp(split_of(torch.zeros(40, 6), mask=mask))
    assert data.train.mask is not None and data.facts.patterns > 1
    assert is_affordable(data, 20)
    monkeypatch.setattr(reconstruction, "MOST_NUMBERS", data.facts.patterns * 20**2 - 1)
    assert not is_affordable(data, 20) and is_affordable(data, 19)
    data.train.mask[:20] = True
    assert is_affordable(data, 20) and not is_affordable(data, 21)


def test_all_of_the_training_data_is_one_active_set() -> None:
    whole = Reconstruction().scores(subject(KnownActive, DATA, condition_on=9))
    assert "rmse_c4" in whole and "rmse_c4_sd" not in whole and "rmse_sd" in whole
    level = TRAIN.all().x.mean().item()
    assert whole["rmse_c4"] == pytest.approx(math.sqrt(((0.5 - level) ** 2 + (0.5 + level) ** 2) / 6))


class Listing(KnownActive):
    """What it is given is the rows of the active set."""

    def given(self, batch: Batch | None = None) -> tuple[int, ...]:  # type: ignore[override]
        assert batch is not None
        return tuple(sorted(batch.index.tolist()))


def test_active_sets_differ_from_each_other() -> None:
    train = split_of(torch.zeros(50, 3))
    sets = active_sets(Listing(DATA.facts), train, 10, 5, seed=0)
    assert all(len(set(rows)) == 10 for rows in sets)
    assert all(first != second for first, second in combinations(sets, 2))
    assert sets == active_sets(Listing(DATA.facts), train, 10, 5, seed=0)
    others = [active_sets(Listing(DATA.facts), train, size, 5, seed) for size, seed in ((10, 1), (11, 0))]
    assert sets[0] != others[0][0] and not set(sets[0]) <= set(others[1][0])


def test_scores_scatter_over_active_sets() -> None:
    x = torch.arange(30.0)[:, None].expand(30, 3)
    data = MadeUp(split_of(x), TEST, batch_size=2)
    scores = Reconstruction().scores(subject(KnownActive, data, condition_on=5, active_sets=4))
    assert all(scores[f"{name}_sd"] > 0 for name in ("rmse", "mae", "nlpd", "rmse_c5"))
    assert scores["nlpd_mixture"] < scores["nlpd"] and scores["rmse_mixture"] < scores["rmse"]


@torch.no_grad()
def test_a_real_model_is_conditioned_on_the_points_drawn() -> None:
    """Given everything, a SAS model is the GP that conditions on all training points."""
    data = MadeUp(split_of(noisy_curve()), batch_size=30)
    model = built(data, "model=sas", "active_set.size=20", dtype=torch.float64)
    one = active_sets(model, data.train, 60, 4, seed=0)
    assert len(one) == 1 and len(one[0].z) == 60
    z = model.encode(data.test.all(), seen=False).mean
    scores = predictive_scores(model, data.test, z, one)
    p = model.decode(z, model.given(data.train.all()))
    x = data.test.all().x.double()
    assert scores["rmse"] == pytest.approx((p.mean - x).square().mean().sqrt().item())
    assert scores["nlpd"] == pytest.approx(-p.log_prob(x).mean().item())


def test_sizes_in_names() -> None:
    scores = dict.fromkeys(("rmse", "rmse_sd", "mae_mixture"), 1.0)
    assert list(with_size(scores, 9)) == ["rmse_c9", "rmse_c9_sd", "mae_c9_mixture"]


def test_a_value_is_shown_with_its_sd() -> None:
    assert with_sd({"rmse": 0.20231, "rmse_sd": 0.00041}, "rmse") == "0.2023 ± 0.0004"
    assert with_sd({"rmse": 0.20231}, "rmse") == "0.2023"


def test_the_summary_has_one_line_per_kind_of_active_set() -> None:
    scores = {f"{name}{size}{ending}": 0.2 for name in ("rmse", "mae", "nlpd") for size in ("", "_c9")
              for ending in ("", "_sd", "_mixture")} | {"nlpd": -0.3}  # fmt: skip
    lines = Reconstruction().summary(scores, {"rmse": "0.1 ± 0.01"})
    assert [line[:20].strip() for line in lines] == [
        "test data",
        "given an active set",
        "published",
        "mixture over sets",
        "given 9 points",
        "mixture over sets",
        "",
    ]
    assert lines[1].split()[4:] == ["0.2000", "±", "0.2000", "0.2000", "±", "0.2000", "-0.3000", "±", "0.2000"]
    assert lines[2].split() == ["published", "0.1", "±", "0.01"]
    assert Reconstruction().summary({"epochs": 3}, {}) == []


def test_the_figure_shows_the_first_test_points() -> None:
    ((name, figure),) = Reconstruction().figures(subject(Known, DATA))
    assert name == "reconstructions" and len(figure.axes) == 2
    observation, reconstruction_line = figure.axes[1].lines
    assert np.array_equal(observation.get_ydata(), [1.0, 0.0, -0.5])
    assert np.array_equal(reconstruction_line.get_ydata(), [1.0, 0.0, 0.0])


def test_the_figure_shows_points_of_different_classes_between_the_limits_of_the_data() -> None:
    """Of 30 points of the classes 0, 1 and 2, the first ten are alike."""
    x, y = torch.randn(30, 1, 1, 2, generator=torch.Generator().manual_seed(0)), torch.arange(30) // 10
    drawn: dict[str, Any] = dict(Reconstruction().figures(subject(Flat, MadeUp(split_of(x, y)))))
    shown = x[[0, 1, 2, 3, 10, 11, 12, 20, 21, 22], 0, 0]
    for axes in drawn["reconstructions"].axes[:2]:  # the points, and their reconstructions, which are the same
        picture = axes.images[0].get_array().reshape(10, 3)[:, :2]
        np.testing.assert_allclose(picture, (shown - x.min()) / (x.max() - x.min()), rtol=1e-5)


class Flat(Known):
    """Pictures of two pixels, which its latents are."""

    def decode(self, z: Tensor, given: float | None = None, aux: Tensor | None = None) -> Normal:
        return Normal(z.view(-1, 1, 1, 2), 1.0)


def test_the_error_of_each_column_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the third column is not reconstructed; missing values do not count."""
    monkeypatch.setattr(reconstruction, "CHUNK", 2)
    x = torch.tensor([[0.0, 1.0, 3.0], [1.0, 0.0, -4.0], [2.0, 2.0, math.nan]])
    data = MadeUp(split_of(x, mask=~x.isnan()))
    torch.testing.assert_close(column_rmse(subject(Known, data)), torch.tensor([0, 0, 12.5**0.5], dtype=torch.float64))
    x[:, 2] = math.nan
    assert column_rmse(subject(Known, MadeUp(split_of(x, mask=~x.isnan())))).tolist() == [0, 0, 0]


def test_tables_have_a_figure_of_their_columns() -> None:
    data = MadeUp(TRAIN, TEST, batch_size=2)
    data.columns = ("a", "b", "c")
    figures = dict(Reconstruction().figures(subject(Known, data)))
    assert list(figures) == ["reconstructions", "columns"]
    axes = figures["columns"].axes[0]
    assert axes.get_yticklabels()[0].get_text() == "c" and axes.get_xlabel() == "RMSE of the value"
    assert figures["reconstructions"].axes[0].get_yticklabels()[1].get_text() == "b"


def test_bytes_through_a_warp_have_bits_per_dimension() -> None:
    """8 + nlpd / log 2; floats have a density alone."""
    model = Known(DATA.facts)
    for levels, names in ((256, {"bpd"}), (0, set())):
        model.warp = LogitWarp(levels)  # type: ignore[attr-defined]
        scores = predictive_scores(model, TEST, first_two(TEST), [0.0])
        assert scores.keys() == {"rmse", "mae", "nlpd"} | names
        if levels:
            assert scores["bpd"] == pytest.approx(8 + scores["nlpd"] / math.log(2))
