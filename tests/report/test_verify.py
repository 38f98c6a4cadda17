"""A stored run is run again by its own command, and its scores are compared."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from src.report.__main__ import main
from src.report.verify import Line, verdict
from tests.launch.commands import TINY, command
from tests.report.handmade import write_run


def test_a_score_is_equal_close_or_differs() -> None:
    nan = float("nan")
    found = [Line("rmse", 0.5, now, verdict(0.5, now, False)) for now in (0.5, 0.509, 0.511, 0.489, nan, None)]
    assert [line.verdict for line in found] == ["equal", "close", "DIFFERS", "DIFFERS", "DIFFERS", "MISSING"]
    assert [line.agrees for line in found] == [True, True, False, False, False, False]
    assert [verdict(-0.5, now, True) for now in (-0.5, -0.5000001)] == ["equal", "DIFFERS"]
    assert [verdict(0.0, now, False) for now in (0.0019, 0.0021)] == ["close", "DIFFERS"]
    assert verdict(nan, nan, True) == "equal" and verdict(nan, 1.0, False) == "DIFFERS"


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny run, as the command leaves it."""
    folder = tmp_path_factory.mktemp("stored")
    result = command("src.train", "dataset=digits", *TINY, "paths.outputs=outputs", cwd=folder)
    assert result.returncode == 0, result.stdout + result.stderr
    (run,) = folder.glob("outputs/sas-*")
    return run


def edited(path: Path, **values: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))


def test_on_the_same_machine_every_number_is_the_same(stored: Path, tmp_path: Path) -> None:
    """In a temporary folder, of which nothing stays."""
    result = command("src.report", "--verify", str(stored.parent), stored.name[-8:], cwd=tmp_path)
    assert result.returncode == 0, result.stdout + result.stderr
    head, table = result.stdout.split("difference")
    assert f"{stored.name}: python -m src.train dataset=digits" in head
    lines = dict(line.split(maxsplit=1) for line in table.split("\n\n")[0].splitlines()[1:])
    metrics = json.loads((stored / "metrics.json").read_text())
    assert lines.keys() == metrics.keys() - {"seconds_per_epoch", "peak_memory_mb"}
    assert all(line.endswith("equal") for line in lines.values())
    assert "Reproduced (the same machine, code, packages and threads, so numbers must be equal)." in table
    assert "other settings" not in result.stdout and list(tmp_path.iterdir()) == []


def test_a_file_of_runs_is_verified_and_a_wrong_score_is_named(stored: Path, tmp_path: Path) -> None:
    """Rounding is allowed for, since the file does not say on which machine it was made; the run stays."""
    runs = tmp_path / "outputs"
    shutil.copytree(stored, runs / stored.name)
    metrics = json.loads((stored / "metrics.json").read_text())
    edited(runs / stored.name / "metrics.json", rmse=1.01 * metrics["rmse"], mae=1.05 * metrics["mae"], lost=1.0)
    main([str(runs), "--format", "json", "--to", str(tmp_path)])
    (kept,) = json.loads((tmp_path / "runs.json").read_text())
    kept["config"]["model"]["latent_dim"] = 5
    (tmp_path / "runs.json").write_text(json.dumps([kept]))
    result = command("src.report", "--verify", "runs.json", stored.name[-8:], "--to", "again", cwd=tmp_path)
    assert result.returncode == 1, result.stdout + result.stderr
    settings, scores = result.stdout.partition("The command stands for other settings now:")[2].split("\n\n")[:2]
    assert [line.split() for line in settings.splitlines()[1:]] == [["stored", "now"], ["model.latent_dim", "5", "2"]]
    verdicts = {line.split()[0]: line.split()[-1] for line in scores.splitlines()}
    named = ("rmse", "mae", "lost", "nlpd")
    assert [verdicts[name] for name in named] == ["close", "DIFFERS", "MISSING", "equal"]
    assert "Not reproduced: lost, mae (another machine, code, package or number of threads" in result.stdout
    assert [folder.name for folder in (tmp_path / "again").glob("sas-*")] == [stored.name]


@pytest.mark.parametrize(
    ("change", "wanted", "message"),
    [
        ({}, "no-such-run", "the names of 0 folders in .* end with it"),
        ({"command": "python mine.py"}, "", "cannot be run again: its command is not one of python -m src.train"),
        ({"command": "python -m src.train model=sass"}, "", "There is no model=sass"),
        ({"status": "failed"}, "", "is failed: only a finished run has scores to compare"),
    ],
)
def test_what_cannot_be_run_again_is_refused_before_any_work(
    change: dict[str, str], wanted: str, message: str, tmp_path: Path
) -> None:
    folder = write_run(tmp_path)
    edited(folder / "record.json", **change)
    with pytest.raises(SystemExit, match=f"^Error: .*{message}"):
        main(["--verify", str(tmp_path), wanted or folder.name])
