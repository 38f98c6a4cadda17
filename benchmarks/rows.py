"""A row of the table: what was timed, beside what, and the ratio it has to reach."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter


@dataclass(frozen=True)
class Row:
    """`ratio` has to stay at or below `limit`, or to reach it where `at_least` is set."""

    name: str
    against: str
    ours: float
    other: float
    ratio: float
    limit: float
    at_least: bool = False
    unit: str = "ms"

    @property
    def reached(self) -> bool:
        """Whether the target is."""
        return self.ratio >= self.limit if self.at_least else self.ratio <= self.limit

    def __str__(self) -> str:
        target = f"{'>=' if self.at_least else '<='} {self.limit:g}"
        mark = "" if self.reached else "  MISSED"
        return (
            f"{self.name:<50}{self.ours:>10.4g} {self.unit:<3}{self.against:<34}{self.other:>10.4g} {self.unit:<3}"
            f"{self.ratio:>9.2f}  {target}{mark}"
        )


def seconds(*functions: Callable[[], object], repeats: int, warm_up: int = 2) -> list[list[float]]:
    """The seconds of each function, which take turns, so that a noisy moment meets all of them."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(repeats + warm_up):
        for function, record in zip(functions, times, strict=True):
            start = perf_counter()
            function()
            record.append(perf_counter() - start)
    return [record[warm_up:] for record in times]


def slower(name: str, against: str, ours: list[float], other: list[float], limit: float) -> Row:
    """How many times as long ours takes: the median over the rounds, in each of which both ran one after the other."""
    ratio = median(a / b for a, b in zip(ours, other, strict=True))
    return Row(name, against, 1e3 * median(ours), 1e3 * median(other), ratio, limit)


def faster(name: str, against: str, ours: list[float], other: list[float], limit: float) -> Row:
    """How many times faster ours is: the median over the rounds."""
    ratio = median(b / a for a, b in zip(ours, other, strict=True))
    return Row(name, against, 1e3 * median(ours), 1e3 * median(other), ratio, limit, at_least=True)
