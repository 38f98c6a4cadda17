"""Mistakes planted in src/runs are found by the mirrored test files."""

import pytest

from tests.planting import FOUND, Mistake, cases, outcome
from tests.runs.planted import PLANTED


@pytest.mark.parametrize("mistake", cases(PLANTED))
def test_a_planted_mistake_is_found(mistake: Mistake) -> None:
    assert outcome(mistake) == FOUND
