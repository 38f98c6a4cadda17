"""One line loads a run, wherever it is and whatever its class."""

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from src import load
from src.runs import files
from src.runs.errors import UserError
from tests.python.runs import digits, outputs, run_of

HEAVY = "import sys, src; sys.exit(int(bool({'torch', 'pytorch_lightning', 'sklearn'} & sys.modules.keys())))"


def test_importing_the_package_loads_nothing_heavy() -> None:
    assert subprocess.run([sys.executable, "-c", HEAVY], cwd=Path(__file__).parents[1]).returncode == 0
    with pytest.raises(AttributeError, match="no attribute 'lod'"):
        import src

        src.lod  # noqa: B018


def test_a_run_is_found_by_folder_name_fingerprint_and_checkpoint() -> None:
    folder = run_of("sas").folder
    ways = (folder, str(folder), folder.name, folder.name[-8:], folder / "model.ckpt")
    assert {load(way, outputs=outputs()).checkpoint for way in ways} == {folder / "model.ckpt"}
    assert type(load(folder).model).__name__ == "SAS"


def test_a_run_has_its_metrics_config_and_history() -> None:
    run = run_of("sas")
    assert run.metrics == files.read_json(run.folder / "metrics.json") and run.metrics["epochs"] == 3
    assert run.config["model"]["latent_dim"] == 2 and type(run.config["trainer"]) is dict
    assert run.history["epoch"].tolist() == [0, 1, 2] and run.history["loss"].dtype == np.float64
    pandas = pytest.importorskip("pandas")
    frame = run.history.to_frame()
    assert isinstance(frame, pandas.DataFrame) and list(frame.columns)[:3] == ["epoch", "step", "seconds"]
    assert "3 rows of epoch, step" in repr(run.history)
    assert repr(run).startswith("<SAS of 200 points [1 x 8 x 8], 2 latent dimensions: ")
    assert run.notes == files.read_json(run.folder / "record.json")["notes"] and len(run.notes) == 1


def test_a_checkpoint_alone_is_enough_to_encode_but_has_no_record(tmp_path: Path) -> None:
    run = run_of("sas")
    alone = load(shutil.copy(run.checkpoint, tmp_path / "mine.ckpt"))
    assert np.array_equal(alone.encode(digits()).mean, run.encode(digits()).mean)
    for name in ("metrics", "config", "history", "notes"):
        with pytest.raises(UserError, match="a checkpoint without the record of its run"):
            getattr(alone, name)


def test_what_cannot_be_loaded_is_said_in_a_sentence(tmp_path: Path) -> None:
    folder = run_of("sas").folder
    with pytest.raises(UserError, match=f"did you mean {folder.name}"):
        load(f"{folder.name}0", outputs=outputs())
    with pytest.raises(UserError, match=r"there is no run 01234567 in .*"):
        load("01234567", outputs=tmp_path)
    with pytest.raises(UserError, match=r"has no model.ckpt: it is not the folder of a run"):
        load(tmp_path)
    unfinished = tmp_path / "sas-digits-s0-00000000"
    unfinished.mkdir()
    files.write_json(unfinished / "record.json", {"status": "failed"})
    with pytest.raises(UserError, match=r"has no model.ckpt: its run is failed"):
        load(unfinished)
    shutil.copytree(folder, tmp_path / f"a-{folder.name[-8:]}")
    shutil.copytree(folder, tmp_path / f"b-{folder.name[-8:]}")
    with pytest.raises(UserError, match="is the fingerprint of several runs"):
        load(folder.name[-8:], outputs=tmp_path)
