"""A file of runs says in tables what the runs' folders say, and nothing of the machine they were made on."""

import json
from pathlib import Path

import pytest

from src.report import archive, labels, records, tables
from src.report.__main__ import main
from src.report.evidence import evidence_of, evidence_table
from src.report.formats import markdown
from src.runs.errors import UserError
from tests.report.handmade import write_run


def test_the_tables_of_a_file_of_runs_are_those_of_the_runs(tmp_path: Path) -> None:
    outputs = tmp_path / "outputs"
    for seed, error in enumerate((0.2, 0.21)):
        write_run(outputs, seed=seed, metrics={"rmse": error, "accuracy_1nn": 0.7})
    write_run(outputs, "sas", active_set=100, status="failed")
    later = write_run(outputs, "sas", active_set=200) / "evaluations"
    later.mkdir()
    values = {"exact_evidence": -0.5, "sas_estimate": -0.625, "sas_estimate_sd": 0.01, "evidence_points": 3000}
    (later / "a.json").write_text(json.dumps({"metrics": values}))
    main([str(outputs)])
    main([str(outputs / "report" / "runs.json"), "--to", str(tmp_path / "again")])
    for name in ("tables.md", "tables.csv", "tables.tex", "runs.json"):
        assert (tmp_path / "again" / name).read_text() == (outputs / "report" / name).read_text(), name
    row = labels.minus("| SAS$GP, MNIST, A = 200, seed 0, N = 3,000 | -0.5000 | -0.6250 ± 0.0100 | -0.1250 |").replace(
        "$", "-"
    )
    assert row in (tmp_path / "again" / "tables.md").read_text()


def test_nothing_of_the_machine_is_kept(tmp_path: Path) -> None:
    command = "python -m src.train model=sas active_set=a100 paths.outputs={0} dataset.root={0} 'logger=[csv]' seed=1"
    folder = write_run(tmp_path, command=command.format(tmp_path))
    record = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps({**record, "host": "secret", "pid": 1, "seconds": 3.0}))
    (kept,) = json.loads(archive.text(records.read(tmp_path).runs))
    assert kept["record"] == {
        **{key: record[key] for key in ("started", "git", "versions")},
        "command": "python -m src.train model=sas active_set=a100 seed=1",
        "seconds": 3.0,
    }
    assert "paths" not in kept["config"] and str(tmp_path) not in json.dumps(kept)


WITHOUT_MODEL = {"name": "sas-mnist-s0-00000000", "status": "done", "record": {}, "metrics": {}, "evaluations": []}


@pytest.mark.parametrize("content", ["", "{}x", "[{}]", "[1]", json.dumps([{**WITHOUT_MODEL, "config": {"seed": 0}}])])
def test_another_file_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.json"
    path.write_text(content)
    with pytest.raises(UserError, match="is not a file of runs"):
        archive.read(path)


def test_what_needs_folders_is_refused(tmp_path: Path) -> None:
    run = write_run(tmp_path / "outputs").name
    main([str(tmp_path / "outputs"), "--format", "json", "--to", str(tmp_path)])
    for wish in (["--compare", run, run], ["--explore", run]):
        with pytest.raises(SystemExit, match=r"runs\.json holds no folders of runs"):
            main([str(tmp_path / "runs.json"), *wish])


def test_the_evidence_of_the_same_points_in_two_precisions_is_one_row(tmp_path: Path) -> None:
    later = write_run(tmp_path) / "evaluations"
    later.mkdir()
    for precision, exact in (("float32", -0.5), ("float64", -0.75)):
        values = {"exact_evidence": exact, "sas_estimate": -0.6, "sas_estimate_sd": 0.01, "evidence_points": 3000}
        (later / f"0-evidence-3000-{precision}.json").write_text(json.dumps({"metrics": values}))
    assert [(e.points, e.exact) for e in evidence_of(records.read(tmp_path).runs)] == [(3000, -0.75)]


def test_without_evaluations_there_is_no_table_of_the_evidence(tmp_path: Path) -> None:
    write_run(tmp_path)
    runs = records.read(tmp_path).runs
    assert evidence_table(runs) is None and "evidence" not in markdown(tables.paper_tables(runs))
