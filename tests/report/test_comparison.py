"""Two runs side by side."""

from pathlib import Path

import pytest

from src.report import comparison, records
from src.report.__main__ import main
from tests.report.handmade import write_run


def lines(text: str) -> dict[str, list[str]]:
    return {line.split()[0]: line.split()[1:] for line in text.splitlines() if line and not line.startswith(" ")}


def test_what_differs_and_all_metrics(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = write_run(tmp_path, "sas", seed=0, metrics={"rmse": 0.25, "mae": 0.1})
    second = write_run(tmp_path, "vae", seed=1, active_set=None, epochs=30, metrics={"rmse": 0.2, "nlpd": -1.0})
    main([str(tmp_path), "--compare", first.name, second.name[-8:]])
    shown = lines(capsys.readouterr().out)
    assert shown["run"] == [first.name, second.name]
    assert shown["model"] == ["sas", "vae"] and shown["seed"] == ["0", "1"]
    assert shown["model.active_set"] == ["400", "-"] and shown["trainer.max_epochs"] == ["20", "30"]
    assert "dataset" not in shown and "model.latent_dim" not in shown
    assert shown["rmse"] == ["0.25", "0.2", "-0.05"]
    assert shown["mae"] == ["0.1", "-"] and shown["nlpd"] == ["-", "-1"]


def test_runs_of_the_same_settings_say_so(tmp_path: Path) -> None:
    a, b = (records.find(tmp_path, write_run(tmp_path, seed=seed).name) for seed in (0, 1))
    assert "The settings are the same but for the seed." in comparison.text(a, b)
    assert "The settings are the same." in comparison.text(a, a)


def test_a_run_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="Error: nothing is not a run"):
        main([str(tmp_path), "--compare", "nothing", "at all"])
