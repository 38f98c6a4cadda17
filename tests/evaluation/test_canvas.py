"""How figures look, and that their files are written whole or not at all."""

import struct
from pathlib import Path

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from src.evaluation.canvas import PALETTE, add_legend, colour_bar, draw_points, heights, quiet, save

LABELS = np.array([3, 8, 3, 9, 8, 9])
CLASSES = np.array([3, 8, 9])


def test_one_row_per_class_between_minus_a_half_and_a_half() -> None:
    rows = 3 * (heights(np.repeat(LABELS, 50), CLASSES) + 0.5)
    assert (np.floor(rows) == np.searchsorted(CLASSES, np.repeat(LABELS, 50))).all()
    assert (rows % 1 >= 0.1).all() and (rows % 1 <= 0.9).all() and len(np.unique(rows)) == 300


def test_many_classes_share_one_row() -> None:
    labels = np.arange(11)
    up = heights(labels, labels)
    assert (np.abs(up) <= 0.4).all() and np.ptp(up) > 0.3


def drawn(labels: np.ndarray, classes: np.ndarray) -> tuple[Figure, PathCollection]:
    figure = Figure()
    across = np.arange(len(labels), dtype=float)
    draw_points(figure, figure.subplots(), across, -across, labels, classes)
    (points,) = figure.axes[0].collections
    assert isinstance(points, PathCollection)
    return figure, points


def test_points_have_the_colour_of_their_class_and_a_legend() -> None:
    figure, points = drawn(LABELS, CLASSES)
    expected = [to_rgba(PALETTE[place], 0.7) for place in np.searchsorted(CLASSES, LABELS)]
    np.testing.assert_allclose(np.asarray(points.get_facecolor(), float), np.array(expected))
    np.testing.assert_array_equal(points.get_offsets(), np.c_[np.arange(6), -np.arange(6)])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["3", "8", "9"]


def test_one_class_needs_no_legend_and_many_have_a_bar() -> None:
    assert not drawn(np.zeros(4), np.zeros(1))[0].legends
    figure, points = drawn(np.arange(11), np.arange(11))
    assert not figure.legends and figure.axes[1].get_xlabel() == "label"
    np.testing.assert_array_equal(np.asarray(points.get_array()), np.arange(11))


def test_the_colours_are_all_different() -> None:
    assert len({to_rgba(colour) for colour in PALETTE}) == len(PALETTE) == 10


@pytest.mark.parametrize(("names", "columns"), [("abcdefg", 7), (["a long name", "another one"], 5)])
def test_a_legend_of_short_names_has_one_row(names: list[str], columns: int) -> None:
    figure = Figure()
    add_legend(figure, [Line2D([], [], label=name) for name in names])
    assert figure.legends[0]._ncols == columns  # type: ignore[attr-defined]


def test_axes_are_quiet_and_a_bar_is_named() -> None:
    figure = Figure()
    axes = figure.subplots()
    quiet(axes)
    colour_bar(figure, axes.imshow(np.eye(2)), "predictive sd", ax=axes)
    assert {spine.get_linewidth() for spine in axes.spines.values()} == {0.5} and len(axes.get_xticks()) <= 6
    assert figure.axes[1].get_ylabel() == "predictive sd"


@pytest.mark.parametrize(("name", "start"), [("a.png", b"\x89PNG"), ("a.pdf", b"%PDF"), ("a.svg", b"<?xml")])
def test_a_file_appears_whole_in_the_format_of_its_suffix(tmp_path: Path, name: str, start: bytes) -> None:
    path = tmp_path / name
    path.write_text("of an earlier run")
    with path.open() as earlier:
        save(Figure(), path)
        assert earlier.read() == "of an earlier run"  # replaced, not written over
    assert path.read_bytes().startswith(start)
    assert list(tmp_path.iterdir()) == [path]


def test_a_png_has_150_dots_per_inch(tmp_path: Path) -> None:
    figure = Figure(figsize=(2, 1))
    save(figure, tmp_path / "a.png")
    header = (tmp_path / "a.png").read_bytes()[16:24]
    assert struct.unpack(">II", header) == (300, 150)


def test_a_failed_save_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_half_way(path: Path, **_: object) -> None:
        path.write_text("half")
        raise OSError("disk full")

    figure, path = Figure(), tmp_path / "a.png"
    path.write_text("of an earlier run")
    monkeypatch.setattr(figure, "savefig", fail_half_way)
    with pytest.raises(OSError, match="disk full"):
        save(figure, path)
    assert [p.read_text() for p in tmp_path.iterdir()] == ["of an earlier run"]
