"""What a person meets before anything heavy is loaded."""

import resource
import subprocess
import sys
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from src.launch.cli import CONF, PLUGINS, groups, help_text, hints, missing_plugin
from tests.configs import composed
from tests.launch.commands import environment


def test_every_option_has_a_description_in_the_help() -> None:
    text = help_text()
    for group, options in groups().items():
        assert f"\n  {group}=\n" in text
        for option, description in options.items():
            assert description, f"conf/{group}/{option}.yaml begins with no description"
            assert f"    {option:<20}{description}" in text
    assert list(groups()["active_set"]) == ["a50", "a100", "a200", "a400", "a800", "random"]


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["model=saz"], "There is no model=saz. Did you mean model=sas?"),
        (["-m", "dataset=mnist,fminst"], "There is no dataset=fminst. Did you mean dataset=fmnist"),
        (["logger=[tensorboard,wndb]"], "There is no logger=wndb. Did you mean logger=wandb?"),
        (["modle=sas"], "There is no modle. Did you mean model?"),
        (["model.latent_dm=3"], "There is no model.latent_dm. Did you mean model.latent_dim"),
        (["-m", "hydra/launcher=slrum"], "There is no hydra/launcher=slrum. Did you mean hydra/launcher=slurm?"),
        (["trainer.max_epoch=3"], "There is no trainer.max_epoch. Did you mean trainer.max_epochs"),
        (
            ["model.features=3"],
            "There is no model.features with model=sas. It is a setting of model=sas_classifier, mo",
        ),
    ],
)
def test_near_names_are_suggested(arguments: list[str], hint: str) -> None:
    assert any(found.startswith(hint) for found in hints(arguments))


def test_right_names_give_no_hint() -> None:
    assert (
        list(
            hints(
                [
                    "-m",
                    "model=sas,bayesian_sas",
                    "seed=0,1",
                    "trainer.max_epochs=2",
                    "+trainer.x=1",
                    "hydra.verbose=true",
                ]
            )
        )
        == []
    )


HEAVY = (
    *("torch", "pytorch_lightning", "torchmetrics", "gpytorch", "numpy", "scipy", "sklearn"),
    *("matplotlib", "wandb", "tensorboard", "torchvision"),
)


def heavy_modules(module: str, *arguments: str, cwd: Path) -> tuple[subprocess.CompletedProcess[str], set[str]]:
    """What a command says, and which heavy modules it had loaded at its end."""
    code = (
        "import sys, runpy; module, heavy = sys.argv[1], sys.argv[2].split(); sys.argv = sys.argv[2:]\n"
        "try: runpy.run_module(module, run_name='__main__')\n"
        "finally: print('HEAVY', *(name for name in heavy if name in sys.modules))"
    )
    command = [sys.executable, "-c", code, module, " ".join(HEAVY), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=environment())
    return result, set(result.stdout.split("HEAVY")[-1].split())


@pytest.mark.parametrize(
    ("module", "arguments", "code", "answer"),
    [
        ("src.train", ["--help"], 0, "Train and evaluate one model"),
        ("src.train", ["--cfg", "job"], 0, "max_epochs"),
        ("src.train", ["model=saz"], 1, "Did you mean model=sas?"),
        ("src.train", ["-m", "trainer.max_epoch=3"], 1, "Did you mean trainer.max_epochs"),
        ("src.plan", ["model=sas,vae", "seed=0,1,2"], 0, "6 cells: 6 missing"),
        ("src.evaluate", ["nowhere"], 1, "nowhere is not the folder of a finished run"),
        ("src.prepare", ["--help"], 0, "mnist_million"),
    ],
)
def test_answers_that_need_nothing_heavy(
    module: str, arguments: list[str], code: int, answer: str, tmp_path: Path
) -> None:
    """Nothing heavy is loaded, and so the answer takes less than two seconds of computing."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result, loaded = heavy_modules(module, *arguments, cwd=tmp_path)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert result.returncode == code and answer in result.stdout + result.stderr
    assert loaded == set() and "To append to your config" not in result.stderr
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 2


def test_a_run_loads_what_it_uses(tmp_path: Path) -> None:
    """No dashboard that it does not have, and of Lightning's own dependencies none that no metric of ours needs.

    A torchvision that does not fit torch, which is common on clusters, therefore does no harm.
    """
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32))
    (tmp_path / "torchvision.py").write_text('raise RuntimeError("operator torchvision::nms does not exist")')
    small = ["dataset=array", "dataset.train=x.npy", "dataset.batch_size=32", "active_set.size=8", "trainer=debug"]
    result, loaded = heavy_modules("src.train", *small, "logger=csv", cwd=tmp_path)
    assert result.returncode == 0, result.stderr
    assert loaded == {"torch", "pytorch_lightning", "torchmetrics", "gpytorch", "numpy", "matplotlib"}


def test_every_option_composes_and_resolves() -> None:
    """Every model, every dataset, every pair of them that has settings of its own, and every option of other groups."""
    known = groups()
    every = product(known["model"], known["dataset"])
    pairs = [(model, dataset) for model, dataset in every if (Path(CONF) / "pair" / f"{model}_{dataset}.yaml").exists()]
    assert len(pairs) == len(list((Path(CONF) / "pair").iterdir()))
    alone = [(model, "digits") for model in known["model"]] + [("sas", dataset) for dataset in known["dataset"]]
    for model, dataset in {*pairs, *alone}:
        assert composed(f"model={model}", f"dataset={dataset}")["model"]["seed"] == 0
    others = [(group, option) for group in known if group not in ("model", "dataset") for option in known[group]]
    installed = [(group, option) for group, option in others if missing_plugin([f"{group}={option}"]) is None]
    for group, option in installed:
        assert composed(f"{group}={option}")["trainer"]["max_epochs"] > 0


@pytest.mark.slow
def test_every_model_composes_with_every_dataset() -> None:
    known = groups()
    for model, dataset in product(known["model"], known["dataset"]):
        assert composed(f"model={model}", f"dataset={dataset}")["model"]["seed"] == 0


def test_every_group_of_the_readme_exists() -> None:
    text = (Path(CONF).parent / "README.md").read_text()
    assert all(f"`{group}=`" in text for group in groups())


def test_a_missing_plugin_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PLUGINS, "hydra/launcher=slurm", ("hydra_no_such_launcher", "slurm"))
    sentence = 'hydra/launcher=slurm needs a package that is not installed: pip install -e ".[slurm]"'
    assert missing_plugin(["-m", "hydra/launcher=slurm", "seed=0,1"]) == sentence
    assert missing_plugin(["-m", "hydra/launcher=parallel", "seed=0,1"]) is None
