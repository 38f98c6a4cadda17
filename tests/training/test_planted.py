"""Mistakes planted in src/training are found by the mirrored test files."""

import pytest

from tests.planting import FOUND, Mistake, outcome
from tests.training.planted import PLANTED


@pytest.mark.parametrize("mistake", PLANTED, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_found(mistake: Mistake) -> None:
    assert outcome(mistake) == FOUND
