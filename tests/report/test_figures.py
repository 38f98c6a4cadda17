"""The report's figures show the runs' numbers, and are drawn for print."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from src.evaluation.canvas import PALETTE
from src.report import figures, records
from tests.report.handmade import write_explorer, write_run


def drawn(outputs: Path) -> dict[str, Figure]:
    runs = records.read(outputs).runs
    return dict(figures.figures(runs, records.representatives(runs)))


def panel(figure: Figure, i: int = 0) -> Any:
    """The i-th axes; Any, since matplotlib's types do not say what was drawn."""
    return figure.axes[i]


def test_objectives_are_minus_the_loss_against_epoch_and_time(tmp_path: Path) -> None:
    write_run(tmp_path, active_set=100, loss=[1.0, 0.5, 0.25])
    write_run(tmp_path, active_set=400, loss=[0.9, 0.4])
    write_run(tmp_path, "vae", active_set=None, loss=[3.0, 2.0])
    figure = drawn(tmp_path)["objective-mnist"]
    assert [axes.get_title("left") for axes in figure.axes] == ["Bayesian SAS-GP", "", "VAE", ""]
    by_epoch, by_time = panel(figure, 0).lines, panel(figure, 1).lines
    np.testing.assert_array_equal(by_epoch[0].get_xydata(), [[1, -1.0], [2, -0.5], [3, -0.25]])
    np.testing.assert_array_equal(by_time[0].get_xydata(), [[2, -1.0], [4, -0.5], [6, -0.25]])
    assert len({line.get_color() for line in by_epoch}) == len({line.get_linestyle() for line in by_epoch}) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["A = 100", "A = 400"]


def test_objectives_tell_inducing_inputs_and_batches_apart(tmp_path: Path) -> None:
    for size in (100, 400):
        write_run(tmp_path, "bayesian_gplvm", active_set=None, loss=[1.0, size], num_inducing=size)
    for batch in (256, 1024):
        folder = write_run(tmp_path, active_set=100, loss=[2.0, 1.0], folder=f"bayesian_sas-mnist-a100-s0-{batch:08d}")
        config = yaml.safe_load((folder / "config.yaml").read_text())
        config["dataset"]["batch_size"] = batch
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
    figure = drawn(tmp_path)["objective-mnist"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [
        *("A or M = 100", "A or M = 400", "batches of 256", "batches of 1024"),
    ]
    first, second = panel(figure).lines
    assert first.get_color() != second.get_color() and first.get_linestyle() != second.get_linestyle()
    of_sas = panel(figure, 2).lines
    assert len({line.get_color() for line in of_sas}) == 1
    assert sorted(line.get_linewidth() for line in of_sas) == [0.9, 1.8]


def test_seeds_are_one_line_in_a_band_as_far_as_all_came(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, loss=[1.0, 0.5, 0.25])
    write_run(tmp_path, seed=1, loss=[3.0, 1.5])
    write_run(tmp_path, seed=0, epochs=99, loss=[7.0, 7.0])
    axes = panel(drawn(tmp_path)["objective-mnist"])
    assert sorted(line.get_ydata().tolist() for line in axes.lines) == [[-7.0, -7.0], [-2.0, -1.0]]
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.min() == pytest.approx(-2 - 2**0.5) and heights.max() == pytest.approx(-1 + 0.5**0.5)


def test_maps_stand_side_by_side_with_their_labels(tmp_path: Path) -> None:
    for model in ("sas", "vae", "cvae"):
        write_explorer(write_run(tmp_path, model), latent_dim=3 if model == "cvae" else 2)
    figure = drawn(tmp_path)["latents-mnist"]
    assert [axes.get_title() for axes in figure.axes] == ["SAS-GP", "VAE"]  # the CVAE's space is no plane
    assert len(panel(figure).images) == len(panel(figure, 1).images) == 1
    assert len(figure.legends) == 1 and len(figure.legends[0].get_texts()) == 10
    assert "z₁" in panel(figure, 1).get_xlabel()


def test_maps_name_the_classes_that_have_names(tmp_path: Path) -> None:
    names = [f"stage {i}" for i in range(12)]
    write_explorer(write_run(tmp_path), labels=np.arange(120) % 11, classes=np.array(names))
    figure = drawn(tmp_path)["latents-mnist"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == names


def test_maps_of_other_classes_are_another_figure(tmp_path: Path) -> None:
    """Two tables of one's own are both called `table`; one legend would name the classes of one of them wrongly."""
    for model, names in (("sas", "ab"), ("vae", "cd"), ("gplvm", "ab")):
        folder = write_run(tmp_path, model, "table")
        write_explorer(folder, labels=np.arange(120) % 2, classes=np.array(list(names)))
    figure, other = (drawn(tmp_path)[name] for name in ("latents-table", "latents-table-2"))
    assert sorted([len(figure.axes), len(other.axes)]) == [1, 2]
    for each in (figure, other):
        shown = [text.get_text() for text in each.legends[0].get_texts()]
        assert shown == (["c", "d"] if len(each.axes) == 1 else ["a", "b"])


def test_places_that_no_map_fills_are_empty(tmp_path: Path) -> None:
    for model in ("sas", "bayesian_sas", "gplvm", "bayesian_gplvm", "vae", "svgp_vae", "gp_vae"):
        write_explorer(write_run(tmp_path, model))
    shown = [axes.get_title() for axes in drawn(tmp_path)["latents-mnist"].axes if axes.axison]
    assert len(shown) == 7 and all(shown)


def test_generated_views_and_paths_are_those_of_the_runs(tmp_path: Path) -> None:
    views, paths = np.full((10, 1, 4, 4), 0.25, np.float32), np.arange(300.0, dtype=np.float32).reshape(5, 30, 2)
    rotated = write_run(tmp_path, "svgp_vae", "rotated_mnist", active_set=None)
    write_explorer(rotated, latent_dim=16, views=views, generated_views=views + 0.5)
    ball = write_run(tmp_path, "gp_vae", "moving_ball", active_set=None)
    write_explorer(ball, paths=paths, estimated_paths=paths + 1)
    found = drawn(tmp_path)
    rows: list[Any] = found["generation-rotated_mnist"].axes
    assert [axes.get_ylabel() for axes in rows] == ["test image", "SVGP-VAE"]
    assert [float(axes.images[0].get_array().max()) for axes in rows] == [0.25, 0.75]
    true, estimated = panel(found["paths-moving_ball"]).lines
    np.testing.assert_array_equal(true.get_xydata(), paths[0])
    np.testing.assert_array_equal(estimated.get_xydata(), paths[0] + 1)


@pytest.mark.parametrize("classes", [3, 30])
def test_latents_of_views_are_coloured_by_angle_and_by_few_classes(classes: int, tmp_path: Path) -> None:
    plane, angles, labels = np.random.default_rng(0).normal(size=(30, 2)), np.arange(30.0) / 5, np.arange(30) % classes
    folder = write_run(tmp_path, "svgp_vae", "rotated_mnist", active_set=None)
    write_explorer(folder, latent_dim=16, view_latents=plane, view_angles=angles, view_labels=labels)
    panels: dict[str, Any] = {axes.get_title(): axes for axes in drawn(tmp_path)["views-rotated_mnist"].axes}
    by_angle = panels["SVGP-VAE, by angle"].collections[0]
    np.testing.assert_allclose(by_angle.get_offsets(), plane)
    np.testing.assert_allclose(by_angle.get_array(), np.degrees(angles))
    assert ("SVGP-VAE, by class" in panels) == (classes == 3)
    if classes == 3:
        by_class = panels["SVGP-VAE, by class"].collections[0]
        np.testing.assert_allclose(by_class.get_offsets(), plane)
        assert [to_hex(colour) for colour in by_class.get_facecolors()[:3]] == [c.lower() for c in PALETTE[:3]]


def test_the_evidence_is_drawn_from_later_evaluations(tmp_path: Path) -> None:
    for size in (100, 400):
        folder = write_run(tmp_path, active_set=size) / "evaluations"
        folder.mkdir()
        metrics = {
            "exact_evidence": -3.0,
            "sas_estimate": -3.0 - 10 / size,
            "sas_estimate_sd": 0.1,
            "evidence_points": 500,
        }
        (folder / "1.json").write_text(json.dumps({"metrics": metrics}))
        (folder / "2.json").write_text('{"metr')
    panels: list[Any] = drawn(tmp_path)["evidence"].axes
    against, by_number = ([points.get_offsets()[0] for points in axes.collections] for axes in panels)
    np.testing.assert_allclose(against, [[-3, -3.1], [-3, -3.025]])
    np.testing.assert_allclose(by_number, [[500, -0.1], [500, -0.025]])


def test_files_are_vector_and_bitmap_with_fonts_that_journals_take(tmp_path: Path) -> None:
    write_run(tmp_path, loss=[1.0, 0.5])
    runs = records.read(tmp_path).runs
    (path,) = figures.draw(runs, runs, tmp_path / "figures")
    assert path.name == "objective-mnist.png" and path.read_bytes().startswith(b"\x89PNG")
    pdf = path.with_suffix(".pdf").read_bytes()
    assert b"/CIDFontType2" in pdf and b"/Type3" not in pdf  # Type 42 in PDF's words


def test_runs_that_left_nothing_or_half_a_file_have_no_maps(tmp_path: Path) -> None:
    write_run(tmp_path)
    (write_run(tmp_path, "vae", active_set=None) / "explorer.npz").write_bytes(b"PK\x03\x04 half")
    (write_run(tmp_path, "gplvm") / "explorer.npz").write_bytes(b"")
    whole = write_run(tmp_path, "cvae", active_set=None)
    write_explorer(whole)
    (whole / "explorer.npz").write_bytes((whole / "explorer.npz").read_bytes()[:-100])
    assert drawn(tmp_path) == {}


@pytest.mark.parametrize("loss", [[np.nan, np.nan], [1.0, 1.0], [1e38, -1e38]])
def test_odd_curves_are_drawn(loss: list[float], tmp_path: Path) -> None:
    write_run(tmp_path, loss=loss)
    runs = records.read(tmp_path).runs
    assert figures.draw(runs, runs, tmp_path / "figures")
