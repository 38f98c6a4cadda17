"""What is declared of datasets before they are loaded is what the loaded data show."""

from pathlib import Path

import pytest

from src.data import known as declared
from src.data.facts import Facts
from src.data.known import Known, known, size_problem
from src.data.module import DataModule
from src.runs.errors import UserError
from src.runs.specs import make
from tests.configs import composed

DATASETS = sorted(path.stem for path in Path("conf/dataset").glob("*.yaml"))
OPTIONS = {  # of datasets whose size or target is an option
    "mnist_million": ["dataset.size=1500"],
    "moving_ball": ["dataset.num_train_videos=40", "dataset.batch_videos=5", "dataset.fresh=false"],
    "rotated_mnist": ["dataset.digits=[3,6]"],
    "textures": ["dataset.textures=[brick]"],
}
OF_USERS = ("array", "table")  # need a file


def shown(facts: Facts) -> Known:
    """The loaded facts under the names of the declared ones."""
    return Known(
        target=facts.target.kind,
        scale=facts.scale,
        num_train=facts.num_train,
        batch_size=facts.batch_size,
        aux=facts.aux,
        binary=facts.binary,
        one_hot=bool(facts.one_hot),
        complete=facts.complete and facts.complete_test,
        fresh=facts.fresh,
    )


def loaded(settings: dict[str, object]) -> DataModule:
    """The dataset; the test is skipped, by name, if its files are not here."""
    data: DataModule = make(settings)
    try:
        data.setup()
    except UserError as error:
        if "cannot be downloaded" in str(error) or "could not be obtained" in str(error):
            pytest.skip(str(error).splitlines()[0])
        raise
    return data


def settings_of(name: str, *overrides: str) -> dict[str, object]:
    settings: dict[str, object] = composed(f"dataset={name}", *overrides)["dataset"]
    return settings


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in OF_USERS])
def test_declared_facts_are_those_of_the_loaded_data(name: str, data_root: Path, tmp_path: Path) -> None:
    root = data_root
    if name == "mnist_million":  # is generated in its root
        (tmp_path / "MNIST").symlink_to(data_root / "MNIST")
        root = tmp_path
    settings = settings_of(name, f"paths.data={root}", *OPTIONS.get(name, []))
    if name == "cifar10" and not (root / "cifar-10-batches-py").exists():
        pytest.skip(f"there is no cifar-10-batches-py in {root}")
    assert known(settings) == shown(loaded(settings).facts)


def test_the_number_of_some_digits_is_known(data_root: Path) -> None:
    settings = settings_of("mnist", f"paths.data={data_root}", "dataset.digits=[7,0,3]")
    assert known(settings) == shown(loaded(settings).facts)


def test_every_dataset_of_the_product_is_declared() -> None:
    assert all(known(settings_of(name)) is not None for name in DATASETS)


def test_options_that_change_facts_change_what_is_declared() -> None:
    for options in (
        ["dataset.max_train=700"],
        ["dataset.batch_size=full"],
        ["dataset.binary=true"],
        ["dataset.missing.fraction=0.5"],
        ["dataset.missing.fraction=0.5", "dataset.missing.split=train"],
    ):
        settings = settings_of("digits", *options)
        assert known(settings) == shown(loaded(settings).facts), options
    assert known(settings_of("digits", "dataset.validation=0.1")).num_train is None  # type: ignore[union-attr]


def test_hidden_columns_of_motion_capture_are_missing(data_root: Path) -> None:
    settings = settings_of("cmu35", "dataset.test_missing=legs", f"paths.data={data_root}")
    found = known(settings)
    assert found is not None and found.complete is False
    assert not loaded(settings).facts.complete_test


OWN = {
    "array dataset.train=x.npy": ("none", None),
    "array dataset.train=x.npz": (None, None),
    "array dataset.train=x.npy dataset.train_labels=y.npy": (None, None),
    "table dataset.train=x.csv": ("none", "table"),
    "table dataset.train=x.csv dataset.target=price": ("real", "table"),
    "table dataset.train=x.csv dataset.label=kind": ("class", "table"),
}


@pytest.mark.parametrize("line", OWN)
def test_of_a_users_data_only_what_the_settings_tell_is_known(line: str) -> None:
    name, *overrides = line.split()
    found = known(settings_of(name, *overrides))
    assert found is not None and (found.target, found.scale, found.num_train, found.complete) == (
        *OWN[line],
        None,
        None,
    )


def test_a_dataset_without_a_declaration_is_left_to_its_loading() -> None:
    assert known({"_target_": "src.data.rings.Rings", "batch_size": 10}) is None
    assert size_problem({"batch_size": 10, "max_train": None}, None) is None


@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (["dataset.max_train=100"], "dataset.batch_size=512 must lie between 1 and the 100 training points"),
        (["dataset.max_train=2000"], "dataset.max_train=2000 must lie between 1 and the 1437 available points"),
        (["dataset.batch_size=1438"], "dataset.batch_size=1438 must lie between 1 and the 1437 training points"),
    ],
)
def test_sizes_are_refused_with_the_sentence_of_the_loading(overrides: list[str], sentence: str) -> None:
    settings = settings_of("digits", *overrides)
    problem = size_problem(settings, known(settings))
    assert problem is not None and problem.startswith(sentence)
    with pytest.raises(UserError) as caught:
        loaded(settings)
    assert str(caught.value) == problem


def test_sizes_that_fit_pass() -> None:
    for overrides in (["dataset.max_train=512"], ["dataset.batch_size=1437"], ["dataset.batch_size=full"]):
        settings = settings_of("digits", *overrides)
        assert size_problem(settings, known(settings)) is None


def test_names_of_declarations_are_classes() -> None:
    targets = {str(settings_of(name)["_target_"]).rpartition(".")[2] for name in DATASETS}
    assert set(declared.DECLARED) == targets
