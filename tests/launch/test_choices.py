"""Choices that a model does not use are rejected, or named where only a part of a sweep ignores them."""

from pathlib import Path

import pytest

from src.launch import cells, choices
from src.launch.hydra_private import config_loader
from src.runs.errors import UserError
from src.runs.request import RunRequest
from tests.launch.commands import TINY, command

WITHOUT_EFFECT = {
    "model=gp_vae kernel=matern52": "kernel=matern52 has no effect: model=gp_vae has its own kernel "
    "(override model.kernel to change it)",
    "model=cvae encoder=conv": "encoder=conv has no effect: model=cvae has its own encoder",
    "model=vae kernel=matern52": "kernel=matern52 has no effect: model=vae does not use kernel",
    "model=vae active_set=a400": "active_set=a400 has no effect: model=vae does not use active_set",
    "model=vae active_set.size=300": "active_set.size=300 has no effect: model=vae does not use active_set",
    "model=cvae encoder=conv encoder.channels=[8]": "encoder.channels=[8] has no effect",
    "model=svgp_vae dataset=rotated_mnist kernel=matern52": "kernel=matern52 has no effect: model=svgp_vae has its own "
    "kernel from conf/pair/svgp_vae_rotated_mnist.yaml",
}
WITH_EFFECT = [
    "",
    "model=sas kernel=matern52 encoder=conv active_set=a400 optimizer=adamw",
    "model=sas encoder=conv encoder.channels=[8] encoder.hidden=32",
    "model=gplvm active_set=a100",
    "model=vae encoder=conv",
    "model=vae encoder.hidden=[8]",
    "model=vae kernel=rbf active_set=a200 active_set.size=200",  # the values that the run has without them
    "model=sas active_set=a400 active_set.size=300",  # the second replaces the first
    "model=gp_vae model.kernel=${kernel} kernel=matern52",
    "model=svgp_vae kernel=matern52",
    "model=vae logger=tensorboard paths.outputs=elsewhere rerun=true group=mine checkpoint_minutes=1",
    "model=vae dataset=mnist dataset.root=elsewhere trainer.max_time=00:01:00:00 trainer.enable_progress_bar=false",
]


def requested(line: str) -> RunRequest:
    with config_loader() as loader:
        return cells.compose(line.split(), loader)


@pytest.mark.parametrize("line", WITHOUT_EFFECT)
def test_a_choice_without_effect_is_rejected_with_the_reason(line: str) -> None:
    with pytest.raises(UserError) as error:
        choices.check_run(requested(line))
    assert str(error.value).startswith(WITHOUT_EFFECT[line]) and "\n" not in str(error.value)


@pytest.mark.parametrize("line", WITH_EFFECT)
def test_a_choice_that_counts_or_cannot_change_numbers_is_accepted(line: str) -> None:
    choices.check_run(requested(line))


SWEEPS = {
    "model=vae,sas active_set=a50,a100,a400": ["active_set has no effect on model=vae: 3 cells are one run"],
    "model=vae,sas active_set=a50,a200 seed=0,1": ["active_set has no effect on model=vae: 4 cells are 2 runs"],
    "model=vae,sas active_set=a100": ["active_set has no effect on model=vae"],
    "model=svgp_vae dataset=digits,rotated_mnist kernel=rbf,matern52": [
        "kernel has no effect on model=svgp_vae dataset=rotated_mnist: 2 cells are one run"
    ],
    "model=sas,gplvm active_set=a50,a100 kernel=rbf,matern52": [],
    "model=vae,cvae seed=0,1 logger=csv,tensorboard": [],
    "+sweep=table1": [],
    "+sweep=smoke model=vae": ["active_set has no effect on model=vae: 2 cells are one run"],  # values of the file
}


@pytest.mark.parametrize("line", SWEEPS)
def test_a_choice_that_a_part_of_a_sweep_ignores_is_one_line(line: str) -> None:
    assert choices.check_sweep(cells.read(line.split())) == SWEEPS[line]


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("model=vae active_set=a50,a100", "active_set=a50 has no effect: model=vae does not use active_set"),
        (
            "model=vae,gp_vae kernel=matern52 seed=0,1",
            "kernel=matern52 has no effect: model=vae does not use kernel; model=gp_vae has its own kernel",
        ),
        ("+sweep=smoke model=vae active_set=a400", "active_set=a400 has no effect"),
    ],
)
def test_a_value_that_every_cell_ignores_is_rejected(line: str, sentence: str) -> None:
    with pytest.raises(UserError, match=f"^{sentence}"):
        choices.check_sweep(cells.read(line.split()))


def test_files_of_pairs_that_apply_are_named_once() -> None:
    sweep = cells.read(["model=svgp_vae,sas", "dataset=rotated_mnist,digits", "seed=0,1"])
    assert choices.pair_remarks(sweep.cells) == ["Settings from conf/pair/svgp_vae_rotated_mnist.yaml apply."]


def test_a_sweep_says_what_is_ignored_before_it_starts(tmp_path: Path) -> None:
    line = "active_set has no effect on model=vae: 2 cells are one run"
    sweep = ["model=sas,vae", "active_set=a50,a100"]
    plan = command("src.plan", *sweep, cwd=tmp_path)
    assert plan.returncode == 0 and plan.stdout.count(line) == 1
    small = [text for text in TINY if "active_set.size" not in text and "batch_size" not in text]
    started = command(
        "src.train", "-m", *sweep, *small, "dataset.max_train=120", "dataset.batch_size=full", cwd=tmp_path
    )
    assert started.stdout.count(line) == 1 and "3 cells, 3 of them to do" in started.stdout


def test_a_single_run_says_which_file_of_a_pair_applies(tmp_path: Path) -> None:
    run = command("src.train", "model=cvae", "dataset=moving_ball", "trainer.strategy=oops", cwd=tmp_path)
    assert "Settings from conf/pair/cvae_moving_ball.yaml apply." in run.stdout
