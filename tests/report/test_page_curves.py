"""The curves on the page."""

from pathlib import Path
from typing import Any

import numpy as np

from src.report import records
from src.report.page_curves import FEWEST_POINTS, curves
from tests.report.handmade import write_run


def curves_of(outputs: Path) -> Any:
    return curves(records.read(outputs).runs)


def test_a_curve_is_the_objective_and_what_else_the_history_has(tmp_path: Path) -> None:
    write_run(tmp_path, loss=[1.0, 0.5])
    write_run(tmp_path, seed=1)  # no history
    found = curves_of(tmp_path)
    (curve,) = found["curves"]
    assert found["quantities"] == ["objective", "rest"]
    assert curve["values"] == {"objective": [-1.0, -0.5], "rest": [-1.0, -0.5]}
    assert curve["epoch"] == [1, 2] and curve["seconds"] == [2.0, 4.0]


def test_columns_that_other_versions_write_become_curves(tmp_path: Path) -> None:
    folder = write_run(tmp_path)
    rows = ["epoch,step,seconds,phase,loss,noise,kl_0", "0,1,2.0,0,1.0,0.1,nan", "1,2,2.0,0,0.5,0.2,3.0"]
    (folder / "history.csv").write_text("\n".join(rows))
    found = curves_of(tmp_path)
    assert found["quantities"] == ["objective", "noise", "kl_0"]
    assert found["curves"][0]["values"]["noise"] == [0.1, 0.2]


def test_long_curves_are_thinned_to_their_ends_and_150_points(tmp_path: Path) -> None:
    write_run(tmp_path, loss=np.linspace(2, 1, 1000).tolist())
    (curve,) = curves_of(tmp_path)["curves"]
    assert len(curve["values"]["objective"]) == 150 and curve["epoch"][0] == 1 and curve["epoch"][-1] == 1000
    assert curve["seconds"][-1] == 2000 and curve["values"]["objective"][-1] == -1.0


def test_many_curves_have_fewer_points(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("src.report.page_curves.NUMBERS", 100)
    write_run(tmp_path, loss=np.linspace(2, 1, 1000).tolist())
    (curve,) = curves_of(tmp_path)["curves"]
    assert len(curve["epoch"]) == 50
    for seed in range(1, 6):
        write_run(tmp_path, seed=seed, loss=np.linspace(2, 1, 1000).tolist())
    assert {len(curve["epoch"]) for curve in curves_of(tmp_path)["curves"]} == {FEWEST_POINTS}


def test_configurations_are_told_apart_by_what_differs_among_those_of_their_model(tmp_path: Path) -> None:
    for size, epochs in ((400, 3), (50, 3), (400, 30)):
        for seed in (0, 1):
            write_run(tmp_path, "sas", seed=seed, active_set=size, epochs=epochs, loss=[1.0, 0.5])
    write_run(tmp_path, "vae", active_set=None, epochs=3, loss=[1.0, 0.5])
    found = {(curve["panel"], curve["kind"]): curve["label"] for curve in curves_of(tmp_path)["curves"]}
    assert found == {
        ("SAS-GP, MNIST", 0): "A = 50, max_epochs = 3",
        ("SAS-GP, MNIST", 1): "A = 400, max_epochs = 3",
        ("SAS-GP, MNIST", 2): "A = 400, max_epochs = 30",
        ("VAE, MNIST", 0): "",
    }
