"""How figures look, and that their files are written whole or not at all."""

import logging
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.collections import PathCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from src.evaluation.canvas import MARKERS, PALETTE, SCREEN, add_legend, colour_bar, draw_points, heights, quiet, save

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


def drawn(labels: np.ndarray, classes: np.ndarray, names: Sequence[str] = ()) -> tuple[Figure, PathCollection]:
    figure = Figure()
    across = np.arange(len(labels), dtype=float)
    draw_points(figure, figure.subplots(), across, -across, labels, classes, names)
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


def test_names_replace_the_numbers_of_classes() -> None:
    figure, _ = drawn(np.array([0, 2, 2]), np.arange(3), ["32 ICM", "32 TE", "64 PE"])
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["32 ICM", "32 TE", "64 PE"]


@pytest.mark.parametrize("number", [11, 23, 40])
def test_many_named_classes_differ_in_colour_or_marker(number: int) -> None:
    """And their legend has the same marks as the points."""
    figure, names, labels = Figure(), [f"class {i}" for i in range(number)], np.arange(number)
    draw_points(figure, figure.subplots(), labels.astype(float), -labels, labels, labels, names)
    tens: list[Any] = list(figure.axes[0].collections)
    looks = [(tuple(colour[:3]), i) for i, ten in enumerate(tens) for colour in ten.get_facecolor()]
    assert len(set(looks)) == number and [len(ten.get_offsets()) for ten in tens[:-1]] == [10] * (len(tens) - 1)
    assert [x for ten in tens for x in ten.get_offsets()[:, 0]] == list(range(number))
    marks = [handle for handle in figure.legends[0].legend_handles if isinstance(handle, Line2D)]
    assert [(to_rgba(mark.get_color())[:3], MARKERS.index(str(mark.get_marker()))) for mark in marks] == looks
    assert len({mark.get_label() for mark in marks}) == number


def test_too_many_named_classes_have_a_bar() -> None:
    figure, _ = drawn(np.arange(41), np.arange(41), [f"class {i}" for i in range(41)])
    assert not figure.legends


def test_a_legend_of_long_names_stays_within_the_figure(tmp_path: Path) -> None:
    figure = Figure(figsize=(3.3, 2.8), layout="constrained")
    figure.subplots()
    names = [f"CD4+/CD45RA+/CD25- Naive {i}" for i in range(12)]
    add_legend(figure, [Line2D([], [], label=name) for name in names])
    save(figure, tmp_path / "a.png")
    box = figure.legends[0].get_window_extent()
    assert box.x0 >= 0 and box.x1 <= figure.bbox.x1 and box.y0 >= 0
    assert figure.axes[0].get_window_extent().height > 1.5 * figure.dpi  # the figure grew, the axes did not shrink


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


@pytest.mark.parametrize(("options", "dots"), [({}, 300), ({"dpi": SCREEN}, 150)])
def test_a_png_has_300_dots_per_inch_for_print_and_150_for_a_page(
    tmp_path: Path, options: dict[str, int], dots: int
) -> None:
    save(Figure(figsize=(2, 1)), tmp_path / "a.png", **options)
    header = (tmp_path / "a.png").read_bytes()[16:24]
    assert struct.unpack(">II", header) == (2 * dots, dots)


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


def test_a_saved_figure_says_nothing_in_the_log_of_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Runs log from INFO on, where the library of fonts tells of every letter: thousands of lines per sweep."""
    figure = Figure()
    figure.subplots().set_title("letters")
    with caplog.at_level(logging.INFO):
        save(figure, tmp_path / "letters.pdf")
    assert caplog.records == []
