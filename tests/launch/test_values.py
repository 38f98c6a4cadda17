"""Wrong values are named before anything heavy is loaded, alone and in a plan."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from src.launch import cells, values
from src.launch.hydra_private import ConfigLoader, config_loader
from src.runs.errors import UserError
from tests.launch.commands import ROOT, command
from tests.launch.test_cli import heavy_modules

WRONG = {
    "active_set.size=oops": "active_set.size=oops must be a whole number of at least 1, or random",
    "active_set.size=0": "active_set.size=0 must be a whole number of at least 1, or random",
    "model=vae active_set.size=oops": "active_set.size=oops must be",
    "optimizer.lr=1x-2": "optimizer.lr=1x-2 must be a number above 0",
    "optimizer.lr=-1": "optimizer.lr=-1 must be a number above 0",
    "optimizer.lr=inf": "optimizer.lr=inf must be a number above 0",
    "optimizer.lr=nan": "optimizer.lr=nan must be a number above 0",
    "optimizer.lr=true": "optimizer.lr=true must be a number above 0",
    "optimizer.schedule=cosin": "optimizer.schedule=cosin must be cosine or late or constant",
    "seed=abc": "seed=abc must be a whole number of at least 0",
    "seed=null": "seed=null must be a whole number of at least 0",
    "seed=4294967296": "seed=4294967296 must be a whole number of at least 0 and at most 4294967295",
    "paths.outputs=7": "paths.outputs=7 must be the path of a folder",
    "dataset.missing=3": "dataset.missing=3 must be settings in braces, such as {key: value}, or null",
    "trainer.accelerator=gpuu": "trainer.accelerator=gpuu must be auto or cpu or gpu or cuda or mps or tpu",
    "trainer.precision=17": "trainer.precision=17 must be 32-true or 64-true or",
    "trainer.devices=0": "trainer.devices=0 must be a whole number of at least 1, or auto or -1, or a list such as",
    "trainer.max_time=oops": "trainer.max_time=oops must be a time as days:hours:minutes:seconds, such as 00:08:00:00",
    "model.likelihood=oops": "model.likelihood=oops must be gaussian or bernoulli or categorical or gprn or null",
    "trainer.max_epochs=-1": "trainer.max_epochs=-1 must be a whole number of at least 1",
    "dataset.validation=1": "dataset.validation=1 must be a number above 0 and below 1, or null",
    "search.metric=rmse": "search.metric=rmse is a score of held-out training data, because the test data choose",
    "search.metric=3": "search.metric=3 must be the name of a metric, or null",
    "dataset.binary=maybe": "dataset.binary=maybe must be true or false, or stochastic or null",
    "model=bayesian_gplvm model.regularisation=much": "model.regularisation=much must be a number of at least 0, or",
    "dataset.missing.kind=holes": "dataset.missing.kind=holes must be random or block or null",
    "model.latent_dim=2.5": "model.latent_dim=2.5 must be a whole number of at least 1",
    "encoder.hidden=[64,x]": "encoder.hidden=[64, 'x'] must be a whole number of at least 1, or a list such as",
    "model.amortised=3": "model.amortised=3 must be true or false",  # by the type of the default, as the next ones
    "trainer.enable_progress_bar=1": "trainer.enable_progress_bar=1 must be true or false",
    "model=svgp_vae dataset=rotated_mnist model.aux.object_dim=x": "model.aux.object_dim=x must be a whole number",
    "model=svgp_vae dataset=rotated_mnist model.variance_range=1": "model.variance_range=1 must be a list",
    "dataset=array dataset.name=my-wine": "dataset.name=my-wine must be a name of letters, digits, _ and ., such as",
    "dataset=array dataset.name=MNIST": "dataset.name=MNIST must be a name",
    "dataset=table dataset.name=7": "dataset.name=7 must be a name",
    "+foo=1": "+foo=1 has no effect: there is no setting foo",
    "+evaluation.sets=1": "+evaluation.sets=1 has no effect: there is no setting evaluation.sets",
}
IMPOSSIBLE = {
    "active_set.size=512": "active_set.size=512 must be at least 1 and smaller than the batch of 512 (dataset.batch",
    "model=sas_classifier active_set.size=600": "active_set.size=600 must be at least 1 and smaller than the batch of",
    "dataset=toy_curve": "active_set.size=200 must be at least 1 and smaller than the batch of 100",
    "dataset.max_train=100": "dataset.batch_size=512 must lie between 1 and the 100 training points",
    "dataset=array": "dataset.train is missing: name your file",
    "dataset=array dataset.train=no/x.npy": "dataset.train=no/x.npy does not exist (looked for /",
    "dataset=table dataset.train=README.md dataset.test=x.csv": "dataset.test=x.csv does not exist",
    "model=sas_regression": "SASRegression predicts real numbers, but the targets are classes: use model=sas_class",
    "model=sas_classifier dataset=flights": "SASClassifier predicts classes, but the targets are real numbers: use",
    "model=autogp dataset=frey": "AutoGP predicts a target, but the dataset has none",
    "model=autogp dataset.missing.fraction=0.5": "AutoGP needs complete data, but values are missing",
    "model=gp_vae": "this model needs the auxiliary columns video and time; the dataset has none, so no video",
    "model=casale_gp_vae dataset=moving_ball": "this model needs the auxiliary columns object and angle; the dataset",
    "optimizer=lbfgs dataset.batch_size=full trainer.precision=16-mixed": "trainer.precision=16-mixed skips",
    "model=svgp_vae dataset=rotated_mnist trainer.precision=16": "trainer.precision=16-mixed skips steps, which model",
    "model=cvae": "CVAE needs an auxiliary column `angle` or `time`; the dataset has none",
    "model.likelihood=bernoulli": "model.likelihood=bernoulli needs binary values (0 or 1)",
}
RIGHT = [
    "",
    "active_set=random dataset.batch_size=full",
    "active_set.size=511",
    "model=gplvm active_set.size=600",  # conditions on any training points
    "model=vae active_set.size=600",
    "optimizer.lr=1 optimizer.gp_lr_factor=null seed=0",
    "dataset.max_train=null dataset.validation=0.5 dataset.missing.fraction=1",
    "encoder.hidden=[64] model.samples=0 model=bayesian_gplvm",
    "+model.posterior=full +trainer.limit_train_batches=2 +optimizer.algorithm.eps=1e-7",  # what is built checks them
    "trainer.precision=16 trainer.devices=[0,1] trainer.max_time={hours:3} seed=4294967295",
    "dataset.missing={fraction:0.5,kind:block}",
    "dataset.missing=null",
    "trainer.max_time=00:00:01:00 paths.outputs=elsewhere logger=wandb group=mine",
    "model=gp_vae dataset=moving_ball model.kernel=${kernel}",
    "model=sas_regression dataset=flights",
    "model=sas_classifier dataset=table dataset.train=README.md dataset.label=x",
]


@pytest.fixture(scope="module")
def loader() -> Iterator[ConfigLoader]:
    with config_loader() as found:
        yield found


@pytest.mark.parametrize("line", WRONG)
def test_a_wrong_value_is_one_sentence(line: str, loader: ConfigLoader) -> None:
    first = next(values.problems(cells.compose(line.split(), loader), loader))
    assert first.startswith(WRONG[line])


@pytest.mark.parametrize("line", RIGHT)
def test_right_values_pass(line: str, loader: ConfigLoader) -> None:
    run = cells.compose(line.split(), loader)
    assert [*values.problems(run, loader), *values.pair_problems(run)] == []


@pytest.mark.parametrize("line", IMPOSSIBLE)
def test_an_impossible_pair_is_one_sentence(line: str, loader: ConfigLoader) -> None:
    run = cells.compose(line.split(), loader)
    assert next(values.pair_problems(run)).startswith(IMPOSSIBLE[line])
    with pytest.raises(UserError):
        values.check_pair(run)


def test_a_check_raises_the_first_problem() -> None:
    with pytest.raises(UserError, match="seed=x must be"):
        values.check(cells.cells(["seed=0,x,y"]))


def test_every_default_follows_its_rule() -> None:
    models = ",".join(path.stem for path in (ROOT / "conf" / "model").glob("*.yaml"))
    assert values.first_problems(cells.cells([f"model={models}"])) == {}


STOPPED = {
    "seed=abc": "seed=abc must be a whole number of at least 0 and at most 4294967295",
    "-m seed=0,abc": "seed=abc must be a whole number of at least 0 and at most 4294967295",
    "-m dataset.max_train=abc,100": "dataset.max_train=abc must be a whole number of at least 1, or null",
    "active_set.size=600": "active_set.size=600 must be at least 1 and smaller than the batch of 512",
    "model=sas_regression": "SASRegression predicts real numbers, but the targets are classes",
    "+foo=1": "+foo=1 has no effect: there is no setting foo",
    "seed=0,1": "seed=0,1 has several values: type -m to run them all, or seed=[0,1] for a list",
    "seed": "seed cannot be read: missing EQUAL at '<EOF>' (type key=value",
    "~seed": "dataset.seed: Interpolation key 'seed' not found",
    "kernel=null": "kernel=null is none of the options of kernel, which are arc_cosine, ",
    "dataset.train=x.npy": "There is no dataset.train with dataset=digits. It is a setting of dataset=array, ",
    "paths.outputs=/proc/no": "cannot write to paths.outputs=/proc/no: No such file or directory",
}


@pytest.mark.parametrize("line", STOPPED)
def test_a_command_that_cannot_work_stops_before_torch_with_one_sentence(line: str, tmp_path: Path) -> None:
    result, loaded = heavy_modules("src.train", *line.split(), cwd=tmp_path)
    assert result.returncode == 1 and result.stderr.startswith(f"Error: {STOPPED[line]}")
    assert result.stderr.count("\n") == 1, "nothing of Hydra's stands beside the sentence"
    assert loaded == set() and list(tmp_path.iterdir()) == []


def test_wrong_values_are_named_before_the_pairs_that_they_make(tmp_path: Path) -> None:
    result = command("src.plan", "dataset.batch_size=abc,64", "active_set.size=32,64", cwd=tmp_path)
    wrong, also_wrong, right, impossible, *_ = result.stdout.splitlines()
    assert all("dataset.batch_size=abc must be a whole number" in line for line in (wrong, also_wrong))
    assert right.startswith(". missing") and "smaller than the batch of 64" in impossible


def test_a_plan_names_the_cell_with_a_wrong_value(tmp_path: Path) -> None:
    result = command("src.plan", "-m", "model=sas", "seed=0", "active_set.size=100,oops", cwd=tmp_path)
    right, wrong, *_, counts = result.stdout.splitlines()
    assert (
        result.returncode == 1 and right.startswith(". missing") and counts.startswith("2 cells: 1 missing, 1 reject")
    )
    assert wrong.startswith("! rejected     sas-digits-oops-s0-") and wrong.endswith(
        "must be a whole number of at least 1, or random"
    )


def test_a_plan_names_the_cell_with_an_impossible_pair(tmp_path: Path) -> None:
    result = command("src.plan", "-m", "model=gp_vae", "dataset=digits,moving_ball", cwd=tmp_path)
    wrong, right, *_ = result.stdout.splitlines()
    assert result.returncode == 1 and right.startswith(". missing      gp_vae-moving_ball"), result.stderr
    assert wrong.startswith("! rejected     gp_vae-digits-s0-") and wrong.endswith("so no video")


def test_a_wrong_value_is_named_before_a_pair_that_cannot_be() -> None:
    (request,) = cells.cells(["model=casale_gp_vae", "dataset=digits", "trainer.max_epochs=0"])
    assert values.rejected([request])[request.folder].startswith("trainer.max_epochs=0 must be")
