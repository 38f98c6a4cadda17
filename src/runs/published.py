"""What papers report: their tables, read from `published.yaml`, and the published value of each cell.

Training prints the values beside a run's own metrics; the report fills the tables with runs.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from src.runs.errors import UserError
from src.runs.identity import Config, Value, canonical, settings

PUBLISHED = Path(__file__).with_name("published.yaml")
NAMED = ("model", "dataset")  # levels whose values have names for people in the file
LEVELS = (*NAMED, "active_set", "metric")
SETTING = re.compile(r"(model|dataset|trainer|evaluation)(\.\w+)+")
KEYS = {"title", "source", "rows", "columns", "fixed", "only", "without", "not_comparable", "published"}  # of a table
NUMBER = re.compile(r"(?P<mean>-?[\d.]+(?:e-?\d+)?)(?: ± (?P<sd>[\d.]+(?:e-?\d+)?))?")

Place = Mapping[str, Value]  # a value per level: {"model": "sas", "model.num_inducing": 50, "metric": "rmse"}
Axis = dict[str, list[Value]]  # the values of each level of rows or columns


class Reason(NamedTuple):
    """Why published values are another quantity than ours, and where."""

    where: Axis
    because: str


@dataclass(frozen=True)
class TableSpec:
    """One table of a paper: its levels, which runs belong to it, and its published values."""

    name: str
    title: str
    source: str
    rows: Axis
    columns: Axis
    fixed: dict[str, Value] = field(default_factory=dict)
    only: Axis = field(default_factory=dict)
    without: tuple[Axis, ...] = ()
    not_comparable: tuple[Reason, ...] = ()
    published: dict[Any, Any] = field(default_factory=dict)  # nested by the levels of rows, then of columns

    @property
    def axes(self) -> Axis:
        """The levels of rows, then of columns."""
        return {**self.rows, **self.columns}

    @property
    def metrics(self) -> list[Value]:
        """All metrics of the table."""
        return self.axes.get("metric") or [self.fixed["metric"]]

    def place(self, row: Place, column: Place) -> Place:
        """Everything that one cell is about."""
        return {**row, **column, **self.fixed}

    def takes(self, levels: Place) -> bool:
        """Whether a run belongs to the table, whatever its rows and columns are."""
        fixed = all(levels.get(level) == value for level, value in self.fixed.items() if level != "metric")
        return fixed and within(levels, self.only) and not any(within(levels, left_out) for left_out in self.without)

    def published_at(self, place: Place) -> str | None:
        """The published value of a cell, as printed; None if there is none."""
        found: Any = self.published
        for level in self.axes:
            found = found.get(place[level])
            if found is None:
                return None
        return str(found)

    def caveat_at(self, place: Place) -> str | None:
        """Why the published value of a cell cannot be compared with ours; None if it can."""
        for reason in self.not_comparable:
            if all(place[level] in values for level, values in reason.where.items()):
                return reason.because
        return None

    def narrowed(self, choice: Mapping[str, Sequence[str]]) -> "TableSpec":
        """The table with some values of its levels: `{"metric": ["rmse"]}` leaves its RMSE."""
        rows, columns = dict(self.rows), dict(self.columns)
        for level, wanted in choice.items():
            axis = rows if level in rows else columns
            known = {str(value): value for value in axis.get(level, [])}
            if unknown := [text for text in wanted if text not in known]:
                raise UserError(f"table {self.name}: there is no {level}={unknown[0]} in this table")
            axis[level] = [value for text, value in known.items() if text in wanted]
        return replace(self, rows=rows, columns=columns)


def within(levels: Place, axis: Axis) -> bool:
    """Whether a run has one of the values of every level."""
    return all(levels.get(level) in values for level, values in axis.items())


class Published(NamedTuple):
    """The content of the file."""

    names: dict[str, dict[str, str]]  # of models and datasets, for people
    tables: dict[str, TableSpec]


def published_values(
    model: str, dataset: str, config: Config, metrics: Collection[str] | None = None
) -> tuple[dict[str, str], list[str]]:
    """What papers report for a run: values by metric, and notes on their sources and caveats.

    `metrics` are those that the run has; None stands for all.
    """
    levels = levels_of(model, dataset, settings_of(config))
    values: dict[str, str] = {}
    sources, caveats = [], []
    for table in tables().values():
        found = {str(place["metric"]): place for place in published_places(table, levels)}
        found = {metric: place for metric, place in found.items() if metrics is None or metric in metrics}
        values |= {metric: str(table.published_at(place)) for metric, place in found.items()}
        sources += [f"published: {table.source}"] if found else []
        caveats += [f"{metric}: {text}" for metric, place in found.items() if (text := table.caveat_at(place))]
    return values, list(dict.fromkeys([*([""] if values else []), *sources, *caveats]))


def published_places(table: TableSpec, levels: Place) -> list[Place]:
    """The cells of a table that a run belongs to and that have a published value."""
    if not table.takes(levels):
        return []
    own = {level: levels.get(level) for level in table.axes} | table.fixed
    places = [{**own, "metric": metric} for metric in table.metrics]
    return [place for place in places if table.published_at(place) is not None]


def settings_of(config: Config) -> dict[str, Value]:
    """The settings of a run as tables compare them: null ones left out, classes of ours by their name."""
    return settings(canonical(config))


def levels_of(model: str, dataset: str, found: Mapping[str, Value]) -> dict[str, Value]:
    """Every level of a run but the metric, from its settings."""
    return {"model": model, "dataset": dataset, "active_set": found.get("model.active_set"), **found}


def places(axis: Axis) -> list[Place]:
    """All places along an axis: `{"model": ["a", "b"], "active_set": [1, 2]}` makes four."""
    return [dict(zip(axis, values, strict=True)) for values in product(*axis.values())]


def numbers(published: str) -> tuple[float, float | None]:
    """Mean and sd of a published value such as `0.255 ± 0.098`; the sd is None if the paper prints none."""
    found = NUMBER.fullmatch(published)
    if found is None:
        raise UserError(f"the published value {published} is neither `mean` nor `mean ± sd`")
    return float(found["mean"]), None if found["sd"] is None else float(found["sd"])


def tables() -> dict[str, TableSpec]:
    """All tables by name."""
    return load(PUBLISHED).tables


def name_of(level: str, value: Value) -> str:
    """A model or dataset by the name that people use; others as they are."""
    return load(PUBLISHED).names.get(level, {}).get(str(value), str(value))


def name_of_class(name: str) -> str:
    """A model by the name that people use, from that of its class: `bayesian_sas` is `BayesianSAS`."""
    names = load(PUBLISHED).names["model"]
    return next((label for option, label in names.items() if option.replace("_", "") == name.lower()), name)


@cache
def load(path: Path) -> Published:
    """The checked content of a file of tables."""
    content = yaml.safe_load(path.read_text())
    names = {level: content.get(f"{level}s", {}) for level in NAMED}
    return Published(names, {name: table_of(name, spec, names) for name, spec in content["tables"].items()})


def table_of(name: str, content: Mapping[str, Any], names: Mapping[str, Mapping[str, str]]) -> TableSpec:
    """One table, checked: a UserError names the table and the key that is wrong."""
    unknown = set(content) - KEYS
    if unknown:
        raise UserError(f"table {name}: there is no key {unknown.pop()}; keys are {', '.join(sorted(KEYS))}")
    rows, columns, only = (axis_of(name, content.get(part, {})) for part in ("rows", "columns", "only"))
    reasons = tuple(reason_of(name, dict(reason)) for reason in content.get("not_comparable", ()))
    values = content.get("published", {})
    title, source = str(content.get("title", name)), str(content.get("source", ""))
    fixed = one_each(name, axis_of(name, content.get("fixed", {})))
    without = tuple(axis_of(name, left_out) for left_out in content.get("without", ()))
    table = TableSpec(name, title, source, rows, columns, fixed, only, without, reasons, values)
    check_levels(table)
    check_names(table, names)
    check_values(table, values, list(table.axes.items()))
    return table


def reason_of(table: str, content: dict[str, Any]) -> Reason:
    """One entry of `not_comparable`."""
    if "because" not in content:
        raise UserError(f"table {table}: an entry of not_comparable has no key because")
    because = str(content.pop("because"))
    return Reason(axis_of(table, content), because)


def axis_of(table: str, content: Mapping[str, Any]) -> Axis:
    """Levels with their values as lists; a list inside a list is compared as text, as settings are."""
    axis: Axis = {}
    for key, found in content.items():
        level = "active_set" if key == "model.active_set" else key
        if level not in LEVELS and not SETTING.fullmatch(level):
            raise UserError(
                f"table {table}: {key} is not a level; levels are {', '.join(LEVELS)} and settings by their dotted "
                "name, such as model.num_inducing"
            )
        values = found if isinstance(found, list) else [found]
        axis[level] = [str(value) if isinstance(value, list) else value for value in values]
    return axis


def one_each(table: str, axis: Axis) -> dict[str, Value]:
    """The value of each level, which must be a single one."""
    for level, values in axis.items():
        if len(values) != 1:
            raise UserError(f"table {table}: {level} in fixed must have one value, not {len(values)}")
    return {level: values[0] for level, values in axis.items()}


def check_levels(table: TableSpec) -> None:
    """Every level has one role, a metric is among them, and filters name what they can."""
    used = [*table.rows, *table.columns, *table.fixed]
    if twice := [level for level in used if used.count(level) > 1]:
        raise UserError(f"table {table.name}: the level {twice[0]} is used twice")
    if not (table.rows and table.columns and "metric" in used):
        raise UserError(f"table {table.name}: it needs rows, columns and, in these or in fixed, the level metric")
    if any("metric" in chosen for chosen in (table.only, *table.without)):
        raise UserError(
            f"table {table.name}: only and without select runs, so metric cannot be among its keys; use fixed"
        )
    for level in (level for reason in table.not_comparable for level in reason.where):
        if level not in used:
            raise UserError(f"table {table.name}: {level} in not_comparable is not one of its levels")


def check_names(table: TableSpec, names: Mapping[str, Mapping[str, str]]) -> None:
    """Models and datasets are named in the file."""
    for level, value in values_of(table):
        if level in names and value not in names[level]:
            raise UserError(f"table {table.name}: the {level} {value} is not named under {level}s")


def values_of(table: TableSpec) -> Iterator[tuple[str, Value]]:
    """Every level with every value of it."""
    fixed = {level: [value] for level, value in table.fixed.items()}
    for axis in (table.rows, table.columns, fixed, table.only, *table.without):
        yield from ((level, value) for level, values in axis.items() for value in values)


def check_values(table: TableSpec, values: Any, levels: Sequence[tuple[str, Iterable[Value]]]) -> None:
    """Published values are nested as deep as the table has levels, with values of these levels as keys."""
    if not levels:
        try:
            numbers(str(values))
        except UserError as error:
            raise UserError(f"table {table.name}: {error}") from None
        return
    (level, known), *deeper = levels
    if not isinstance(values, dict):
        raise UserError(f"table {table.name}: published has {values} where it needs one entry per {level}")
    for value, below in values.items():
        if value not in known:
            raise UserError(f"table {table.name}: published has {level} {value}, which is not in the table")
        check_values(table, below, deeper)
