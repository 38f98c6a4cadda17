"""Curves by a setting, error against time, and what was watched: the numbers that figures show are those of runs."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from src.report import records
from src.report.curves import curve_figures
from tests.report.handmade import write_run


def found(outputs: Path) -> dict[str, Any]:
    return dict(curve_figures(records.read(outputs).runs))


def svgp_vae(outputs: Path, num_inducing: int, error: float, seed: int = 0, **settings: Any) -> Path:
    metrics = {"mse_sample": error, "path_rmse": error, "seconds_per_epoch": num_inducing / 10}
    return write_run(
        outputs,
        "svgp_vae",
        settings.pop("dataset", "rotated_mnist"),
        seed,
        None,
        metrics=metrics,
        num_inducing=num_inducing,
        **settings,
    )


def watch(folder: Path, **columns: list[float]) -> None:
    """A history with two epochs between the values of what was watched."""
    length = 2 * len(next(iter(columns.values())))
    with (folder / "history.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["seconds", "loss", *(f"watched_{name}" for name in columns)])
        for epoch in range(length):
            values = [column[epoch // 2] if epoch % 2 else "nan" for column in columns.values()]
            writer.writerow([1.0, -epoch, *values])


def test_a_curve_has_the_mean_over_seeds_by_the_setting(tmp_path: Path) -> None:
    for m, errors in ((8, (0.03, 0.05)), (32, (0.02, 0.02))):
        for seed, error in enumerate(errors):
            svgp_vae(tmp_path, m, error, seed)
    svgp_vae(tmp_path, 16, 0.9, latent_dim=3)  # another configuration, with one value only
    score, time = found(tmp_path)["inducing_points"].axes
    (line,) = [line for line in score.lines if len(line.get_xdata()) == 2 and line.get_marker() == "o"]
    np.testing.assert_allclose(line.get_xydata(), [[8, 0.04], [32, 0.02]])
    (bars,) = (c for c in score.collections if len(c.get_segments()) == 2)
    np.testing.assert_allclose(bars.get_segments()[0][:, 1], [0.04 - 0.0002**0.5, 0.04 + 0.0002**0.5])
    np.testing.assert_allclose(time.lines[0].get_xydata(), [[8, 0.8], [32, 3.2]])
    assert (score.get_ylabel(), time.get_ylabel()) == ("test MSE", "s per epoch")


def test_lines_of_one_model_are_named_by_what_tells_them_apart(tmp_path: Path) -> None:
    for objective in ("elbo", "loo"):
        for m in (10, 200):
            metrics = {"error_rate": 1 / m, "target_nlp": 0.1, "seconds_per_epoch": 1.0}
            write_run(tmp_path, "autogp", "mnist", 0, None, metrics=metrics, num_inducing=m, objective=objective)
    figure = found(tmp_path)["autogp_inducing"]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["AutoGP, objective = elbo", "AutoGP, objective = loo"]


def test_one_value_of_a_setting_is_no_curve(tmp_path: Path) -> None:
    for seed in range(2):
        svgp_vae(tmp_path, 8, 0.03, seed)
    assert found(tmp_path) == {}


def test_how_often_a_run_was_watched_does_not_part_a_curve(tmp_path: Path) -> None:
    svgp_vae(tmp_path, 8, 0.03)
    folder = svgp_vae(tmp_path, 32, 0.02)
    text = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(text + "evaluation:\n  watch_every: 10\n")
    assert "inducing_points" in found(tmp_path)


def test_lists_count_by_their_length(tmp_path: Path) -> None:
    for seed, (digits, seconds) in enumerate((([3], 0.5), ([3, 6], 1.0))):
        metrics = {"mse_sample": 0.02, "seconds_per_epoch": seconds}
        folder = write_run(tmp_path, "svgp_vae", "rotated_mnist", seed, active_set=None, metrics=metrics)
        config = yaml.safe_load((folder / "config.yaml").read_text())
        config["dataset"]["digits"] = digits
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
    np.testing.assert_allclose(found(tmp_path)["rotated_digits"].axes[1].lines[0].get_xydata(), [[1, 0.5], [2, 1.0]])


def test_the_exact_model_that_was_trained_alike_is_a_line_across(tmp_path: Path) -> None:
    for m in (5, 15):
        svgp_vae(tmp_path, m, 1.0 / m, dataset="moving_ball")
    write_run(tmp_path, "gp_vae", "moving_ball", active_set=None, metrics={"path_rmse": 0.05})
    write_run(tmp_path, "gp_vae", "moving_ball", active_set=None, metrics={"path_rmse": 9.0}, epochs=3)
    score, _ = found(tmp_path)["ball_inducing"].axes
    assert [line.get_ydata()[0] for line in score.lines if line.get_linestyle() == "--"] == [0.05]


def test_error_against_time_has_both_models(tmp_path: Path) -> None:
    for m in (8, 32):
        svgp_vae(tmp_path, m, 0.2 / m)
    for dim in (2, 8):
        metrics = {"mse_sample": 0.1 / dim, "seconds_per_epoch": dim}
        write_run(tmp_path, "casale_gp_vae", "rotated_mnist", active_set=None, metrics=metrics, aux={"object_dim": dim})
    (axes,) = found(tmp_path)["error_against_time"].axes
    assert [line.get_label() for line in axes.lines] == ["SVGP-VAE", "Casale's GP-VAE"]
    np.testing.assert_allclose(axes.lines[1].get_xydata(), [[2, 0.05], [8, 0.0125]])
    assert [text.get_text() for text in axes.texts] == ["8", "32", "2", "8"]


def test_what_was_watched_is_drawn_at_its_epochs(tmp_path: Path) -> None:
    for m in (5, 15):
        folder = svgp_vae(tmp_path, m, 0.1, dataset="moving_ball")
        watch(folder, lengthscale=[2.0, 2.0 + m], **{f"inducing_{i}": [0.0, float(i)] for i in range(m)})
    figures = found(tmp_path)
    (axes,) = figures["lengthscale-moving_ball"].axes
    assert sorted(line.get_xydata().tolist() for line in axes.lines) == [[[2, 2], [4, 7]], [[2, 2], [4, 17]]]
    legend = [text.get_text() for text in figures["lengthscale-moving_ball"].legends[0].get_texts()]
    assert legend == ["SVGP-VAE, m = 5", "SVGP-VAE, m = 15"]
    panels = figures["inducing_times-moving_ball"].axes
    assert sorted(len(panel.lines) for panel in panels) == [5, 15]
    assert "bias-moving_ball" not in figures


def test_noise_and_divergences_of_dimensions_are_drawn(tmp_path: Path) -> None:
    """The noise of every run; the divergences of one run per model, the lowest seed."""
    for seed in (1, 0):
        folder = write_run(tmp_path, "vae", "mnist", seed, None)
        watch(folder, noise_share=[0.9, 0.5], kl_1=[1.0, 2.0 + seed], kl_2=[1.0, 0.0])
    figures = found(tmp_path)
    assert len(figures["noise_share-mnist"].axes[0].lines) == 2
    (axes,) = figures["dimensions-mnist"].axes
    assert [line.get_xydata().tolist() for line in axes.lines] == [[[2, 1], [4, 2]], [[2, 1], [4, 0]]]
    assert axes.get_title() == "VAE, Q = 2"
    assert "active_dims-mnist" not in figures


def test_biases_are_drawn(tmp_path: Path) -> None:
    watch(svgp_vae(tmp_path, 8, 0.1), bias=[0.5, 0.25])
    (axes,) = found(tmp_path)["bias-rotated_mnist"].axes
    np.testing.assert_allclose(axes.lines[0].get_xydata(), [[2, 0.5], [4, 0.25]])
