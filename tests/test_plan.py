"""The plan of a sweep: status, times and what is left."""

import json
import re
from pathlib import Path

from src import plan
from src.launch.cells import cells
from src.runs import record
from src.runs.request import RunRequest
from tests.launch.commands import command


def test_a_plan_shows_states_times_and_what_is_left(tmp_path: Path) -> None:
    arguments = ["+sweep=smoke", f"paths.outputs={tmp_path}"]
    sas, *_, vae, svgp_vae = cells(arguments)
    put(sas, {"status": "done", "seconds": 120.0})
    (sas.folder / "metrics.json").write_text("{}")
    put(vae, {"status": "failed", "error": "ZeroDivisionError: on purpose"})
    put(svgp_vae, {"status": "running", "host": "node7", "pid": 1})
    (svgp_vae.folder / "history.csv").write_text("epoch,step,seconds,loss\n0,2,1.0,0.51234\n")
    text = plan.table(cells(arguments))
    assert re.search(rf"done +{sas.folder.name} +2 min", text)
    assert re.search(rf"failed +{vae.folder.name} +ZeroDivisionError: on purpose", text)
    assert re.search(rf"interrupted +{svgp_vae.folder.name} +epoch 1/2 loss 0.5123", text)  # its owner is dead
    assert "9 cells: 6 missing" in text and "about 16 min of computing left" in text
    with record.keep(svgp_vae.folder, {}):
        assert f"running      {svgp_vae.folder.name}" in plan.table([svgp_vae])


def test_the_flag_of_a_sweep_may_stand_anywhere(tmp_path: Path) -> None:
    for line in ("-m seed=0,1", "seed=0,1 -m", "model=vae --multirun seed=0,1"):
        result = command("src.plan", *line.split(), cwd=tmp_path)
        assert result.returncode == 0 and "2 cells: 2 missing" in result.stdout, result.stderr


def put(cell: RunRequest, content: dict[str, object]) -> None:
    cell.folder.mkdir(parents=True)
    (cell.folder / "record.json").write_text(json.dumps(content))
