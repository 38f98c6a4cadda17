"""Tables as text: Markdown, CSV in long form, LaTeX without packages, and HTML."""

import csv
import io
import re
from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby

from src.report.cells import Cell, others_text
from src.report.significance import BEST
from src.report.tables import Row, Table
from src.runs.published import numbers

BEFORE, AFTER = ("table", "row"), (
    "mean", "sd", "runs", "not_done", "published", "published_sd", "difference", "verdict", "remarks",
)  # fmt: skip
FIRST, LAST = ("model", "dataset", "active_set"), ("metric",)  # the order of levels in CSV; others are between these
WORDS = re.compile("[a-z]{3}")  # in place of a number: 1 failed, missing
LATEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "\N{MINUS SIGN}": r"$-$", "<": "$<$",
    ">": "$>$", "|": "$|$", "·": r"$\cdot$", "\N{DAGGER}": r"$^\dagger$",
}  # fmt: skip


def markdown(tables: Sequence[Table]) -> str:
    """All tables, each with its source and remarks."""
    return "\n".join(markdown_table(table) for table in tables)


def markdown_table(table: Table) -> str:
    """One table with its title."""
    return f"## {table.title}\n\n{markdown_body(table)}\n"


def markdown_body(table: Table) -> str:
    """One table, its remarks and a note on its numbers; pipes in texts are escaped, since they would end a cell."""
    head = ["", *(" ".join(column) for column in table.columns)]
    lines = [head, ["---"] * len(head), *(markdown_row(row) for row in table.rows)]
    grid = "\n".join("| " + " | ".join(text.replace("|", r"\|") for text in line) + " |" for line in lines)
    below = [f"{number}. {remark}" for number, remark in enumerate(table.remarks, 1)]
    return "\n\n".join(part for part in (grid, "\n".join(below), explanation(table)) if part)


def markdown_row(row: Row) -> list[str]:
    """The label and the cells of a line, the best in bold."""
    texts = [f"**{text}**" if v == BEST else text for text, v in zip(row.texts, row.verdicts, strict=True)]
    return [f"*{row.label}*" if row.kind != "ours" else row.label, *texts]


def explanation(table: Table) -> str:
    """What the numbers are, and the source of the published ones."""
    return f"{table.note} Published: {table.source}." if table.source else table.note


def csv_text(tables: Sequence[Table]) -> str:
    """One line per cell for other programs, with one column per level that any table uses."""
    text = io.StringIO()
    levels = levels_in_use(tables)
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow((*BEFORE, *levels, *AFTER))
    for table in tables:
        labels = [row.label for row in table.rows if row.kind == "ours"]
        width = len(table.cells) // max(1, len(labels))
        for label, cell in zip((label for label in labels for _ in range(width)), table.cells, strict=True):
            writer.writerow((table.name, label, *(cell.place.get(level) for level in levels), *outcome(cell)))
    return text.getvalue()


def levels_in_use(tables: Iterable[Table]) -> list[str]:
    """The levels of all cells: model, dataset, active set, settings, metric."""
    used = dict.fromkeys(level for table in tables for cell in table.cells for level in cell.place)
    between = [level for level in used if level not in (*FIRST, *LAST)]
    return [level for level in (*FIRST, *between, *LAST) if level in used]


def outcome(cell: Cell) -> tuple[float | int | str | None, ...]:
    """The values of a cell in full precision."""
    published = numbers(cell.published) if cell.published else (None, None)
    others = others_text(cell) or ("" if cell.values or not cell.asked_for else "missing")
    remarks = " ".join(filter(None, [cell.caveat, *cell.remarks]))
    return (cell.mean, cell.sd, len(cell.values), others, *published, cell.difference, cell.verdict, remarks)


def latex(tables: Sequence[Table]) -> str:
    """One `table*` per table, for `\\input` in any document; no package is needed."""
    return "\n".join(latex_table(table) for table in tables)


def latex_table(table: Table) -> str:
    """One table, with one line of column names per level."""
    head = [latex_head([column[level] for column in table.columns]) for level in range(len(table.columns[0]))]
    body = [latex_row(row, i > 0) for i, row in enumerate(table.rows)]
    remarks = [f"[{number}] {remark}" for number, remark in enumerate(table.remarks, 1)]
    caption = " ".join([f"{table.title}.", explanation(table), *remarks])
    return "\n".join(
        [
            r"\begin{table*}",
            r"\centering\scriptsize\setlength{\tabcolsep}{2pt}",
            rf"\caption{{{latex_escaped(caption)}}}\vskip 4pt",
            rf"\label{{tab:{table.name.replace('_', '-')}}}",
            rf"\begin{{tabular}}{{{'l' if table.source else 'p{3cm}'}{'c' * len(table.columns)}}}",
            r"\hline",
            *head,
            r"\hline",
            *body,
            r"\hline",
            r"\end{tabular}",
            r"\end{table*}",
            "",
        ]
    )


def latex_head(names: list[str]) -> str:
    """One level of column names; neighbours with the same name share it."""
    spans = [(name, len(list(same))) for name, same in groupby(names)]
    cells = [latex_escaped(n) if k == 1 else rf"\multicolumn{{{k}}}{{c}}{{{latex_escaped(n)}}}" for n, k in spans]
    return " & ".join(["", *cells]) + r" \\"


def latex_row(row: Row, below: bool) -> str:
    """One line, with a gap above each line of ours. Numbers below 1 lose their zero, as in papers."""
    label = latex_escaped(row.label) if row.kind == "ours" else rf"\quad\textit{{{row.label}}}"
    texts = [latex_escaped(re.sub(r"(?<![\d.])0\.(?=\d)", ".", text)) for text in row.texts]
    texts = [rf"\textbf{{{text}}}" if v == BEST else text for text, v in zip(texts, row.verdicts, strict=True)]
    if row.kind == "published":
        texts = [text and rf"\textit{{{text}}}" for text in texts]
    gap = r"\noalign{\vskip 2pt}" if below and row.kind == "ours" else ""
    return gap + " & ".join([label, *texts]) + r" \\"


def latex_escaped(text: str) -> str:
    """Text as LaTeX prints it."""
    return "".join(LATEX.get(letter, letter) for letter in text)


def html(tables: Sequence[Table]) -> str:
    """All tables for the page."""
    return "\n".join(html_table(table) for table in tables)


def html_table(table: Table) -> str:
    """One table, in a box that scrolls on narrow screens."""
    levels = range(len(table.columns[0]))
    head = "".join(html_head([column[level] for column in table.columns]) for level in levels)
    body = "".join(html_row(row) for row in table.rows)
    remarks = "".join(f"<li>{escape(remark)}</li>" for remark in table.remarks)
    return (
        f'<figure class="table" id="{table.name}"><figcaption>{escape(table.title)}</figcaption>'
        f'<div class="scroll" tabindex="0"><table><thead>{head}</thead><tbody>{body}</tbody></table></div>'
        + (f"<ol>{remarks}</ol>" if remarks else "")
        + f"<p>{escape(explanation(table))}</p></figure>"
    )


def html_head(names: list[str]) -> str:
    """One level of column names; neighbours with the same name share it."""
    spans = [(name, len(list(same))) for name, same in groupby(names)]
    return "<tr><td></td>" + "".join(f'<th colspan="{k}">{escape(name)}</th>' for name, k in spans) + "</tr>"


def html_row(row: Row) -> str:
    """One line, with the verdicts as classes."""
    cells = "".join(
        f'<td class="{verdict or ("gap" if WORDS.search(text) else "")}">{escape(text).replace("± ", "±&nbsp;")}</td>'
        for text, verdict in zip(row.texts, row.verdicts, strict=True)
    )
    return f'<tr class="{row.kind}"><th scope="row">{escape(row.label)}</th>{cells}</tr>'
