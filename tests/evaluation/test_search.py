"""The score of a search: the training objective or a validation metric, with its direction; never a test metric."""

import pytest
import torch

from src.data.batch import split_of
from src.evaluation import registry, search
from src.runs.errors import UserError
from tests.configs import composed
from tests.evaluation.subjects import Known, KnownActive, MadeUp, subject
from tests.evaluation.test_registry import known_data

METRICS = {"objective": 2.0, "rmse": 0.1, "validation_rmse": 0.3, "accuracy_1nn": 0.9, "validation_accuracy_1nn": 0.7}


def validated_data() -> MadeUp:
    data = known_data()
    data.validation = split_of(10 * data.test.all().x[:5], torch.arange(5) % 3)
    return data


def test_scores_come_from_the_training_or_from_the_validation_split() -> None:
    assert search.score(METRICS, "objective") == -2.0
    assert search.score(METRICS, "rmse") == 0.3
    assert search.score(METRICS, "accuracy_1nn") == 0.7
    with pytest.raises(UserError, match=r"mae is not among the validation scores of this run: rmse, accuracy_1nn$"):
        search.score(METRICS, "mae")


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        ("objective", "minimize"),
        ("rmse", "minimize"),
        ("nlpd_c2000_mixture", "minimize"),
        ("accuracy_1nn", "maximize"),
    ],
)
def test_better_scores_lie_where_the_metric_says(name: str, direction: str) -> None:
    assert search.direction(name) == direction


@pytest.mark.parametrize(("name", "value"), [(None, -2.0), ("objective", -2.0), ("rmse", 0.3), ("accuracy_1nn", -0.7)])
def test_sweepers_minimise_what_a_run_returns(name: str | None, value: float) -> None:
    assert search.to_minimise(METRICS, {"search": {"metric": name}}) == value


@pytest.mark.parametrize("name", ["epochs", "coverage_90", "no_such_metric", "validation_rmse"])
def test_a_metric_without_a_better_side_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=f"search.metric={name} must be"):
        search.direction(name)


def test_a_score_that_a_run_will_not_have_is_refused_before_training() -> None:
    data = validated_data()
    model = KnownActive(data.facts)
    for name in ("objective", "rmse", "rmse_c2", "nlpd_mixture", "accuracy_1nn"):
        search.check(model, data, name)
    for name in ("error_rate", "epochs", "validation_rmse", "oops"):
        with pytest.raises(UserError, match=f"search.metric={name} must be a score of this run: objective, rmse, mae"):
            search.check(model, data, name)


def test_without_a_validation_split_there_is_the_objective_only() -> None:
    data = known_data()
    search.check(Known(data.facts), data, "objective")
    with pytest.raises(UserError, match=r"search.metric=rmse must be a score of this run: objective$"):
        search.check(Known(data.facts), data, "rmse")


def test_a_score_during_the_training_is_that_of_the_evaluation_and_draws_nothing() -> None:
    data = validated_data()
    final = registry.scores(subject(KnownActive, data))
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    for name in ("rmse_c2", "accuracy_1nn"):
        found = search.score_now(subject(KnownActive, data), name)
        assert found == final[f"validation_{name}"] != final[name]
    assert torch.equal(torch.rand(1), expected)


def test_points_that_stand_for_a_test_part_do_not_stand_for_the_validation_part() -> None:
    """Left out in turn, training points would have another accuracy."""
    data = validated_data()
    data.test_is_train = True
    assert not data.tested_on_validation().test_is_train
    assert search.score_now(subject(KnownActive, data), "accuracy_1nn") == search.score_now(
        subject(KnownActive, validated_data()), "accuracy_1nn"
    )


def test_the_metric_of_a_run_is_the_objective_unless_it_is_named() -> None:
    assert search.metric_of(composed()) == "objective"
    assert search.metric_of(composed("search.metric=rmse")) == "rmse"
