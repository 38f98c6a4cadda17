"""The harness of planted mistakes: a source without a mistake passes, one with a mistake does not."""

from importlib import import_module
from pathlib import Path

import pytest

from tests.planting import FOUND, PASSED, Mistake, outcome, planted_text

LINALG = ("src/gp/linalg.py", "tests/gp/test_linalg.py")
SIGN = ("K + value I", "K - value I")


def planted(old: str, new: str) -> Mistake:
    source, test = LINALG
    return Mistake("a trial", source, old, new, test)


def test_a_source_without_a_mistake_passes() -> None:
    assert outcome(planted(*SIGN)) == PASSED  # a docstring


def test_a_mistake_is_found() -> None:
    assert outcome(planted("upper=False)", "upper=True)")) == FOUND


def test_a_source_that_cannot_be_imported_is_no_finding() -> None:
    assert outcome(planted("import torch\n", "import nothing_of_the_kind\n")) not in (FOUND, PASSED)


def test_there_must_be_one_place_for_a_mistake() -> None:
    with pytest.raises(ValueError, match="0 times"):
        planted_text(planted("no such text", ""))


ROOMS = sorted(path.parent.name for path in Path(__file__).parent.glob("*/planted.py"))


@pytest.mark.parametrize("room", ROOMS)
def test_every_mistake_has_its_place(room: str) -> None:
    """Also of those that only `make test-planted` tries: code that moves must not take a mistake with it."""
    for mistake in import_module(f"tests.{room}.planted").PLANTED:
        assert planted_text(mistake)


def test_every_room_has_mistakes() -> None:
    assert {"data", "evaluation", "gp", "launch", "models", "report", "runs", "training"} <= set(ROOMS)
