"""All tasks are found, scored, drawn, kept and summed up; a new one is one file, and latents are encoded once."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import src.evaluation
from src.data.batch import split_of
from src.evaluation import registry
from src.evaluation.task import CHUNK, Metric, Subject
from src.runs.errors import UserError
from tests.evaluation.subjects import SETTINGS, Known, KnownActive, MadeUp, subject
from tests.evaluation.test_prediction import Predicting

ORDER = [
    *("reconstruction", "fit", "imputation", "denoising", "prediction", "function", "neighbours", "geometry"),
    *("generation", "paths", "latent_space", "evidence", "amortisation", "cost"),
]
ROWS = ({"loss": -1.0, "seconds": 2.0},)


def known_data() -> MadeUp:
    """Everything that a task may want: labels, groups, true latents."""
    x = torch.rand(12, 3, generator=torch.Generator().manual_seed(0))
    split = split_of(x, torch.arange(12) % 3, groups=torch.arange(12) // 4, latents=x[:, :2])
    return MadeUp(split, split, batch_size=4)


def test_every_task_is_found_in_its_order() -> None:
    assert [task.name for task in registry.tasks()] == ORDER


def test_no_two_tasks_share_a_metric() -> None:
    names = [name for task in registry.tasks() for name in task.metrics]
    assert len(names) == len(set(names)) == len(registry.metrics())


def test_scores_are_those_of_all_tasks_that_fit() -> None:
    known = subject(KnownActive, known_data())
    known.history = ROWS
    scores = registry.scores(known)
    assert {"rmse", "rmse_c2_sd", "accuracy_1nn", "path_rmse", "objective", "epochs"} <= scores.keys()
    assert not {"error_rate", "mse_sample", "exact_evidence"} & scores.keys()
    assert all(registry.metric(name) for name in scores)


class Tracing(Known):
    def trace(self, data: Any) -> dict[str, float]:
        return {"lengthscale": 2.5}


class TracingClosely(Tracing):
    def trace_closely(self, data: Any) -> dict[str, float]:
        return {"bias": 0.5}


def test_every_epoch_has_what_is_cheap_and_some_have_scores() -> None:
    known = subject(TracingClosely, known_data())
    assert registry.trace(known) == {"watched_lengthscale": 2.5}
    assert registry.watch(known) == {"watched_bias": 0.5, "watched_path_rmse": registry.scores(known)["path_rmse"]}
    assert registry.trace(subject(Known, known_data())) == {}


def test_the_best_epoch_has_a_name_of_its_own() -> None:
    """The last epoch stays the score, however good an epoch before was."""
    known = subject(KnownActive, known_data())
    known.history = [{**ROWS[0], **more} for more in ({"watched_path_rmse": 0.3}, {"watched_path_rmse": 0.1}, {})]
    scores = registry.scores(known)
    assert scores["path_rmse_best_epoch"] == 0.1
    assert scores["path_rmse"] == registry.scores(subject(KnownActive, known_data()))["path_rmse"]
    shown = registry.metric("path_rmse_best_epoch")
    assert shown is not None and (shown.label, shown.better) == ("path RMSE, best epoch by the test data", "lower")


def test_the_best_of_a_score_that_should_be_high_is_the_highest(monkeypatch: pytest.MonkeyPatch) -> None:
    known = subject(KnownActive, known_data())
    task = next(task for task in registry.tasks() if task.name == "neighbours")
    monkeypatch.setattr(type(task), "watched", ("accuracy_1nn",))
    known.history = [{"watched_accuracy_1nn": 0.3}, {"watched_accuracy_1nn": 0.6}, {"watched_accuracy_1nn": 0.5}]
    assert registry.best_epochs(known) == {"accuracy_1nn_best_epoch": 0.6}


def test_watching_in_vain_is_refused() -> None:
    data = MadeUp(split_of(torch.rand(6, 3), torch.arange(6) % 2))
    for model_class, at in ((Known, known_data()), (TracingClosely, data)):
        registry.check(model_class(at.facts), at, SETTINGS | {"watch_every": 2})
    with pytest.raises(UserError, match=r"evaluation\.watch_every has no effect on Tracing here"):
        registry.check(Tracing(data.facts), data, SETTINGS | {"watch_every": 2})
    with pytest.raises(UserError, match=r"evaluation\.watch_every=0 must be at least 1"):
        registry.check(Tracing(data.facts), data, SETTINGS | {"watch_every": 0})


def test_predictions_are_watched_by_the_scores_that_their_targets_have() -> None:
    classes = MadeUp(split_of(torch.rand(6, 2), torch.arange(6) % 2))
    at = Subject(Predicting(classes.facts), classes, SETTINGS)
    registry.check(at.model, classes, SETTINGS | {"watch_every": 1})
    scores = registry.scores(at)
    assert registry.watch(at) == {f"watched_{name}": scores[name] for name in ("error_rate", "target_nlp")}


def test_a_predictor_is_scored_on_its_targets_alone() -> None:
    data = MadeUp(split_of(torch.rand(6, 2), torch.arange(6) % 2))
    scores = registry.scores(Subject(Predicting(data.facts), data, SETTINGS))
    assert scores.keys() == {"error_rate", "target_nlp", "ece"}


def test_the_validation_split_is_scored_by_the_tasks_of_predictions() -> None:
    """With other numbers than the test split, and with latents of its own."""
    data = known_data()
    data.validation = split_of(10 * data.test.all().x[:5], torch.arange(5) % 3)
    known = subject(KnownActive, data)
    plain = subject(KnownActive, known_data())
    known.history = plain.history = ROWS  # which has costs, of the training and not of a split
    found, without = registry.scores(known), registry.scores(plain)
    del found["peak_memory_mb"], without["peak_memory_mb"]  # of the process, which the scores themselves may raise
    held_out = {name for name in found if name.startswith("validation_")}
    assert {name: found[name] for name in found.keys() - held_out} == without
    assert held_out == {
        f"validation_{name}" for name in without if name.startswith(("rmse", "mae", "nlpd", "accuracy"))
    }
    assert all(registry.metric(name) for name in held_out)
    direct = registry.scores(subject(KnownActive, data.tested_on_validation()))
    assert found["validation_rmse_c2_sd"] == direct["rmse_c2_sd"] != found["rmse_c2_sd"]


def test_the_summary_has_the_validation_split_first() -> None:
    found = {"rmse": 0.2, "mae": 0.1, "nlpd": -0.3, "validation_rmse": 0.25, "validation_mae": 0.15, "epochs": 3}
    lines = registry.summary(found, {"rmse": "0.199"}).splitlines()
    assert lines[0] == "VALIDATION SPLIT" and "0.2500" in lines[2] and "TEST SPLIT" in lines
    assert lines.index("TEST SPLIT") < next(i for i, line in enumerate(lines) if "0.2000" in line)
    assert "SPLIT" not in registry.summary({"rmse": 0.2, "mae": 0.1, "nlpd": -0.3})


@pytest.mark.parametrize("size", [12, CHUNK + 500])
def test_each_split_is_encoded_once_for_scores_figures_and_artifacts(size: int, tmp_path: Path) -> None:
    x = torch.rand(size, 3, generator=torch.Generator().manual_seed(0))
    data = MadeUp(split_of(x, torch.arange(size) % 3, latents=x[:, :2]))
    known = subject(Known, data)
    registry.scores(known)
    registry.draw(known, tmp_path / "figures")
    registry.keep(known, tmp_path / "explorer.npz")
    for seen in (True, False):
        sizes = [points for was_seen, points in known.model.encoded if was_seen == seen]
        assert sum(sizes) == size and max(sizes) <= CHUNK


def test_figures_and_arrays_are_written(tmp_path: Path) -> None:
    known = subject(Known, known_data())
    registry.draw(known, tmp_path / "figures")
    registry.keep(known, tmp_path / "explorer.npz")
    drawn = ["decoded_grid", "latent_map", "reconstructions"]
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == [
        f"{name}.{ending}" for name in drawn for ending in ("pdf", "png")
    ]
    with np.load(tmp_path / "explorer.npz") as arrays:
        assert {"z", "images", "reconstructions", "error", "labels", "paths", "estimated_paths"} <= set(arrays)
        assert arrays["z"].shape == (12, 2)


def test_no_gradient_is_kept_while_scoring() -> None:
    class Watching(Known):
        def encode(self, batch: Any, seen: bool) -> Any:
            assert not torch.is_grad_enabled()
            return super().encode(batch, seen)

        def decode(self, *arguments: Any) -> Any:
            assert not torch.is_grad_enabled()
            return super().decode(*arguments)

    assert registry.scores(subject(Watching, known_data()))


def test_settings_are_checked_by_every_task() -> None:
    data = known_data()
    registry.check(Known(data.facts), data, SETTINGS)
    with pytest.raises(UserError, match="exact_evidence=true needs a GP decoder"):
        registry.check(Known(data.facts), data, SETTINGS | {"exact_evidence": True})


@pytest.mark.parametrize(
    ("name", "label"),
    [
        ("rmse", "RMSE"),
        ("rmse_c2000", "RMSE given 2000 points"),
        ("nlpd_mixture", "NLPD of the mixture"),
        ("mae_sd", "MAE, sd over active sets"),
        ("nlp_c60_sd", "NLP given 60 points, sd over active sets"),
        ("rmse_c60_mixture", "RMSE given 60 points of the mixture"),
        ("sas_estimate_sd", "sd of the SAS estimate"),
        ("validation_error_rate_c60", "validation error rate given 60 points"),
        ("smse_t2", "SMSE of target 2"),
    ],
)
def test_a_metric_by_its_name_with_endings(name: str, label: str) -> None:
    metric = registry.metric(name)
    assert metric is not None and metric.label == label


def test_a_variant_has_the_direction_and_digits_of_its_metric() -> None:
    assert registry.metric("nlpd_c9_mixture") == Metric("NLPD given 9 points of the mixture", "lower", 3)
    assert registry.metric("accuracy_1nn") == Metric("1-NN accuracy", "higher", 3)


@pytest.mark.parametrize("name", ["unknown", "", "rmse_", "unknown_sd", "rmse_cx"])
def test_an_unknown_metric_is_none(name: str) -> None:
    assert registry.metric(name) is None


def test_a_summary_goes_task_by_task_with_published_values() -> None:
    found = {"epochs": 3, "rmse": 0.2, "mae": 0.1, "nlpd": -0.3, "accuracy_1nn": 0.5, "unknown": 1.0}
    text = registry.summary(found, {"accuracy_1nn": "0.9"})
    lines = text.splitlines()
    assert [line.split()[0] for line in lines if line] == ["test", "0.2000", "accuracy_1nn", "epochs"]
    assert lines[3].endswith("published 0.9") and not text.startswith("\n") and not text.endswith("\n")


NEW_TASK = '''
"""How many test points there are."""

from src.evaluation.reconstruction import Reconstruction
from src.evaluation.task import Metric, Task


class Count(Task):
    name = "count"
    order = 15
    metrics = {"test_points": Metric("test points", "neither", 0)}

    def fits(self, model, data):
        return len(data.test) > 5

    def scores(self, subject):
        return {"test_points": len(subject.data.test)}

    def artifacts(self, subject):
        return {"counted": subject.test_latents.numpy()}
'''


@pytest.fixture
def new_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One more file among those of the tasks."""
    (tmp_path / "count.py").write_text(NEW_TASK)
    monkeypatch.setattr(src.evaluation, "__path__", [*src.evaluation.__path__, str(tmp_path)])
    registry.tasks.cache_clear()
    yield
    sys.modules.pop("src.evaluation.count", None)
    vars(src.evaluation).pop("count", None)
    registry.tasks.cache_clear()


@pytest.mark.usefixtures("new_task")
def test_a_new_task_is_one_file(tmp_path: Path) -> None:
    place = ORDER.index("neighbours") + 1
    assert [task.name for task in registry.tasks()] == [*ORDER[:place], "count", *ORDER[place:]]
    known = subject(Known, known_data())
    scores = registry.scores(known)
    assert scores["test_points"] == 12 and scores["accuracy_1nn"] <= 1
    assert registry.metric("test_points") == registry.metrics()["test_points"] == Metric("test points", "neither", 0)
    assert [line.split() for line in registry.summary(scores).splitlines()][4] == ["test_points", "12"]
    registry.keep(known, tmp_path / "kept.npz")
    with np.load(tmp_path / "kept.npz") as arrays:
        assert arrays["counted"].shape == (12, 2)


@pytest.mark.usefixtures("new_task")
def test_a_new_task_that_does_not_fit_is_left_out() -> None:
    few = MadeUp(split_of(torch.rand(5, 3)))
    assert "test_points" not in registry.scores(subject(Known, few))


def test_without_its_file_a_task_is_gone() -> None:
    assert registry.metric("test_points") is None
