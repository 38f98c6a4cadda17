"""What all models share."""

import math

import pytest

from src.errors import UserError
from src.models.base import FALL_FROM, fallen
from tests.configs import composed
from tests.test_experiment import run


@pytest.mark.parametrize("start", FALL_FROM.values())
def test_rates_stay_then_fall_along_half_a_cosine(start: float) -> None:
    end = 0.0 if start < 1 else 1.0
    assert fallen(0.0, start) == fallen(start, start) == 1 and fallen(1.0, start) == pytest.approx(end, abs=1e-15)
    if start < 1:
        assert fallen((1 + start) / 2, start) == pytest.approx(0.5)
        assert fallen(start + (1 - start) / 3, start) == pytest.approx(0.5 + 0.5 * math.cos(math.pi / 3))


def test_an_unknown_schedule_is_refused(tmp_path: object) -> None:
    config = composed("optimizer.schedule=linear", "trainer.max_epochs=1", f"paths.outputs={tmp_path}")
    with pytest.raises(UserError, match=r"optimizer\.schedule=linear is none of cosine, late, constant"):
        run(config, "sas", "digits")
