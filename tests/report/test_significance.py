"""The best cell and the mark of those that are significantly worse."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import t as students_t

from src.report import records
from src.report.cells import Cell, data_of
from src.report.significance import BEST, MARK, marked, note, p_value
from tests.report.handmade import write_run


def cell(*values: float, metric: str = "rmse", data: str = "mnist") -> Cell:
    return Cell({"metric": metric}, values, data=data)


def test_welchs_p_value_is_that_of_its_formula() -> None:
    """t = (a - b) / sqrt(v_a / n_a + v_b / n_b) with the degrees of freedom of Welch and Satterthwaite."""
    a, b = cell(0.20, 0.21, 0.25), cell(0.30, 0.26)
    assert a.mean and a.sd and b.mean and b.sd
    part_a, part_b = a.sd**2 / 3, b.sd**2 / 2
    freedom = (part_a + part_b) ** 2 / (part_a**2 / 2 + part_b**2 / 1)
    expected = 2 * students_t.sf(abs(a.mean - b.mean) / math.sqrt(part_a + part_b), freedom)
    assert p_value(a.values, b.values) == pytest.approx(expected)


def test_the_lowest_error_is_best_and_only_clear_differences_are_marked() -> None:
    cells = [cell(0.20, 0.21, 0.22), cell(0.21, 0.22, 0.23), cell(0.30, 0.31, 0.32)]
    assert marked(cells) == ([BEST, "", ""], ["", "", MARK])


def test_the_highest_accuracy_is_best() -> None:
    cells = [cell(0.5, 0.51, metric="accuracy_1nn"), cell(0.9, 0.91, metric="accuracy_1nn")]
    assert marked(cells) == (["", BEST], [MARK, ""])


@pytest.mark.parametrize(
    ("first", "second"),
    [((0.2,), (0.3, 0.31)), ((0.2, 0.21), (0.3,)), ((0.2, 0.2), (0.3, 0.3)), ((0.2, 0.21), (math.inf, 0.3))],
)
def test_without_two_seeds_and_a_spread_in_both_nothing_is_marked(
    first: tuple[float, ...], second: tuple[float, ...]
) -> None:
    assert marked([cell(*first), cell(*second)]) == ([BEST, ""], ["", ""])


def test_only_the_same_metric_on_the_same_data_is_compared() -> None:
    assert marked([cell(0.2), cell(0.3, data="digits"), cell(0.1, metric="mae")]) == ([""] * 3, [""] * 3)
    assert marked([cell(1.0, metric="epochs"), cell(2.0, metric="epochs")])[0] == ["", ""]  # neither is better
    assert marked([cell(math.nan), cell(0.3), cell(0.4), Cell({"metric": "rmse"})])[0] == ["", BEST, "", ""]


def test_hidden_pixels_make_other_data_and_the_batch_size_does_not(tmp_path: Path) -> None:
    run = records.read_run(write_run(tmp_path, "sas"))

    def with_data(**settings: Any) -> str:
        return data_of(replace(run, config={**run.config, "dataset": {**run.config["dataset"], **settings}}))

    assert with_data(batch_size=64) == with_data(batch_size=128) == data_of(run)
    assert with_data(missing={"fraction": 0.5}) != data_of(run) != with_data(max_test=10)


def test_a_note_says_what_the_marks_of_this_table_mean() -> None:
    assert note([""], [""]) == "" and "Welch" not in note([BEST], [""]) and "Welch" in note([BEST], [MARK])
