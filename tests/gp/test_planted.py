"""Mistakes planted in src/gp are found by the mirrored test files."""

import pytest

from tests.gp.planted import PLANTED
from tests.planting import FOUND, Mistake, cases, outcome


@pytest.mark.parametrize("mistake", cases(PLANTED))
def test_a_planted_mistake_is_found(mistake: Mistake) -> None:
    assert outcome(mistake) == FOUND
