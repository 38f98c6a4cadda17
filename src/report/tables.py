"""The papers' tables, filled with our runs: mean ± sd over seeds, beside what was published."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any, NamedTuple

import yaml

from src.report.records import Run, Value, differing
from src.runs.errors import UserError

PUBLISHED = Path(__file__).parents[1] / "runs" / "published.yaml"


class Place(NamedTuple):
    """What a cell of a table is about; None stands for any active set."""

    model: str
    dataset: str
    active_set: Value
    metric: str


@dataclass(frozen=True)
class Cell:
    """What our runs say in one place of a table, and what was published there."""

    place: Place
    values: tuple[float, ...] = ()  # one a seed
    others: tuple[tuple[str, int], ...] = ()  # how many runs are not done, by status
    published: str | None = None  # mean ± sd, as printed
    caveat: str | None = None  # why the published value is not the same quantity
    remarks: tuple[str, ...] = ()
    asked_for: bool = True  # False: no part of the sweep

    @property
    def mean(self) -> float | None:
        """Over seeds."""
        return fmean(self.values) if self.values else None

    @property
    def sd(self) -> float | None:
        """Over seeds, as of a sample; None for a single one."""
        if len(self.values) < 2:
            return None
        return stdev(self.values) if all(map(math.isfinite, self.values)) else math.nan

    @property
    def difference(self) -> float | None:
        """Ours less the published mean; None where one of them is missing or they are not the same quantity."""
        if self.mean is None or self.published is None or self.caveat:
            return None
        return self.mean - numbers(self.published)[0]

    @property
    def verdict(self) -> str:
        """`better` or `worse` by more than the published sd, or `within sd`; empty where there is no difference."""
        if self.difference is None or self.published is None or math.isnan(self.difference):
            return ""
        if abs(self.difference) <= numbers(self.published)[1]:
            return "within sd"
        lower_is_better = facts()["metrics"][self.place.metric]["better"] == "lower"
        return "better" if (self.difference < 0) == lower_is_better else "worse"


def numbers(published: str) -> tuple[float, float]:
    """Mean and sd of a published value: `0.255 ± 0.098`."""
    mean, sd = published.split("±")
    return float(mean), float(sd)


class Row(NamedTuple):
    """One line of a table."""

    label: str
    kind: str  # ours, published or difference
    texts: list[str]
    verdicts: list[str]


@dataclass(frozen=True)
class Table:
    """A table with its cells in long form, its lines of text, and remarks that the texts number."""

    name: str
    title: str
    note: str  # what its numbers are
    source: str  # of the published values; empty where it has none
    columns: list[tuple[str, ...]]  # one or two levels
    rows: list[Row]
    remarks: list[str]
    cells: list[Cell]


@cache
def facts() -> dict[str, Any]:
    """The papers' tables and values."""
    content: dict[str, Any] = yaml.safe_load(PUBLISHED.read_text())
    return content


def paper_tables(runs: Sequence[Run], sweep: bool = False) -> list[Table]:
    """The tables of the papers that these runs belong to; of a sweep only the rows and columns it has."""
    return [table for name in facts()["tables"] if (table := paper_table(name, runs, sweep))]


def paper_table(
    name: str, runs: Sequence[Run], sweep: bool = False, choice: Mapping[str, Sequence[str]] = MappingProxyType({})
) -> Table | None:
    """One of the papers' tables, or of its rows and columns those of a choice; None where no run belongs to it."""
    spec = narrowed(facts()["tables"][name], choice)
    runs = [run for run in runs if all(run.settings.get(key) == value for key, value in spec.get("only", {}).items())]
    grid = [[cell(spec, row | column, runs, sweep) for column in axis(spec["columns"])] for row in axis(spec["rows"])]
    if not any(is_filled(c) for line in grid for c in line):
        return None
    kept_rows = [i for i, line in enumerate(grid) if not sweep or any(is_filled(c) for c in line)]
    kept_columns = [j for j, line in enumerate(zip(*grid, strict=True)) if not sweep or any(is_filled(c) for c in line)]
    grid = [[grid[i][j] for j in kept_columns] for i in kept_rows]
    labels = [" ".join(names(row)) for row in axis(spec["rows"])]
    columns = [names(column) for column in axis(spec["columns"])]
    cells = [c for line in grid for c in line]
    remarks = list(dict.fromkeys(text for c in cells for text in (c.published and c.caveat, *c.remarks) if text))
    rows = [row for i, line in zip(kept_rows, grid, strict=True) for row in lines(labels[i], line, remarks)]
    note = "Mean ± sd over seeds, in brackets the number of runs."
    return Table(name, spec["title"], note, spec["source"], [columns[j] for j in kept_columns], rows, remarks, cells)


def narrowed(spec: dict[str, Any], choice: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """A table with some of the values of its levels: `{metric: [rmse]}` leaves its RMSE."""
    axes = {name: dict(spec[name]) for name in ("rows", "columns")}
    for level, wanted in choice.items():
        levels = next((levels for levels in axes.values() if level in levels), {})
        known = {str(value): value for value in levels.get(level, [])}
        if unknown := set(wanted) - set(known):
            raise UserError(f"{spec['title']}: there is no {level}={unknown.pop()} in this table")
        levels[level] = [value for text, value in known.items() if text in wanted]
    return spec | axes


def axis(levels: dict[str, list[Value]]) -> list[dict[str, Value]]:
    """All places along one axis of a table: `{model: [a, b], active_set: [1, 2]}` makes four."""
    return [dict(zip(levels, values, strict=True)) for values in product(*levels.values())]


def names(place: dict[str, Value]) -> tuple[str, ...]:
    """The values of a place as a person reads them."""
    return tuple(named(kind, value) for kind, value in place.items())


def named(kind: str, value: Value) -> str:
    """A model, dataset, metric or active set as a person reads it."""
    if kind == "active_set":
        return f"A = {value}"
    known = facts()[f"{kind}s"].get(value, value)
    return str(known["name"] if isinstance(known, dict) else known)


def digits(metric: str) -> int:
    """How many decimals of a metric are shown."""
    known = facts()["metrics"].get(metric)
    return int(known["digits"]) if known else 3


def is_filled(c: Cell) -> bool:
    """Whether there is any run behind a cell, finished or not."""
    return bool(c.values or c.others)


def cell(spec: dict[str, Any], where: dict[str, Any], runs: Sequence[Run], sweep: bool) -> Cell:
    """What the runs say in one place, and what was published there."""
    at = {"dataset": spec.get("dataset"), "metric": spec.get("metric"), "active_set": None, **where}
    place = Place(at["model"], at["dataset"], at["active_set"], at["metric"])
    published = spec["published"].get(place.model, {}).get(place.dataset, {}).get(place.metric)
    if published and place.active_set is not None:
        published = published.get(place.active_set)
    ours = ours_at(place, [run for run in runs if fits(run, place)])
    return Cell(
        place,
        ours.values,
        ours.others,
        published,
        caveat=spec.get("not_comparable", {}).get(place.metric),
        remarks=ours.remarks,
        asked_for=is_filled(ours) or not sweep,
    )


def fits(run: Run, place: Place) -> bool:
    """Whether a run belongs into a place."""
    same = (run.model, run.dataset) == (place.model, place.dataset)
    return same and place.active_set in (None, run.active_set)


def ours_at(place: Place, runs: Sequence[Run]) -> Cell:
    """The seeds of one group of settings; where several groups compete for a place, a remark names the others."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    if not groups:
        return Cell(place)
    chosen, *rest = sorted(groups.values(), key=precedence, reverse=True)
    remark = () if not rest else (competition(place, [chosen, *rest]),)
    ours = of_group(place, chosen)
    return replace(ours, remarks=(*ours.remarks, *remark))


def precedence(group: Sequence[Run]) -> tuple[int, float, float, str]:
    """Which of several groups a table shows: most finished runs, epochs, active points, newest; never a test score."""
    first = group[0]
    size = first.active_set if isinstance(first.active_set, int) else 0
    done = sum(run.status == "done" for run in group)
    return done, first.config.get("trainer", {}).get("max_epochs") or 0, size, max(started(run) for run in group)


def started(run: Run) -> str:
    """When a run began, as text that sorts; empty for one that did not."""
    return str(run.record.get("started", ""))


def of_group(place: Place, group: Sequence[Run]) -> Cell:
    """The seeds of runs with the same settings; of runs with the same seed the newest that is done counts."""
    by_seed: dict[int, list[Run]] = {}
    for run in group:
        by_seed.setdefault(run.seed, []).append(run)
    kept = [max(same, key=lambda run: (run.status == "done", started(run))) for _, same in sorted(by_seed.items())]
    repeated = tuple(
        f"{named('model', place.model)}, {named('dataset', place.dataset)}: {len(same)} runs have the same settings "
        f"and seed {seed}; the newest counts."
        for seed, same in sorted(by_seed.items())
        if len(same) > 1
    )
    values = tuple(run.metrics[place.metric] for run in kept if place.metric in run.metrics)
    statuses = Counter(status(run, place.metric) for run in kept)
    return Cell(place, values, tuple((s, n) for s, n in sorted(statuses.items()) if s != "done"), remarks=repeated)


def status(run: Run, metric: str) -> str:
    """A run's status; one that is done without this metric has no such score."""
    return "without it" if run.status == "done" and metric not in run.metrics else run.status


def competition(place: Place, groups: Sequence[Sequence[Run]]) -> str:
    """Which settings compete for a place, the one shown first."""
    keys = differing(run for group in groups for run in group)
    described = []
    for group in groups:
        run = group[0]
        size = [] if place.active_set is not None or run.active_set is None else [f"A = {run.active_set}"]
        own = [f"{short(key)} = {run.settings.get(key)}" for key in keys]
        described.append(f"{', '.join(size + own)}: {ours_text(of_group(place, group))}")
    return f"Several settings compete, shown is the first: {'; '.join(described)}."


def short(key: str) -> str:
    """The last part of a setting's dotted name."""
    return key.removesuffix("._target_").rpartition(".")[2]


def lines(label: str, cells: Sequence[Cell], remarks: list[str]) -> list[Row]:
    """Our line of a table and, where there is something published, that and the difference."""

    def marks(texts: Iterable[str | None]) -> str:
        return "".join(f" [{remarks.index(text) + 1}]" for text in texts if text)

    rows = [Row(label, "ours", [ours_text(c) + marks(c.remarks) for c in cells], [""] * len(cells))]
    if any(c.published for c in cells):
        texts = [(c.published or "") + marks([c.published and c.caveat]) for c in cells]
        rows.append(Row("published", "published", texts, [""] * len(cells)))
    if any(c.difference is not None for c in cells):
        rows.append(Row("difference", "difference", [difference_text(c) for c in cells], [c.verdict for c in cells]))
    return rows


def ours_text(c: Cell) -> str:
    """`0.2023 ± 0.0004 (3)`, with the number of runs and what became of the others; or why there is no number."""
    if c.mean is None:
        return others_text(c) or ("missing" if c.asked_for else "")
    return f"{mean_text(c)} ({'; '.join([str(len(c.values)), *filter(None, [others_text(c)])])})"


def mean_text(c: Cell) -> str:
    """`0.2023 ± 0.0004`, or nothing."""
    if c.mean is None:
        return ""
    places = digits(c.place.metric)
    return minus(f"{c.mean:.{places}f}" + ("" if c.sd is None else f" ± {c.sd:.{places}f}"))


def others_text(c: Cell) -> str:
    """`1 failed, 2 missing`."""
    return ", ".join(f"{count} {status}" for status, count in c.others)


def difference_text(c: Cell) -> str:
    """`−0.0383 better`, or nothing."""
    return "" if c.difference is None else minus(f"{c.difference:+.{digits(c.place.metric)}f} {c.verdict}")


def minus(text: str) -> str:
    """A number with a real minus sign."""
    return text.replace("-", "\N{MINUS SIGN}")
