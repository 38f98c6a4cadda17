"""Scores of predictions through the training: the numbers that the figure shows are those of the histories."""

import csv
from pathlib import Path
from typing import Any

import numpy as np

from src.report import records
from src.report.learning import learning_figures
from tests.report.handmade import write_run
from tests.report.test_curves import watch


def figures(outputs: Path) -> dict[str, Any]:
    return dict(learning_figures(records.read(outputs).runs))


def test_scores_are_drawn_by_epoch_and_by_time(tmp_path: Path) -> None:
    """One row per score, one line per configuration with the mean over seeds; seconds of all epochs add up."""
    for m, errors in ((10, (0.25, 0.75)), (200, (0.125,))):
        for seed, error in enumerate(errors):
            folder = write_run(tmp_path, "autogp", "mnist", seed, None, num_inducing=m)
            watch(folder, error_rate=[2 * error, error], target_nlp=[1.0, 0.5])
    figure = figures(tmp_path)["learning-mnist"]
    by_epoch, by_time, nlp_by_epoch, _ = figure.axes
    np.testing.assert_allclose(by_epoch.lines[0].get_xydata(), [[2, 1.0], [4, 0.5]])
    np.testing.assert_allclose(by_epoch.lines[1].get_xydata(), [[2, 0.25], [4, 0.125]])
    np.testing.assert_allclose(by_time.lines[1].get_xydata(), [[2.0, 0.25], [4.0, 0.125]])
    np.testing.assert_allclose(nlp_by_epoch.lines[0].get_ydata(), [1.0, 0.5])
    assert (by_epoch.get_ylabel(), nlp_by_epoch.get_ylabel()) == ("error rate", "NLP of the class")
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["AutoGP, num_inducing = 10", "AutoGP, num_inducing = 200"]


def test_the_seconds_are_those_of_every_epoch_until_then(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "autogp", "mnist", 0, None)
    with (folder / "history.csv").open("w", newline="") as file:
        csv.writer(file).writerows(
            [["seconds", "loss", "watched_smse"], [5, 0, "nan"], [7, 0, 0.5], [1, 0, "nan"], [2, 0, 0.25]]
        )
    _, by_time = figures(tmp_path)["learning-mnist"].axes
    np.testing.assert_allclose(by_time.lines[0].get_xydata(), [[12, 0.5], [15, 0.25]])


def test_runs_that_were_not_watched_have_no_figure(tmp_path: Path) -> None:
    watch(write_run(tmp_path, "vae", "mnist", 0, None), noise_share=[0.9, 0.5])
    assert figures(tmp_path) == {}


def test_a_label_names_settings_with_a_value_and_is_wrapped(tmp_path: Path) -> None:
    """A setting that only some runs have is named there; the first is, if none has a value."""
    long = "a_name_that_leaves_no_room_for_another_name"
    none: dict[str, Any] = {}
    for settings in (none, {"loo_epochs": 20, long: 3}):
        watch(write_run(tmp_path, "autogp", "mnist", 0, None, **settings), error_rate=[0.5, 0.25])
    legend = [text.get_text() for text in figures(tmp_path)["learning-mnist"].legends[0].get_texts()]
    told = [f"AutoGP, {long} = 3, loo_epochs = 20", f"AutoGP, {long} = none"]
    assert sorted(name.replace("\n", " ") for name in legend) == told
    assert max(len(line) for name in legend for line in name.split("\n")) <= 55
