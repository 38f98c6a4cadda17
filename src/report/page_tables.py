"""The tables of the page: one's own first, and those of papers without the cells that have no run."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from src.report.evidence import evidence_table
from src.report.formats import html, html_table
from src.report.imputation import imputation_table
from src.report.records import Run
from src.report.settings import settings_table
from src.report.tables import Table, paper_tables


class Tables(NamedTuple):
    """The parts of the page that hold tables, as HTML."""

    own: str  # what was asked for by --rows and --columns
    tables: str  # all configurations, by dataset
    papers: str


def tables_of_page(runs: Sequence[Run], own: Sequence[Table] = (), sweep: bool = False) -> Tables:
    """All tables of the page."""
    asked = f"<section>{html(own)}</section>" if own else ""
    others = [table for table in (imputation_table(runs), evidence_table(runs)) if table]
    whole = {table.name: table for table in paper_tables(runs)}
    papers = [folded(table, whole[table.name], sweep) for table in paper_tables(runs, sweep=True)]
    return Tables(asked, html([*by_dataset(runs), *others]), "\n".join(papers))


def by_dataset(runs: Sequence[Run]) -> list[Table]:
    """One table of configurations per dataset, which has the metrics of its own runs only."""
    names = sorted({run.dataset for run in runs})
    tables = {name: settings_table([run for run in runs if run.dataset == name], marked=True) for name in names}
    return [replace(table, name=f"settings-{name}") for name, table in tables.items()]


def folded(table: Table, whole: Table, sweep: bool) -> str:
    """A paper's table with the rows and columns that have runs; the whole table can be unfolded."""
    if sweep or len(table.cells) == len(whole.cells):
        return html_table(table)
    missing = sum(not cell.is_filled for cell in whole.cells)
    summary = f"The whole table; {missing} of its {len(whole.cells)} cells have no run"
    rest = html_table(replace(whole, name=f"{whole.name}-whole"))
    return f'{html_table(table)}<details class="whole"><summary>{summary}</summary>{rest}</details>'
