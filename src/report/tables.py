"""The papers' tables filled with our runs: mean ± sd over seeds beside the published values."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import NamedTuple

from src.report.cells import Cell, difference_text, ours_at, ours_text
from src.report.labels import check_metrics, labels
from src.report.records import Run
from src.runs import published
from src.runs.published import LEVELS, NAMED, Place, TableSpec, places

NOTE = "Mean ± sd over seeds; the number of runs in brackets."


class Row(NamedTuple):
    """One line of a table."""

    label: str
    kind: str  # ours, published or difference
    texts: list[str]
    verdicts: list[str]


@dataclass(frozen=True)
class Table:
    """A table: its cells, its lines of text, and the remarks that the texts refer to by number."""

    name: str
    title: str
    note: str  # what the numbers are
    source: str  # of the published values; empty if there are none
    columns: list[tuple[str, ...]]  # one text per level
    rows: list[Row]
    remarks: list[str]
    cells: list[Cell]


def paper_tables(runs: Sequence[Run], sweep: bool = False) -> list[Table]:
    """All tables that some run belongs to; for a sweep, only its own rows and columns."""
    return [table for name in published.tables() if (table := paper_table(name, runs, sweep))]


def paper_table(
    name: str, runs: Sequence[Run], sweep: bool = False, choice: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Table | None:
    """One table, or the rows and columns of a choice; None if no run belongs to it."""
    spec = published.tables()[name].narrowed(choice)
    check_metrics(spec)
    runs = [run for run in runs if spec.takes(run.levels)]
    rows, columns = places(spec.rows), places(spec.columns)
    grid = filled(spec, rows, columns, runs, sweep)
    if unknown_setting(spec, runs) or not any(map(any_filled, grid)):
        return None
    if sweep:
        rows = [row for row, line in zip(rows, grid, strict=True) if any_filled(line)]
        columns = [column for column, line in zip(columns, zip(*grid, strict=True), strict=True) if any_filled(line)]
        grid = filled(spec, rows, columns, runs, sweep)
    remarks = list(dict.fromkeys(text for line in grid for c in line for text in remarks_of(c)))
    texts = [row for place, line in zip(rows, grid, strict=True) for row in lines(place, line, remarks)]
    cells = [c for line in grid for c in line]
    return Table(name, spec.title, NOTE, spec.source, [labels(column) for column in columns], texts, remarks, cells)


def left_out(runs: Sequence[Run]) -> dict[str, str]:
    """Tables that cannot be filled because of a setting that none of their runs has, and which setting it is."""
    unknown = {name: unknown_setting(spec, runs) for name, spec in published.tables().items()}
    return {f"table {name}": f"none of its runs has the setting {level}" for name, level in unknown.items() if level}


def unknown_setting(spec: TableSpec, runs: Sequence[Run]) -> str | None:
    """A level that none of a table's runs has a value for, such as a misspelt setting; None if there is none."""
    named = {level: values for level, values in spec.axes.items() if level in NAMED}
    own = [run for run in runs if spec.takes(run.levels) and all(run.levels[key] in named[key] for key in named)]
    for level, values in spec.axes.items():
        if own and level not in LEVELS and None not in values and not any(level in run.levels for run in own):
            return level
    return None


def filled(
    spec: TableSpec, rows: Sequence[Place], columns: Sequence[Place], runs: Sequence[Run], sweep: bool
) -> list[list[Cell]]:
    """The cells of a table, line by line."""
    return [[cell(spec, spec.place(row, column), runs, sweep) for column in columns] for row in rows]


def any_filled(cells: Iterable[Cell]) -> bool:
    """Whether there is any run behind these cells."""
    return any(c.is_filled for c in cells)


def cell(spec: TableSpec, place: Place, runs: Sequence[Run], sweep: bool) -> Cell:
    """What the runs say in one place, and what was published there."""
    ours = ours_at(place, [run for run in runs if fits(run, place)])
    asked_for = ours.is_filled or not sweep
    return replace(ours, published=spec.published_at(place), caveat=spec.caveat_at(place), asked_for=asked_for)


def fits(run: Run, place: Place) -> bool:
    """Whether a run belongs into a place."""
    return all(run.levels.get(level) == value for level, value in place.items() if level != "metric")


def remarks_of(c: Cell) -> list[str]:
    """The remarks that a cell refers to, of the published value first."""
    return [text for text in (c.published and c.caveat, *c.remarks) if text]


def lines(place: Place, cells: Sequence[Cell], remarks: list[str]) -> list[Row]:
    """Our line of a table and, if anything is published, the published values and the differences."""

    def marks(texts: Iterable[str | None]) -> str:
        return "".join(f" [{remarks.index(text) + 1}]" for text in texts if text)

    none = [""] * len(cells)
    rows = [Row(" ".join(labels(place)), "ours", [ours_text(c) + marks(c.remarks) for c in cells], none)]
    if any(c.published for c in cells):
        texts = [(c.published or "") + marks([c.published and c.caveat]) for c in cells]
        rows.append(Row("published", "published", texts, none))
    if any(c.difference is not None for c in cells):
        rows.append(Row("difference", "difference", [difference_text(c) for c in cells], [c.verdict for c in cells]))
    return rows
