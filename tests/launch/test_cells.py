"""Cells of a sweep: which there are, and that they are what Hydra composes."""

import re
from pathlib import Path

import pytest

from src.launch.cells import cells
from src.launch.values import first_problems
from src.runs.errors import UserError
from src.runs.request import RunRequest
from tests.configs import composed
from tests.launch.commands import ROOT, command, copied_code

SWEEPS = sorted(path.stem for path in (ROOT / "sweeps" / "sweep").glob("*.yaml"))


@pytest.mark.parametrize("name", SWEEPS)
def test_every_sweep_composes_and_says_how_to_start_it(name: str) -> None:
    found = cells([f"+sweep={name}"])
    assert len({cell.folder for cell in found}) == len(found) > 1
    assert first_problems(found) == {}
    header = (ROOT / "sweeps" / "sweep" / f"{name}.yaml").read_text().partition("hydra:")[0]
    assert f"python -m src.train +sweep={name}" in header and re.search(r"CPU", header)
    told = re.search(r"^# (\d+) cells", header, re.MULTILINE)
    assert told is None or int(told[1]) == len(found)


def test_the_paper_s_table_is_all_of_its_cells() -> None:
    found = {(cell.model, cell.dataset, cell.config["model"]["active_set"], cell.config["seed"]) for cell in table1()}
    sizes, seeds = (100, 200, 400), range(5)
    assert found == {
        (model, dataset, size, seed)
        for model in ("sas", "bayesian_sas")
        for dataset in ("mnist", "fmnist", "cifar10")
        for size in sizes
        for seed in seeds
    }


def table1() -> list[RunRequest]:
    return cells(["+sweep=table1"])


@pytest.mark.parametrize("arguments", [["+sweep=table2", "seed=0"], ["model=sas,vae", "kernel=rbf_ard,rbf", "seed=1"]])
def test_a_cell_is_what_hydra_composes_of_its_overrides(arguments: list[str]) -> None:
    for cell in cells(arguments):
        assert cell.config == composed(*cell.overrides)


def test_the_command_line_replaces_values_of_the_file() -> None:
    found = cells(["+sweep=table1", "dataset=mnist", "seed=7", "trainer.max_epochs=2"])
    assert len(found) == 6 and {cell.config["trainer"]["max_epochs"] for cell in found} == {2}
    assert {(cell.dataset, cell.config["seed"], cell.config["group"]) for cell in found} == {("mnist", 7, "table1")}


def test_values_may_be_of_options_that_only_the_sweep_chooses() -> None:
    """`model.num_inducing` is no setting of the default model, nor `dataset.standardise` of the default dataset."""
    found = cells(["+sweep=textures", "model.num_inducing=20,30", "dataset.standardise=false", "seed=0"])
    assert {cell.config["model"]["num_inducing"] for cell in found} == {20, 30} and len(found) == 16
    assert {cell.config["dataset"]["standardise"] for cell in found} == {False}


def test_a_name_that_a_cell_lacks_is_told_with_the_options_that_have_it() -> None:
    with pytest.raises(UserError, match=r"no model.num_inducin\. Did you mean model.num_inducing"):
        cells(["+sweep=textures", "model.num_inducin=20"])
    with pytest.raises(
        UserError, match=r"no model.num_inducing with model=vae\. It is a setting of model=autogp, model="
    ):
        cells(["model=svgp_vae,vae", "model.num_inducing=20"])


def test_cells_that_are_the_same_run_are_one() -> None:
    found = cells(["model=vae,sas", "active_set=a50,a100"])
    assert [(cell.model, cell.config["active_set"]["size"]) for cell in found] == [
        ("vae", 50),
        ("sas", 50),
        ("sas", 100),
    ]


def test_a_changed_default_is_another_run(tmp_path: Path) -> None:
    copy = copied_code(tmp_path)
    before = command("src.plan", "model=sas,vae", cwd=tmp_path, code=copy).stdout
    config = copy / "conf" / "model" / "sas.yaml"
    config.write_text(config.read_text().replace("noise: 0.1", "noise: 0.2"))
    after = command("src.plan", "model=sas,vae", cwd=tmp_path, code=copy).stdout
    assert before.splitlines()[0] != after.splitlines()[0] and before.splitlines()[1] == after.splitlines()[1]


def test_references_are_resolved_in_the_cells() -> None:
    first, second = cells(["kernel=rbf,matern52", "model=gp_vae", "dataset=moving_ball", "model.kernel=${kernel}"])
    assert first.config["model"]["kernel"] == first.config["kernel"] != second.config["model"]["kernel"]
