"""The fit of a sparse GP-LVM: the training data at their own latents, and how inducing inputs are spread."""

from typing import Any

import pytest
import torch
from torch import Tensor

from src.data.batch import Split, split_of
from src.evaluation.fit import Fit
from src.evaluation.latent_space import LatentSpace
from src.evaluation.task import Subject
from src.gp.regularisation import symmetric_divergence
from src.runs.errors import UserError
from tests.evaluation.subjects import SETTINGS, Known, MadeUp, built, noisy_curve, subject


class KnownInducing(Known):
    """Seen points are encoded one unit away, so that it shows which latents are used."""

    if_seen = 1.0
    inducing = torch.tensor([[0.0, 1.0], [2.0, 0.0], [1.0, 5.0]])

    def distance_of_inducing(self, means: Tensor) -> Tensor:
        return means.sum()

    def elbo(self, train: Split) -> float:
        return float(len(train))


class Alone(MadeUp):
    """Data without a test part."""

    test_is_train = True


def points(number: int = 5) -> Split:
    return split_of(torch.randn(number, 3, generator=torch.Generator().manual_seed(number)))


def test_the_training_data_are_decoded_at_their_own_latent_means() -> None:
    """Known decodes to (z, 0) with z one unit beyond the first two values: errors 1, 1 and the third value."""
    data = MadeUp(points(5), points(7))
    scores = Fit().scores(subject(KnownInducing, data, fit=True))
    x = data.train.all().x
    expected = (torch.ones(5, 2).sum() + x[:, 2].square().sum()) / 15
    assert scores["fit_rmse"] == pytest.approx(expected.sqrt().item(), rel=1e-6)
    askl = symmetric_divergence(x[:, :2] + 1, KnownInducing.inducing)
    assert scores["askl"] == pytest.approx(askl.item(), rel=1e-5)
    assert scores["elbo"] == 5


def test_missing_values_do_not_count() -> None:
    x = points(5).all().x
    mask = torch.ones(5, 3, dtype=torch.bool)
    mask[:, 2] = False
    data = MadeUp(split_of(x, mask=mask), points(7))
    assert Fit().scores(subject(KnownInducing, data, fit=True))["fit_rmse"] == pytest.approx(1.0, rel=1e-6)


def test_it_is_scored_on_request_or_if_there_is_no_test_part() -> None:
    data = MadeUp(points(5), points(7))
    assert Fit().scores(subject(KnownInducing, data)) == {}
    assert list(Fit().figures(subject(KnownInducing, data))) == []
    assert Fit().scores(subject(KnownInducing, Alone(points(5))))["elbo"] == 5


def test_it_takes_models_with_inducing_inputs_among_their_latents() -> None:
    data = MadeUp(points(5))
    assert Fit().fits(KnownInducing(data.facts), data) and not Fit().fits(Known(data.facts), data)
    with pytest.raises(UserError, match="fit=true needs inducing inputs among the latents"):
        Fit().check(Known(data.facts), data, SETTINGS | {"fit": True})
    Fit().check(Known(data.facts), data, SETTINGS)


@torch.no_grad()
def test_the_figure_has_both_distributions_in_each_dimension() -> None:
    data = Alone(split_of(noisy_curve(40)))
    model = built(data, "model=bayesian_gplvm", "model.num_inducing=8", "model.latent_dim=3", "model.amortised=false")
    drawn: dict[str, Any] = dict(Fit().figures(Subject(model, data, SETTINGS)))
    panels = [axes for axes in drawn["inducing"].axes if axes.axison]
    assert [axes.get_xlabel() for axes in panels] == ["$z_{1}$", "$z_{2}$", "$z_{3}$"]
    for number, axes in enumerate(panels):
        (marks,) = axes.get_lines()
        assert torch.equal(torch.as_tensor(marks.get_xdata()), model.inducing[:, number])


@torch.no_grad()
def test_the_latent_map_marks_inducing_inputs_and_says_how_many_lie_outside() -> None:
    data = Alone(split_of(noisy_curve(40)))
    model = built(data, "model=bayesian_gplvm", "model.num_inducing=8", "model.amortised=false")
    model.inducing[3] = 100.0
    figure = dict(LatentSpace().figures(Subject(model, data, SETTINGS)))["latent_map"]
    axes = figure.axes[0]
    assert axes.get_xlim()[1] < 100 and "8 inducing inputs, 1 outside" in axes.texts[0].get_text()
    assert torch.equal(torch.as_tensor(axes.get_lines()[0].get_ydata()), model.inducing[:, 1])
