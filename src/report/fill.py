"""Tables inside a text, such as a README: whatever is between two marks is replaced by a table of runs.

<!-- table table1 dataset=mnist,fmnist metric=rmse -->
...
<!-- end of table -->

With `<!-- table table1 with commands -->`, a folded list below the table names the runs behind its cells.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from src.report.commands import folded_commands
from src.report.evidence import evidence_table
from src.report.formats import markdown_body
from src.report.imputation import imputation_table
from src.report.records import Run
from src.report.settings import settings_table
from src.report.tables import Table, left_out, paper_table
from src.runs import published
from src.runs.errors import UserError

BEGIN, END = "<!-- table ", "<!-- end of table -->"
PLACE = re.compile(
    rf"^(?P<begin>{BEGIN}(?P<name>\w+)(?P<choice>(?: [\w.]+=[^\s=]+)*)(?P<commands> with commands)? -->\n)"
    rf"(?:(?!{BEGIN}).)*?^(?P<end>{END})$",
    re.DOTALL | re.MULTILINE,
)


def fill(path: Path, runs: Sequence[Run]) -> str:
    """The text of a file with its tables renewed."""
    try:
        text = path.read_text()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}") from error
    places, marks = len(PLACE.findall(text)), {("\n" + text).count(f"\n{mark}") for mark in (BEGIN, END)}
    if not places or marks != {places}:
        raise UserError(
            f"{path} has {places} complete places for tables, and marks that do not pair: a place starts with a line "
            "such as <!-- table table1 metric=rmse,mae --> and ends with <!-- end of table -->"
        )
    return filled(text, runs)


def filled(text: str, runs: Sequence[Run]) -> str:
    """A text with its tables renewed."""

    def made(place: re.Match[str]) -> str:
        choice = dict(option.split("=") for option in place["choice"].split())
        table = table_of(place["name"], runs, {level: values.split(",") for level, values in choice.items()})
        parts = [markdown_body(table), *([folded_commands(table)] if place["commands"] else [])]
        return "\n\n".join([place["begin"].rstrip("\n"), *parts, place["end"]])

    return PLACE.sub(made, text)


def table_of(name: str, runs: Sequence[Run], choice: dict[str, list[str]]) -> Table:
    """A table by name, or some of its rows and columns."""
    others = {"imputation": imputation_table, "evidence": evidence_table, "settings": settings_table}
    if name in others and choice:
        raise UserError(f"table {name} cannot be narrowed: leave out {', '.join(choice)}")
    if name in others:
        table = others[name](runs)
    elif name in published.tables():
        table = paper_table(name, runs, choice=choice)
    else:
        raise UserError(f"there is no table {name}: choose from {', '.join([*published.tables(), *others])}")
    if table is None:
        raise UserError(f"table {name}: {left_out(runs).get(f'table {name}', 'no run belongs to it')}")
    return table
