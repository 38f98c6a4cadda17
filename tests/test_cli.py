"""What a person meets before anything heavy is loaded."""

import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import pytest

from src.cli import CONF, groups, help_text, hints, missing_plugin
from tests.configs import composed


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


@pytest.mark.parametrize("arguments", [["--help"], ["--cfg", "job"], ["model=saz"]])
def test_help_and_typos_answer_without_loading_torch(arguments: list[str]) -> None:
    """Under two seconds on an idle machine; here: nothing heavy is imported, and never more than ten seconds."""
    code = (
        "import sys, runpy; sys.argv = ['src.train', *sys.argv[1:]]\n"
        "try: runpy.run_module('src.train', run_name='__main__')\n"
        "finally: print('HEAVY', [m for m in ('torch', 'pytorch_lightning', 'wandb', 'sklearn') if m in sys.modules])"
    )
    started = time.perf_counter()
    result = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True)
    assert "HEAVY []" in result.stdout
    assert time.perf_counter() - started < 10
    assert result.returncode == (1 if "model=saz" in arguments else 0)


def test_every_combination_composes_and_resolves() -> None:
    known = groups()
    for model, dataset in product(known["model"], known["dataset"]):
        assert composed(f"model={model}", f"dataset={dataset}")["model"]["seed"] == 0
    others = [(group, option) for group in known if group not in ("model", "dataset") for option in known[group]]
    installed = [(group, option) for group, option in others if missing_plugin([f"{group}={option}"]) is None]
    for group, option in installed:
        assert composed(f"{group}={option}")["trainer"]["max_epochs"] > 0


def test_every_group_of_the_readme_exists() -> None:
    text = (Path(CONF).parent / "README.md").read_text()
    assert all(f"`{group}=`" in text for group in groups())
