"""Tables of one's own experiments: any settings as rows and columns, the best values in bold."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from src.report import significance
from src.report.cells import WITHOUT, Cell, by_precedence, ours_at, ours_text
from src.report.keys import key_of, value_of
from src.report.labels import label, order, short
from src.report.records import Run, differing
from src.report.settings import overview_metrics
from src.report.tables import NOTE, Row, Table
from src.runs.errors import UserError
from src.runs.published import Place

TITLE = "Your experiments"
FIRST = ("model", "dataset", "active_set", "metric")  # levels that a row names whenever they differ
AROUND = ("trainer.", "dataset.", "evaluation.")  # settings that models share, so that a comparison should


def own_table(
    runs: Sequence[Run],
    rows: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    metrics: Sequence[str] | None = None,
) -> Table:
    """A table by any settings; by default, one row per configuration and one column per dataset and metric."""
    across = levels_of(columns or ["dataset"], runs)
    down = levels_of(rows, runs) if rows else [key for key in what_differs(runs) if key not in across] or ["model"]
    if "metric" not in (*down, *across):
        across = [*across, "metric"]
    check_levels([*down, *across], runs)
    wanted = checked_metrics(metrics, runs)
    lines, heads = places_of(down, runs, wanted), places_of(across, runs, wanted)
    cells = [[ours_at({**line, **head}, at({**line, **head}, runs)) for head in heads] for line in lines]
    lines, cells = without_empty(lines, cells)
    return composed(lines, heads, cells, also_differ(cells, runs, [*down, *across]))


def without_empty(lines: Sequence[Place], cells: Sequence[list[Cell]]) -> tuple[list[Place], list[list[Cell]]]:
    """The rows in which some run has a value or could have one."""
    kept = [i for i, line in enumerate(cells) if not all(map(is_empty, line))]
    return [lines[i] for i in kept], [cells[i] for i in kept]


def is_empty(cell: Cell) -> bool:
    """Whether no run could have a value in a cell."""
    return not cell.values and {status for status, _ in cell.others} <= {WITHOUT}


def levels_of(names: Iterable[str], runs: Sequence[Run]) -> list[str]:
    """The levels that a person names."""
    return [name if name == "metric" else key_of(name, runs) for name in names]


def what_differs(runs: Sequence[Run]) -> list[str]:
    """Model, dataset, active set and settings that tell the configurations of runs apart."""
    known = ("model", "dataset", "active_set", *differing(runs))
    return [key for key in known if len({value_of(run, key) for run in runs}) > 1]


def check_levels(levels: Sequence[str], runs: Sequence[Run]) -> None:
    """Reject a level that is named twice, and scores of several datasets in one cell."""
    if twice := [key for key in levels if levels.count(key) > 1]:
        raise UserError(f"{twice[0]} is named twice in the rows and columns")
    datasets = sorted({run.dataset for run in runs})
    if "dataset" not in levels and len(datasets) > 1:
        raise UserError(
            f"the runs have the datasets {', '.join(datasets)}: add dataset to the rows or columns, or choose one with "
            f"--where dataset={datasets[0]}"
        )


def checked_metrics(names: Sequence[str] | None, runs: Sequence[Run]) -> list[str]:
    """The metrics that a person names, or those of the overview; a UserError if no run has one of them."""
    present = list(dict.fromkeys(name for run in runs for name in run.metrics))
    if not present:
        raise UserError("no run is finished, so there is no table of scores")
    for name in names or ():
        if name not in present:
            close = get_close_matches(name, present, n=3)
            hint = f"did you mean {' or '.join(close)}?" if close else f"they have {', '.join(present)}"
            raise UserError(f"no run has the metric {name}; {hint}")
    return list(names or overview_metrics(runs))


def places_of(levels: Sequence[str], runs: Sequence[Run], metrics: Sequence[str]) -> list[Place]:
    """The values that runs have at these levels, each with every metric if that is a level."""
    settings = [key for key in levels if key != "metric"]
    found = {str(place): place for place in ({key: value_of(run, key) for key in settings} for run in runs)}
    places = sorted(found.values(), key=lambda place: [order(value) for value in place.values()])
    return [{**place, "metric": name} for place in places for name in metrics] if "metric" in levels else list(places)


def at(place: Place, runs: Iterable[Run]) -> list[Run]:
    """The runs that belong into a place."""
    return [run for run in runs if all(value_of(run, key) == place[key] for key in place if key != "metric")]


def also_differ(cells: Sequence[Sequence[Cell]], runs: Sequence[Run], levels: Sequence[str]) -> list[str]:
    """What else differs between the runs that are shown of one dataset, so that nobody takes it for the same."""
    shown = [by_precedence(at(cell.place, runs))[0][0] for line in cells for cell in line if cell.is_filled]
    remarks = []
    for dataset in sorted({run.dataset for run in shown}):
        same = [run for run in shown if run.dataset == dataset]
        keys = {key for run in same for key in run.settings if key.startswith(AROUND)} - set(levels)
        values = {key: sorted({value_of(run, key) for run in same}, key=order) for key in sorted(keys)}
        told = [f"{short(key)} ({', '.join(map(str, found))})" for key, found in values.items() if len(found) > 1]
        remarks += [f"{label('dataset', dataset)}: the runs shown also differ in {', '.join(told)}."] if told else []
    return remarks


def composed(
    lines: Sequence[Place], heads: Sequence[Place], cells: Sequence[Sequence[Cell]], remarks: Sequence[str]
) -> Table:
    """The table as texts; levels that have one value are named once, in the title."""
    flat = [cell for line in cells for cell in line]
    remarks = list(dict.fromkeys([*(text for cell in flat for text in cell.remarks), *remarks]))
    verdicts, marks = significance.marked(flat)
    texts = [text_of(cell, mark, remarks) for cell, mark in zip(flat, marks, strict=True)]
    parts = [slice(i * len(heads), (i + 1) * len(heads)) for i in range(len(lines))]
    rows = [Row(row_label(line, lines), "ours", texts[p], verdicts[p]) for line, p in zip(lines, parts, strict=True)]
    title = ", ".join([TITLE, *same_everywhere(lines), *same_everywhere(heads)])
    note = " ".join(filter(None, [NOTE, significance.note(verdicts, marks)]))
    columns = [tuple(label(key, head[key]) for key in naming(heads)) for head in heads]
    return Table("own", title, note, "", columns, rows, remarks, flat)


def text_of(cell: Cell, mark: str, remarks: Sequence[str]) -> str:
    """A cell with its mark and the numbers of its remarks; nothing if no run could have a value there."""
    if is_empty(cell):
        return ""
    return ours_text(cell) + mark + "".join(f" [{remarks.index(text) + 1}]" for text in cell.remarks)


def naming(places: Sequence[Place]) -> list[str]:
    """The levels that tell places apart; the last one if there is nothing to tell apart."""
    return [key for key in places[0] if len({str(place[key]) for place in places}) > 1] or list(places[0])[-1:]


def row_label(place: Place, places: Sequence[Place]) -> str:
    """`SAS-GP, A = 100`: what tells a row apart; a setting counts if it differs among the rows of the same model."""
    same = [other for other in places if other.get("model") == place.get("model")]
    sizes = {other.get("active_set") for other in places} - {None}
    first = [key for key in FIRST if key != "active_set" or len(sizes) > 1]
    keys = [key for key in naming(places) if key in first or len({str(other[key]) for other in same}) > 1]
    keys = [key for key in keys if place[key] is not None] or keys[:1] or naming(places)[:1]
    return ", ".join(label(key, place[key]) for key in keys)


def same_everywhere(places: Sequence[Place]) -> list[str]:
    """What all places of an axis have in common and none of them says."""
    first = places[0]
    return [label(key, first[key]) for key in first if key not in naming(places) and first[key] is not None]
