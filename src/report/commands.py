"""The runs behind each cell of a table, by their fingerprints, and the command that repeats them."""

from src.report.cells import Cell
from src.report.labels import label, labels
from src.report.tables import Table

SUMMARY = "Commands and fingerprints behind these cells"


def folded_commands(table: Table) -> str:
    """A folded Markdown list with one entry per set of runs, which the cells of several metrics share."""
    entries: dict[tuple[str, ...], str] = {}
    for cell in table.cells:
        if cell.runs:
            entries.setdefault(tuple(run.name for run in cell.runs), entry(cell))
    return "\n".join(["<details>", f"<summary>{SUMMARY}</summary>", "", *entries.values(), "", "</details>"])


def entry(cell: Cell) -> str:
    """The place of a cell, the fingerprints of its runs, and the command of the first; the others have other seeds."""
    first = cell.runs[0]
    named = labels({level: value for level, value in cell.place.items() if level not in ("metric", "seed")})
    place = ", ".join(named) or label("model", first.model)
    seeds = ", ".join(str(run.seed) for run in cell.runs)
    prints = ", ".join(f"`{run.name.rpartition('-')[2]}`" for run in cell.runs)
    many = "s" if len(cell.runs) > 1 else ""
    return f"- {place}, seed{many} {seeds}: {prints}\n  `{first.record.get('command', '')}`"
