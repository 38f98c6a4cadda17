"""Which cell of a table is the best, and which cells are worse by more than their seeds explain.

Cells are compared if they have the same metric and the same test data. The test is Welch's t-test of a cell against the
best one; it needs two seeds in both.
"""

from collections.abc import Iterable, Sequence

from src.report.cells import Cell
from src.report.labels import metric_of

LEVEL = 0.05
BEST = "best"  # the verdict of a best cell, which formats show in bold
MARK = "\N{DAGGER}"  # after a cell that is significantly worse
IN_BOLD = "Bold: the best value of a metric on the same data."
TESTED = f"{MARK} worse than that by Welch's t-test over seeds (p < {LEVEL}, each pair by itself)."


def marked(cells: Sequence[Cell]) -> tuple[list[str], list[str]]:
    """The verdicts of cells, `best` or nothing, and the marks of those that are significantly worse."""
    verdicts, marks = [""] * len(cells), [""] * len(cells)
    for places in comparable(cells):
        best = min(places, key=lambda i: loss(cells[i]))
        for i in places:
            verdicts[i] = BEST if cells[i].mean == cells[best].mean else ""
            marks[i] = MARK if is_worse(cells[i], cells[best]) else ""
    return verdicts, marks


def note(verdicts: Iterable[str], marks: Iterable[str]) -> str:
    """What the marks of a table mean; nothing if it has none."""
    return " ".join([*([IN_BOLD] if any(verdicts) else []), *([TESTED] if any(marks) else [])])


def comparable(cells: Sequence[Cell]) -> list[list[int]]:
    """The numbers of cells that can be compared, in groups of at least two."""
    groups: dict[tuple[str, str], list[int]] = {}
    for i, cell in enumerate(cells):
        if cell.mean is not None and cell.mean == cell.mean and metric_of(cell.metric).better != "neither":
            groups.setdefault((cell.metric, cell.data), []).append(i)
    return [group for group in groups.values() if len(group) > 1]


def loss(cell: Cell) -> float:
    """The mean of a cell, or its negative if higher is better."""
    assert cell.mean is not None
    return -cell.mean if metric_of(cell.metric).better == "higher" else cell.mean


def is_worse(cell: Cell, best: Cell) -> bool:
    """Whether the seeds of a cell differ from those of the best one; without two seeds each, or any spread, no."""
    if not (cell.sd and best.sd and cell.sd < float("inf") and best.sd < float("inf")):
        return False
    return p_value(cell.values, best.values) < LEVEL and loss(cell) > loss(best)


def p_value(first: Sequence[float], second: Sequence[float]) -> float:
    """Welch's t-test of two samples, two-sided."""
    from scipy.stats import ttest_ind

    return float(ttest_ind(first, second, equal_var=False).pvalue)
