"""The tables as other programs take them."""

import csv
import io
import shutil
import subprocess
from html.parser import HTMLParser
from pathlib import Path

import pytest

from src.report import formats, records, tables
from src.report.settings import settings_table
from src.report.tables import Table
from tests.report.handmade import write_run


@pytest.fixture
def filled(tmp_path: Path) -> list[Table]:
    """Tables with everything in them: means, failures, competitors, letters that mean something to LaTeX and HTML."""
    for seed in (0, 1):
        write_run(tmp_path, seed=seed, metrics={"rmse": 0.2 + 0.01 * seed, "nlpd": -0.19, "accuracy_1nn": 0.7})
    write_run(tmp_path, epochs=40, metrics={"rmse": 0.1})
    write_run(tmp_path, "sas", active_set=100, status="failed")
    write_run(
        tmp_path, "svgp_vae", "rotated_mnist", active_set=None, metrics={"mse_sample": 0.0236}, aux="a_b & <c> | 5%"
    )
    write_run(tmp_path, "svgp_vae", "rotated_mnist", active_set=None, aux="#${}~^\\", seed=1)
    runs = records.read(tmp_path).runs
    return [*tables.paper_tables(runs), settings_table(runs)]


def test_markdown_has_a_cell_for_every_column(filled: list[Table]) -> None:
    text = formats.markdown(filled)
    assert "| MNIST RMSE | 1 failed | missing | missing | missing | missing | 0.2050 ± 0.0071 (2) [1] |" in text
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    assert len(blocks) == len(filled)
    for table, (head, *body) in zip(filled, blocks, strict=True):
        assert len(body) == 1 + len(table.rows)
        assert {line.replace(r"\|", "").count("|") for line in (head, *body)} == {len(table.columns) + 2}


def test_csv_has_every_cell_with_full_precision(filled: list[Table]) -> None:
    rows = list(csv.DictReader(io.StringIO(formats.csv_text(filled))))
    assert len(rows) == sum(len(table.cells) for table in filled)
    (row,) = [
        r
        for r in rows
        if (r["table"], r["model"], r["active_set"], r["metric"], r["dataset"])
        == ("table1", "bayesian_sas", "400", "rmse", "mnist")
    ]
    assert float(row["mean"]) == pytest.approx(0.205, abs=1e-15) and float(row["sd"]) == pytest.approx(0.01 / 2**0.5)
    assert (row["runs"], row["published"], row["published_sd"], row["verdict"]) == ("2", "0.199", "0.002", "worse")
    assert float(row["difference"]) == pytest.approx(0.006) and "max_epochs = 40" in row["remarks"]
    (failed,) = [
        r
        for r in rows
        if (r["table"], r["model"], r["active_set"], r["metric"], r["dataset"])
        == ("table1", "sas", "100", "rmse", "mnist")
    ]
    assert (failed["mean"], failed["runs"], failed["not_done"]) == ("", "0", "1 failed")


def test_latex_is_narrow_and_escaped(filled: list[Table]) -> None:
    text = formats.latex(filled)
    assert r".2050 $\pm$ .0071 (2) [1]" in text and r"\multicolumn{3}{c}{Bayesian SAS-GP}" in text
    assert r"a\_b \& $<$c$>$ $|$ 5\%" in text


def test_only_the_zero_before_a_point_is_dropped() -> None:
    texts = ["10.25", "0.25 ± 0.05", "\N{MINUS SIGN}0.5", "100.0", "0", "A = 0.5"]
    row = formats.latex_row(tables.Row("x", "ours", texts, [""] * len(texts)), below=False)
    assert row == r"x & 10.25 & .25 $\pm$ .05 & $-$.5 & 100.0 & 0 & A = .5 \\"


def test_csv_has_one_column_per_level_in_use(tmp_path: Path) -> None:
    for epochs in (20, 40):
        write_run(tmp_path, "vae", "digits", active_set=None, epochs=epochs)
    text = formats.csv_text([settings_table(records.read(tmp_path).runs)])
    head = text.splitlines()[0].split(",")
    assert head[:6] == ["table", "row", "model", "dataset", "trainer.max_epochs", "metric"] and "active_set" not in head
    assert [row["trainer.max_epochs"] for row in csv.DictReader(io.StringIO(text))] == ["20", "40"]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="there is no pdflatex")
@pytest.mark.parametrize("layout", ["", "twocolumn"])
def test_latex_compiles(layout: str, filled: list[Table], tmp_path: Path) -> None:
    (tmp_path / "tables.tex").write_text(formats.latex(filled))
    document = rf"\documentclass[{layout}]{{article}}\begin{{document}}\input{{tables}}\end{{document}}"
    (tmp_path / "paper.tex").write_text(document)
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "paper.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert (tmp_path / "paper.pdf").stat().st_size > 10_000


class Balanced(HTMLParser):
    """Notes elements that are opened, and complains of those closed in the wrong order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data


def test_html_is_balanced_and_marks_verdicts(filled: list[Table]) -> None:
    text, parser = formats.html(filled), Balanced()
    parser.feed(text)
    assert parser.open == [] and "0.2050 ±\xa00.0071 (2) [1]" in parser.cells
    assert '<td class="worse">+0.0060 worse</td>' in text and '<td class="gap">missing</td>' in text
    assert "<c>" not in text
