"""Which test points figures show, and between which limits."""

import math

import pytest
import torch

from src.evaluation.shown import INTENSITIES, Limits, levels, limits_of, varied


@pytest.mark.parametrize(
    ("values", "limits"),
    [
        ([0.2, 0.4], INTENSITIES),
        ([0.0, 1.0, math.nan], INTENSITIES),
        ([math.nan], INTENSITIES),
        ([-0.5, 0.5], Limits(-0.5, 0.5)),
        ([0.0, 2.0, math.nan], Limits(0, 2)),
        ([3.0, 3.0], Limits(3, 3)),
    ],
)
def test_limits_are_those_of_the_values_unless_they_are_intensities(values: list[float], limits: Limits) -> None:
    assert limits_of(torch.tensor(values)) == limits


def test_levels_lie_between_black_and_white() -> None:
    assert levels(torch.tensor([-9.0, -1, 1, 3, 9]), Limits(-1, 3)).tolist() == [0, 0, 0.5, 1, 1]
    assert levels(torch.tensor([3.0]), Limits(3, 3)).tolist() == [0]


@pytest.mark.parametrize(
    ("classes", "n", "expected"),
    [
        ([0, 0, 0, 1, 1, 2], 3, [0, 3, 5]),
        ([2, 0, 1, 0, 1, 2], 3, [1, 2, 0]),  # in the order of classes
        ([0, 0, 0, 1, 1, 2], 5, [0, 1, 3, 4, 5]),  # a second one of those that have one
        ([0, 0, 0, 0, 1, 2], 5, [0, 1, 2, 4, 5]),
        ([0, 1], 10, [0, 1]),
        ([5, 4, 3, 2, 1, 0, 5, 4], 3, [5, 3, 1]),  # 0, 2 and 4 of six classes
    ],
)
def test_points_of_different_classes_are_shown(classes: list[int], n: int, expected: list[int]) -> None:
    assert varied(len(classes), torch.tensor(classes), n).tolist() == expected


@pytest.mark.parametrize(
    ("size", "n", "expected"), [(100, 4, [0, 25, 50, 75]), (3, 10, [0, 1, 2]), (10, 10, list(range(10)))]
)
def test_points_without_classes_are_far_apart(size: int, n: int, expected: list[int]) -> None:
    assert varied(size, None, n).tolist() == expected
