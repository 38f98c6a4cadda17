"""Names and numbers as people read them."""

import pytest

from src.report import labels
from src.runs.identity import Value


@pytest.mark.parametrize(
    ("level", "value", "text"),
    [
        ("model", "sas", "SAS-GP"),
        ("model", "mine", "mine"),
        ("dataset", "fmnist", "Fashion-MNIST"),
        ("active_set", 100, "A = 100"),
        ("model.num_inducing", 50, "num_inducing = 50"),
        ("model.kernel._target_", "RBFKernel", "kernel = RBFKernel"),
        ("model.geco", None, "geco = none"),
        ("metric", "nlpd_c2000_mixture", "NLPD given 2000 points of the mixture"),
        ("metric", "odd", "odd"),
    ],
)
def test_the_value_of_a_level(level: str, value: Value, text: str) -> None:
    assert labels.label(level, value) == text


def test_the_tasks_say_how_a_metric_is_shown() -> None:
    assert labels.number("rmse", 0.25) == "0.2500" and labels.number("accuracy_1nn", 0.25) == "0.250"
    assert labels.number("nlpd", -0.25, "+") == labels.minus("-0.250")
    assert labels.metric_of("accuracy_1nn").better == "higher" and labels.metric_of("odd").better == "neither"
