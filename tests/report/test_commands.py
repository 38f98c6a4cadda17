"""The runs behind the cells of a table."""

from pathlib import Path

from src.report import records
from src.report.commands import folded_commands
from src.report.fill import fill, table_of
from tests.report.handmade import write_run


def test_each_set_of_runs_is_listed_once_with_its_fingerprints_and_a_command(tmp_path: Path) -> None:
    """RMSE and MAE are of the same runs; the second seed of A = 200 has no MAE."""
    both = [write_run(tmp_path, seed=seed, metrics={"mae": 0.1}) for seed in (0, 1)]
    other = [
        write_run(tmp_path, seed=seed, active_set=200, metrics={"mae": 0.1} if not seed else {}) for seed in (0, 1)
    ]
    write_run(tmp_path, seed=2, status="failed")
    table = table_of("table1", records.read(tmp_path).runs, {"dataset": ["mnist"], "metric": ["rmse", "mae"]})
    lines = folded_commands(table).splitlines()
    first, second, third, fourth = (f"`{folder.name[-8:]}`" for folder in (*other, *both))
    command = "  `python -m src.train model=bayesian_sas dataset=mnist seed=0`"
    assert lines[3:-2] == [
        f"- MNIST, Bayesian SAS-GP, A = 200, seeds 0, 1: {first}, {second}",
        command,
        f"- MNIST, Bayesian SAS-GP, A = 400, seeds 0, 1: {third}, {fourth}",
        command,
        f"- MNIST, Bayesian SAS-GP, A = 200, seed 0: {first}",
        command,
    ]


def test_a_text_gets_the_list_where_its_mark_asks_for_it(tmp_path: Path) -> None:
    runs = records.read(write_run(tmp_path / "runs").parent).runs
    path, end = tmp_path / "text.md", "<!-- end of table -->\n"
    path.write_text(f"<!-- table table1 metric=rmse with commands -->\n{end}<!-- table table1 metric=rmse -->\n{end}")
    text = fill(path, runs)
    first, second, _ = text.split(end)
    assert first.count("<details>") == 1 and runs[0].name[-8:] in first and "<details>" not in second
    path.write_text(text)
    assert fill(path, runs) == text
