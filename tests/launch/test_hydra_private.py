"""Hydra's private names: composition, overrides, and launchers whose cells share the cores."""

import json
import re
import sys
from pathlib import Path

import hydra
import joblib
import pytest
from hydra.core.global_hydra import GlobalHydra
from joblib.externals.loky import get_reusable_executor
from omegaconf import DictConfig

from src.launch import hydra_private
from src.runs.errors import UserError
from src.runs.identity import plain
from tests.configs import composed
from tests.launch.commands import ROOT, TINY, command

COST = ("seconds_per_epoch", "peak_memory_mb")


def threads(config: DictConfig) -> int:
    import torch

    return torch.get_num_threads()


def test_parallel_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    with hydra_private.config_loader() as loader:
        overrides = ["hydra/launcher=parallel", f"paths.outputs={tmp_path}"]
        launcher, folder = hydra_private.make_launcher(threads, overrides, loader)
        jobs = launcher.launch([["seed=0"], ["seed=1"]], initial_job_idx=0)
    assert folder.parent == tmp_path / ".multirun"
    get_reusable_executor().shutdown(wait=True)
    assert [job.return_value for job in jobs] == 2 * [max(joblib.cpu_count() // 2, 1)]


def test_parallel_cells_are_the_local_ones_number_for_number(tmp_path: Path) -> None:
    numbers = {}
    for launcher in ("local", "parallel"):
        arguments = [f"hydra/launcher={launcher}", "seed=0,1", f"paths.outputs={launcher}", *TINY]
        result = command("src.train", "-m", *arguments, cwd=tmp_path)
        assert result.returncode == 0, result.stderr
        numbers[launcher] = {path.parent.name: metrics(path) for path in (tmp_path / launcher).glob("*/metrics.json")}
    assert len(numbers["local"]) == 2
    assert numbers["parallel"] == numbers["local"]


def metrics(path: Path) -> dict[str, float]:
    return {name: value for name, value in json.loads(path.read_text()).items() if name not in COST}


def test_only_one_module_uses_hydra_s_private_names() -> None:
    private = re.compile(
        r"hydra\._internal|hydra\.core\.(plugins|override_parser|global_hydra)|_apply_overrides_to_config"
    )
    users = [path.name for path in (ROOT / "src").rglob("*.py") if private.search(path.read_text())]
    assert users == ["hydra_private.py"]


def test_composition_is_hydra_s_own_and_leaves_a_running_hydra_as_it_was() -> None:
    overrides = ["model=svgp_vae", "dataset=rotated_mnist", "seed=3", "+model.new=1", "trainer.max_epochs=2"]
    with hydra.initialize_config_module("conf", version_base="1.3"):
        before = GlobalHydra.instance().hydra
        with hydra_private.config_loader() as loader:
            config, chosen = hydra_private.compose(overrides, loader)
        assert GlobalHydra.instance().hydra is before
    assert plain(config) == composed(*overrides)
    assert (chosen["model"], chosen["dataset"], chosen["pair"]) == (
        "svgp_vae",
        "rotated_mnist",
        "svgp_vae_rotated_mnist",
    )


@pytest.mark.parametrize(
    ("override", "key"), [("kernel=rbf", "kernel"), ("+a.b=1", "a.b"), ("~a.b", "a.b"), ("x.y=[1,2]", "x.y")]
)
def test_the_key_of_an_override(override: str, key: str) -> None:
    assert hydra_private.key_of(override) == key


def test_combinations_are_those_of_hydra_s_sweeper() -> None:
    found = hydra_private.combinations(["model=sas,vae", "seed=range(0,2)", "a=[1,2]"])
    assert len(found) == 4 and found[0] == ["model=sas", "seed=0", "a=[1,2]"]


def test_a_user_error_is_shown_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise UserError("on purpose")

    with pytest.raises(SystemExit):
        hydra_private.report_errors(fail)
    assert capsys.readouterr().err == "Error: on purpose\n"


def test_the_flag_of_a_sweep_may_stand_between_overrides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["train", "model=vae", "-m", "seed=0,1"])
    options = hydra_private.command_line()
    assert options.multirun and options.overrides == ["model=vae", "seed=0,1"]


def test_a_full_error_is_shown_on_request(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HYDRA_FULL_ERROR", "1")
    with pytest.raises(UserError, match="on purpose"):
        hydra_private.end(UserError("on purpose"))
