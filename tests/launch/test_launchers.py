"""The launchers: cells are the same wherever they run, and do not fight over the cores."""

import json
from pathlib import Path

import joblib
import pytest
from hydra._internal.callbacks import Callbacks
from hydra.core.plugins import Plugins
from hydra.types import HydraContext, RunMode
from joblib.externals.loky import get_reusable_executor
from omegaconf import DictConfig

from src.launch import sweeps
from src.launch.cli import PLUGINS, missing_plugin
from tests.launch.test_sweeps import TINY, command

COST = ("seconds_per_epoch", "peak_memory_mb")


def threads(config: DictConfig) -> int:
    import torch

    return torch.get_num_threads()


def test_parallel_workers_share_the_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    with sweeps.config_loader() as loader:
        overrides = ["hydra/launcher=parallel", f"paths.outputs={tmp_path}", "hydra.mode=MULTIRUN"]
        config = loader.load_configuration("config", overrides, RunMode.MULTIRUN)
        context = HydraContext(config_loader=loader, callbacks=Callbacks(config))
        launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=threads, config=config)
        jobs = launcher.launch([["seed=0"], ["seed=1"]], initial_job_idx=0)
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


def test_a_missing_plugin_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLUGINS, "hydra/launcher=slurm", ("hydra_no_such_launcher", "slurm"))
    sentence = 'hydra/launcher=slurm needs a plugin that is not installed: pip install -e ".[slurm]"'
    assert missing_plugin(["-m", "hydra/launcher=slurm", "seed=0,1"]) == sentence
    assert missing_plugin(["-m", "hydra/launcher=parallel", "seed=0,1"]) is None
