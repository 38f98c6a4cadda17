"""Tables of one's own experiments as plain text, for a terminal or a log."""

import shutil
from collections.abc import Sequence

from src.report.comparison import columns
from src.report.formats import explanation
from src.report.own import checked_metrics, own_table
from src.report.records import Run, of_cells
from src.report.significance import BEST, IN_BOLD
from src.report.tables import Row, Table
from src.runs.request import RunRequest

WIDTH = 120  # of a log, which has none
STAR = "*"


def print_sweep(cells: Sequence[RunRequest]) -> None:
    """Print a table of the cells of a sweep with the metrics that fit the terminal; nothing if no cell is done."""
    runs = of_cells(cells)
    if any(run.metrics for run in runs):
        print(f"\n{fitting(runs, shutil.get_terminal_size((WIDTH, 0)).columns)}", flush=True)


def fitting(runs: Sequence[Run], width: int) -> str:
    """A table of as many metrics as fit a width, at least one, and which metrics it leaves out."""
    metrics = checked_metrics(None, runs)
    for count in range(len(metrics), 0, -1):
        shown = text(own_table(runs, metrics=metrics[:count]))
        if widest(shown) <= width:
            break
    left_out = ", ".join(metrics[count:])
    return shown + (f"\nMore metrics with python -m src.report --metric: {left_out}" if left_out else "")


def text(table: Table) -> str:
    """A table in aligned columns, with a star after the best values."""
    head = [("", *names) for names in zip(*table.columns, strict=True)]
    rows = [(row.label, *starred(row)) for row in table.rows]
    remarks = [f"[{number}] {remark}" for number, remark in enumerate(table.remarks, 1)]
    note = explanation(table).replace(IN_BOLD, IN_BOLD.replace("Bold", STAR))
    return "\n".join([table.title, "", columns([*head, *rows]), "", *remarks, note])


def starred(row: Row) -> list[str]:
    """The cells of a line, a star after the best."""
    return [text + STAR if verdict == BEST else text for text, verdict in zip(row.texts, row.verdicts, strict=True)]


def widest(shown: str) -> int:
    """The width of the lines of a table, without its title and the remarks below it."""
    return max(map(len, shown.split("\n\n")[1].splitlines()))
