"""Scores of hidden values: against Gaussian conditioning, by hand, and against brute force."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch import Tensor

from src.data.batch import Batch, Split, Storage, split_of
from src.data.missing import Missing
from src.evaluation import imputation
from src.evaluation.imputation import (
    Imputation,
    baseline_scores,
    baselines,
    draws,
    imputation_scores,
    imputed,
    means_and_medians,
    nearest_rows,
    training_mean,
)
from src.evaluation.task import Scores, Subject
from tests.evaluation.subjects import (
    SETTINGS,
    Known,
    KnownActive,
    KnownBits,
    LinearDecoder,
    MadeUp,
    built,
    incomplete,
    noisy_curve,
    subject,
)

NAMES = [f"imputation_{name}{middle}" for name in ("rmse", "mae", "nlpd") for middle in ("", "_median")]
MEAN = {f"mean_imputation_{name}{middle}" for name in ("rmse", "mae") for middle in ("", "_median")}


def linear(test: Split, train: Split | None = None) -> Subject:
    return subject(LinearDecoder, MadeUp(train or incomplete(20), test))


def conditional(x: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and sd [D] of each value of one point given its observed ones, from the joint Gaussian; noise included."""
    mean, covariance = LinearDecoder.marginal(LinearDecoder)  # type: ignore[arg-type]
    gain = torch.linalg.solve(covariance[mask][:, mask], covariance[mask]).mT
    return mean + gain @ (x - mean)[mask], (covariance - gain @ covariance[mask]).diagonal().clamp_min(0).sqrt()


def test_hidden_values_have_their_exact_conditional_distribution(monkeypatch: pytest.MonkeyPatch) -> None:
    """A linear decoder with the exact q(z | observed) predicts p(hidden | observed) of the joint Gaussian.

    Samples come in pairs, so the mean has no error at all; the density has that of 4000 samples.
    """
    monkeypatch.setattr(imputation, "DRAWS", 4000)
    test = incomplete(40)
    found = linear(test)
    assert test.mask is not None and test.hidden is not None
    truth = test.truth(torch.arange(40))
    means, sds = map(torch.stack, zip(*(conditional(truth[i], test.mask[i]) for i in range(40)), strict=True))
    error, hidden = truth - means, test.hidden
    scores = Imputation().scores(found)
    assert scores["imputation_rmse"] == pytest.approx(error[hidden].square().mean().sqrt().item(), rel=1e-10)
    assert scores["imputation_mae"] == pytest.approx(error[hidden].abs().mean().item(), rel=1e-10)
    nlpd = -norm.logpdf(error, 0, sds.clamp_min(1e-9))  # observed values have none, and do not count
    assert scores["imputation_nlpd"] == pytest.approx(nlpd[hidden.numpy()].mean(), abs=3e-3)
    points = [i for i in range(40) if hidden[i].any()]
    medians = [np.median([nlpd[i][hidden[i].numpy()].mean() for i in points])]
    medians += [np.median([error[i][hidden[i]].square().mean().sqrt() for i in points])]
    assert scores["imputation_nlpd_median"] == pytest.approx(medians[0], abs=5e-3)
    assert scores["imputation_rmse_median"] == pytest.approx(medians[1], rel=1e-10)
    shown = imputed(found, torch.arange(40))
    torch.testing.assert_close(shown.mean[hidden], means[hidden])
    torch.testing.assert_close(shown.sd[hidden], sds[hidden], rtol=0.08, atol=0.0)


def test_hiding_everything_leaves_the_prior(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imputation, "DRAWS", 4000)
    found = linear(incomplete(30, kept=0.0))
    mean, covariance = found.model.marginal()
    shown = imputed(found, torch.arange(30))
    torch.testing.assert_close(shown.mean, mean.expand(30, 5))
    torch.testing.assert_close(shown.sd, covariance.diagonal().sqrt().expand(30, 5), rtol=0.08, atol=0.0)


def changed_truth(split: Split, by: float) -> Split:
    assert split.hidden is not None
    x = split.truth(torch.arange(len(split)))
    return replace(split, storage=Storage(torch.where(split.hidden, x + by, x)))


def test_the_truth_is_for_scoring_only() -> None:
    """Other hidden values change no prediction, and every score; other observed values change predictions."""
    test = incomplete(20)
    first, second = linear(test), linear(changed_truth(test, 1000.0))
    rows = torch.arange(20)
    for mine, theirs in zip(imputed(first, rows), imputed(second, rows), strict=True):
        assert torch.equal(mine, theirs)
    before, after = (Imputation().scores(each) for each in (first, second))
    assert before.keys() == after.keys() == {*NAMES, *MEAN}
    assert all(after[name] > before[name] + 100 for name in before if "nlpd" not in name)
    assert all(after[name] > before[name] + 1000 for name in before if "nlpd" in name)


@torch.no_grad()
@pytest.mark.parametrize("name", ["bayesian_sas", "vae"])
def test_real_models_do_not_see_the_truth(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither while their q(z) is refined nor while they predict; observed values do matter."""
    monkeypatch.setattr("src.models.refining.REFINING_STEPS", 20)
    x = noisy_curve(30)
    options = ["active_set.size=10"] if name == "bayesian_sas" else []
    hidden = Missing(0.4).applied(split_of(x), "test", 0)
    data = MadeUp(split_of(x), hidden)
    model = built(data, f"model={name}", *options)
    rows = torch.arange(30)
    found = Subject(model, data, SETTINGS)
    other = Subject(model, MadeUp(split_of(x), changed_truth(hidden, 5.0)), SETTINGS)
    for mine, theirs in zip(imputed(found, rows), imputed(other, rows), strict=True):
        assert torch.equal(mine, theirs) and not mine.isnan().any()
    seen = Subject(model, MadeUp(split_of(x), replace(hidden, storage=Storage(x + 0.5))), SETTINGS)
    assert not torch.allclose(imputed(found, rows).mean, imputed(seen, rows).mean, atol=1e-3)
    scores = [Imputation().scores(each) for each in (found, other)]
    assert scores[1]["imputation_mae"] > scores[0]["imputation_mae"] + 3


def test_observed_values_are_not_scored() -> None:
    """A decoder that is wrong at observed values only has the scores of one that is right there."""

    class Wrong(LinearDecoder):
        def decode(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Any:
            p = super().decode(z)
            assert test.mask is not None
            return torch.distributions.Normal(p.mean + 100 * test.mask, p.stddev)

    test = incomplete(20)
    right, wrong = (subject(kind, MadeUp(incomplete(9), test)) for kind in (LinearDecoder, Wrong))
    assert Imputation().scores(right) == Imputation().scores(wrong)


KNOWN = torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, -0.5], [2.0, 2.0, 3.0], [1.0, 1.0, 9.0]])
THIRD = torch.tensor([[False, False, True]]).expand(4, 3).clone()
THIRD[3] = False  # a point without hidden values
TEST = split_of(KNOWN, mask=~THIRD, hidden=THIRD)
TRAIN = split_of(torch.tensor([[0.0, 0.0, 1.0], [2.0, 4.0, 3.0], [0.0, 8.0, math.nan]]))
TRAIN = replace(TRAIN, mask=~TRAIN.all().x.isnan())
DATA = MadeUp(TRAIN, TEST)


def test_scores_by_hand() -> None:
    """The third value is predicted as the level that is given, 0 and 1: errors 0.5, -0.5, 3 and -0.5, -1.5, 2."""
    z = first_two(TEST)
    scores = imputation_scores(Known(DATA.facts), TEST, z, [0.0, 1.0])
    errors = {0.0: [0.5, -0.5, 3.0], 1.0: [-0.5, -1.5, 2.0]}
    rmse = [math.sqrt(sum(e**2 for e in values) / 3) for values in errors.values()]
    nlpd = [-sum(norm.logpdf(e, 0, 0.5) for e in values) / 3 for values in errors.values()]
    pooled = [-math.log((norm.pdf(a, 0, 0.5) + norm.pdf(b, 0, 0.5)) / 2) for a, b in zip(*errors.values(), strict=True)]
    expected = {
        "imputation_rmse": sum(rmse) / 2,
        "imputation_rmse_sd": abs(rmse[0] - rmse[1]) / math.sqrt(2),
        "imputation_rmse_mixture": math.sqrt((0.0 + 1.0 + 2.5**2) / 3),
        "imputation_mae": (4 / 3 + 4 / 3) / 2,
        "imputation_nlpd": sum(nlpd) / 2,
        "imputation_nlpd_mixture": sum(pooled) / 3,
        "imputation_nlpd_median_mixture": sorted(pooled)[1],
        "imputation_rmse_median": (0.5 + 1.5) / 2,
        "imputation_rmse_median_sd": 1.0 / math.sqrt(2),
        "imputation_mae_median_mixture": 1.0,
    }
    assert {name: scores[name] for name in expected} == pytest.approx(expected, rel=1e-6)


def first_two(split: Split) -> Tensor:
    return split.all().x[:, :2].unsqueeze(0)


def test_means_and_medians_on_a_worked_example() -> None:
    """Three points with 1, 4 and 2 hidden values, and one with none; squares 4, 4, 32 and absolute errors 2, 4, 8."""
    totals = torch.tensor([[[4.0, 2.0], [4.0, 4.0], [0.0, 0.0], [32.0, 8.0]]]).double()
    values = torch.tensor([1, 4, 0, 2])
    rmse, mae, rmse_median, mae_median = means_and_medians(totals, values)[0].tolist()
    assert (rmse, mae) == pytest.approx((math.sqrt(40 / 7), 2.0))
    assert (rmse_median, mae_median) == (2.0, 2.0)  # of 2, 1, 4 and of 2, 1, 4
    even = means_and_medians(totals[:, :2], values[:2])[0].tolist()
    assert even[2:] == [1.5, 1.5]  # halfway between two points


def test_bits_have_a_probability_and_no_density() -> None:
    bits = torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    test = split_of(bits, mask=~THIRD[:2], hidden=THIRD[:2])
    z = torch.tensor([[[1.5, 0.0], [-0.3, 0.0]]])
    scores = imputation_scores(KnownBits(DATA.facts), test, z, [None])
    entropy = [math.log(1 + math.exp(-1.5)), math.log(1 + math.exp(-0.3))]
    assert scores["imputation_nlp"] == pytest.approx(sum(entropy) / 2, rel=1e-6)
    assert not [name for name in scores if "nlpd" in name]


def test_the_density_is_that_of_the_mixture_over_samples_of_z() -> None:
    class First(Known):
        def decode(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Any:
            return torch.distributions.Normal(z[:, :1].expand(-1, 3), 0.5)

    z = torch.tensor([0.0, 3.0])[:, None, None].expand(2, 4, 2)
    scores = imputation_scores(First(DATA.facts), TEST, z, [None])
    truth = [0.5, -0.5, 3.0]
    nlpd = [-math.log((norm.pdf(x, 0, 0.5) + norm.pdf(x, 3, 0.5)) / 2) for x in truth]
    assert scores["imputation_nlpd"] == pytest.approx(sum(nlpd) / 3, rel=1e-6)
    assert scores["imputation_mae"] == pytest.approx((1.0 + 2.0 + 1.5) / 3)


def test_samples_are_the_same_in_every_evaluation_and_differ_between_points() -> None:
    q = linear(incomplete(20)).test_posterior
    z = draws(q, 0)
    assert z.shape == (imputation.DRAWS, 20, 2) and torch.equal(z, draws(q, 0)) and not torch.equal(z, draws(q, 1))
    step = z - q.mean
    torch.testing.assert_close(step.mean(0), torch.zeros(20, 2).double())
    assert q.spread is not None
    whitened = torch.linalg.solve_triangular(q.spread, step.unsqueeze(-1), upper=False).squeeze(-1)
    assert len(whitened.flatten().unique()) == whitened.numel() and whitened.std() == pytest.approx(1, abs=0.15)


def test_active_sets_have_endings_as_in_the_reconstruction() -> None:
    scores = Imputation().scores(subject(KnownActive, MadeUp(split_of(KNOWN), TEST), condition_on=2))
    expected = {f"{name}{size}{kind}" for name in NAMES for size in ("", "_c2") for kind in ("", "_sd", "_mixture")}
    assert scores.keys() == expected | MEAN
    from src.evaluation import registry

    labels = {name: registry.metric(name) for name in scores}
    assert all(labels.values())
    found = labels["imputation_nlpd_median_c2_sd"]
    assert found and found.label == "NLPD of hidden values, median over points given 2 points, sd over active sets"


def test_chunks_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    found = linear(incomplete(50))
    whole = Imputation().scores(found)
    monkeypatch.setattr(imputation, "CHUNK", 16)
    assert Imputation().scores(found) == pytest.approx(whole, rel=1e-12)


def test_the_mean_of_the_training_data_is_that_of_observed_values() -> None:
    assert training_mean(Known(DATA.facts), TRAIN).tolist() == pytest.approx([2 / 3, 4.0, 2.0])
    scores = baselines(subject(Known, DATA))
    errors = [-1.5, -2.5, 1.0]
    assert scores == pytest.approx(
        {
            "mean_imputation_rmse": math.sqrt(sum(e**2 for e in errors) / 3),
            "mean_imputation_mae": 5 / 3,
            "mean_imputation_rmse_median": 1.5,
            "mean_imputation_mae_median": 1.5,
        }
    )


def images(num_data: int, seed: int, missing: float) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randint(0, 256, (num_data, 1, 4, 5), generator=generator, dtype=torch.uint8)
    mask = torch.rand(x.shape, generator=generator) >= missing
    return Batch(torch.where(mask, x, 0), torch.arange(num_data), mask=mask if missing else None)


class Bytes(Known):
    """Bytes become 0..1."""

    dtype = torch.float64

    def as_float(self, x: Tensor) -> Tensor:
        return x.double() / 255


def by_brute_force(seen: Batch, known: Batch) -> list[int]:
    """The nearest known image of each point, pair by pair and pixel by pixel."""
    rows = []
    for i in range(len(seen)):
        distances = []
        for j in range(len(known)):
            both = torch.ones_like(seen.x[i], dtype=torch.bool)
            both &= True if seen.mask is None else seen.mask[i]
            both &= True if known.mask is None else known.mask[j]
            apart = (seen.x[i].double() - known.x[j].double())[both].square()
            distances.append(apart.mean().item() if len(apart) else math.inf)
        rows.append(int(np.argmin(distances)))
    return rows


@pytest.mark.parametrize("missing", [0.0, 0.5, 0.97])
def test_the_nearest_image_by_brute_force(missing: float) -> None:
    """Also in several chunks, and if so little was observed that some pairs share no pixel."""
    seen, known = images(30, 0, 0.6), images(40, 1, missing)
    expected = by_brute_force(seen, known)
    model = Bytes(DATA.facts)
    assert nearest_rows(model, seen, known).tolist() == expected
    assert nearest_rows(model, seen, known, size=7).tolist() == expected and len(set(expected)) > 5


def hidden_images(missing: float) -> MadeUp:
    seen, known = images(30, 0, 0.6), images(40, 1, missing)
    truth = images(30, 2, 0.0).x
    assert seen.mask is not None
    test = split_of(torch.where(seen.mask, seen.x, truth), mask=seen.mask, hidden=~seen.mask)
    return MadeUp(split_of(known.x, mask=known.mask), test)


@pytest.mark.parametrize("missing", [0.0, 0.5])
def test_images_are_compared_with_the_nearest_training_image(missing: float) -> None:
    """What the nearest image has not observed either is the mean of the training data."""
    data = hidden_images(missing)
    found = subject(Bytes, data)
    train, test = data.train.all(), data.test.all()
    assert data.test.hidden is not None
    mean = training_mean(found.model, data.train)
    rows = by_brute_force(test, train)
    predicted = train.x[rows].double() / 255
    if train.mask is not None:
        predicted = torch.where(train.mask[rows], predicted, mean)
    error = (data.test.truth(test.index).double() / 255 - predicted)[data.test.hidden]
    scores = baselines(found)
    assert scores["nearest_imputation_rmse"] == pytest.approx(error.square().mean().sqrt().item())
    assert scores["nearest_imputation_mae"] == pytest.approx(error.abs().mean().item())
    assert "mean_imputation_rmse" in scores


def test_a_baseline_sees_no_hidden_value() -> None:
    """What it is given is blank there, in bytes and in floats."""
    for data in (hidden_images(0.0), DATA):
        given: list[Tensor] = []
        model = Bytes(data.facts)

        def predict(seen: Batch, given: list[Tensor] = given) -> Tensor:
            given.append(seen.x)
            return torch.zeros(())

        baseline_scores("mean", model, data.test, predict)
        assert data.test.hidden is not None
        blanks = torch.cat(given)[data.test.hidden]
        assert bool((blanks == 0).all()) or bool(blanks.isnan().all())


def test_it_fits_models_with_latents_and_hidden_values() -> None:
    task, model = Imputation(), Known(DATA.facts)
    assert task.fits(model, DATA) and not task.fits(object(), DATA)
    nothing = replace(TEST, hidden=torch.zeros_like(THIRD), mask=None)
    for test in (nothing, replace(TEST, hidden=None), split_of(KNOWN)):
        assert not task.fits(model, MadeUp(split_of(KNOWN), test))


def test_the_summary_has_the_model_and_the_baselines() -> None:
    scores: Scores = {name: 0.2 for name in NAMES} | {name: 0.5 for name in MEAN}
    lines = Imputation().summary(scores, {})
    assert [line[:20].strip() for line in lines] == [
        *("hidden values", "model", "mean imputation"),
        *("their medians", "model", "mean imputation", ""),
    ]
    assert lines[0].split()[2:] == ["rmse", "mae", "nlpd"] and lines[1].split() == ["model", *["0.2000"] * 3]
    assert lines[2].split() == ["mean", "imputation", "0.5000", "0.5000"]
    sets = Imputation().summary(Imputation().scores(subject(KnownActive, MadeUp(split_of(KNOWN), TEST))), {})
    assert [line[:20].strip() for line in sets][1:5] == [
        *("given an active set", "mixture over sets", "given 2 points", "mixture over sets"),
    ]
    assert Imputation().summary({"rmse": 1.0}, {}) == []


def test_the_figure_of_images_has_four_rows() -> None:
    class Grey(Bytes):
        def decode(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Any:
            return torch.distributions.Normal(torch.full((len(z), 1, 4, 5), 0.25).double(), 0.5)

    data = hidden_images(0.0)
    ((name, figure),) = Imputation().figures(subject(Grey, data))
    assert name == "imputation"
    rows = [axes for axes in figure.axes if axes.get_ylabel()]
    assert [axes.get_ylabel() for axes in rows] == ["seen", "filled in", "predictive sd", "truth"]
    seen, filled, sd, truth = (np.asarray(axes.images[0].get_array())[:, :5] for axes in rows)
    x, mask = data.test.all().x[0, 0].double().numpy() / 255, data.test.all().mask[0, 0].numpy()  # type: ignore[index]
    np.testing.assert_allclose(truth, np.repeat(data.test.truth(torch.arange(1))[0, 0].numpy()[..., None] / 255, 3, -1))
    assert (seen[mask] == x[mask][:, None]).all() and len(np.unique(seen[~mask], axis=0)) == 1
    assert np.ptp(seen[~mask][0]) > 0.2  # a colour, which no grey pixel has
    assert (filled[mask] == x[mask]).all() and (filled[~mask] == 0.25).all()
    assert (sd[mask] == 0).all() and (sd[~mask] == 0.5).all()


def test_the_figure_of_vectors_has_error_bars_at_hidden_values() -> None:
    ((_, figure),) = Imputation().figures(subject(Known, DATA))
    assert len(figure.axes) == 4
    lines = figure.axes[2].lines
    assert np.array_equal(lines[0].get_ydata(), [2.0, 2.0]) and np.array_equal(lines[-1].get_ydata(), [3.0])
    bars: Any = figure.axes[2].containers[0]
    assert bars.lines[0].get_ydata().tolist() == [0.0]
    (low, high) = bars.lines[2][0].get_segments()[0][:, 1]
    assert (low, high) == (-1.0, 1.0)  # two sd of 0.5
