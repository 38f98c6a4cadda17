"""Tables inside a text."""

from pathlib import Path

import pytest

from src.report.__main__ import main
from tests.report.handmade import write_run

TEXT = """# Title
<!-- table table1 dataset=mnist metric=rmse,mae model=bayesian_sas -->
old
<!-- end of table -->
between
<!-- table table2 -->
<!-- end of table -->
below
"""


@pytest.fixture
def outputs(tmp_path: Path) -> Path:
    write_run(tmp_path / "outputs", metrics={"rmse": 0.2, "mae": 0.1, "accuracy_1nn": 0.7})
    return tmp_path / "outputs"


def test_only_the_tables_are_made_anew_with_the_rows_and_columns_of_the_mark(outputs: Path, tmp_path: Path) -> None:
    path = tmp_path / "README.md"
    path.write_text(TEXT)
    main([str(outputs), "--fill", str(path)])
    text = path.read_text()
    lines = text.splitlines()
    assert lines[0] == "# Title" and "between" in lines and lines[-1] == "below" and "old" not in lines
    assert "|  | Bayesian SAS-GP A = 100 | Bayesian SAS-GP A = 200 | Bayesian SAS-GP A = 400 |" in lines
    assert "| MNIST RMSE | missing | missing | 0.2000 (1) |" in lines and "| MNIST MAE | missing | missing |" in text
    assert "NLPD" not in text and "Fashion" not in text.partition("between")[0]
    assert "| Bayesian SAS-GP | 0.700 (1) | missing |" in lines
    main([str(outputs), "--fill", str(path)])
    assert path.read_text() == text
    assert not (outputs / "report").exists()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("no mark", "has 0 complete places for tables"),
        (
            "<!-- table table1 -->\nprose\n<!-- table table2 -->\n<!-- end of table -->",
            "has 1 complete places for",
        ),
        (
            f"{TEXT}<!-- table table1 dataset = mnist -->\n<!-- end of table -->",
            "has 2 complete places for",
        ),
        (
            "<!-- table settings dataset=mnist -->\n<!-- end of table -->",
            "settings cannot be narrowed: leave out dataset",
        ),
        ("<!-- table table7 -->\n<!-- end of table -->", "there is no table table7: choose from table1"),
        (
            "<!-- table table1 metric=speed -->\n<!-- end of table -->",
            "table table1: there is no metric=speed",
        ),
        (
            "<!-- table table2 colour=red -->\n<!-- end of table -->",
            "table table2: there is no colour=red",
        ),
        ("<!-- table moving_ball -->\n<!-- end of table -->", "table moving_ball: no run belongs to it"),
    ],
)
def test_what_cannot_be_filled_is_refused_before_anything_is_written(
    text: str, reason: str, outputs: Path, tmp_path: Path
) -> None:
    good, bad = tmp_path / "good.md", tmp_path / "bad.md"
    good.write_text(TEXT)
    bad.write_text(text)
    with pytest.raises(SystemExit, match=reason):
        main([str(outputs), "--fill", str(good), str(bad)])
    assert good.read_text() == TEXT and bad.read_text() == text
