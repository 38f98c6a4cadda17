"""What datasets with files share: their file sets are complete, and a missing file is one clear sentence."""

import re
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import yaml

from src.data import files as room
from src.data.files import FromFiles, stratified
from src.data.prepare import CLASSES
from src.runs.errors import UserError

CONFIGS = Path(room.__file__).parents[2] / "conf" / "dataset"
BY_HAND = ("oil_flow", "frey", "rectangles", "rectangles_image")


def dataset(name: str) -> type[FromFiles]:
    module, _, title = CLASSES[name].rpartition(".")
    found = getattr(import_module(module), title)
    assert issubclass(found, FromFiles)
    return found


@pytest.mark.parametrize("name", CLASSES)
def test_the_config_of_a_dataset_names_its_class(name: str) -> None:
    assert yaml.safe_load((CONFIGS / f"{name}.yaml").read_text())["dataset"]["_target_"] == CLASSES[name]


@pytest.mark.parametrize("name", CLASSES)
def test_every_file_has_a_checksum_and_an_address_or_a_word_why_not(name: str) -> None:
    files = dataset(name).files
    assert files.md5 and all(re.fullmatch("[0-9a-f]{32}", md5) for md5 in files.md5.values())
    assert bool(files.sources) == (name not in BY_HAND)


@pytest.mark.parametrize("name", BY_HAND)
def test_a_file_without_an_address_is_asked_for_in_one_sentence(name: str, tmp_path: Path) -> None:
    data = dataset(name)(tmp_path, batch_size=1)
    with pytest.raises(UserError) as caught:
        data.setup()
    (line,) = str(caught.value).splitlines()
    for file, md5 in data.files.md5.items():
        assert f"put {file} (MD5 {md5}) into {tmp_path / data.files.folder}; " in line
    assert not list(tmp_path.iterdir())


def test_no_registry_is_named() -> None:
    hosts = ("pypi", "pythonhosted", "debian.org", "conda")
    for path in Path(room.__file__).parent.glob("*.py"):
        assert not any(host in path.read_text() for host in hosts), path


def test_a_stratified_split_keeps_the_shares_of_the_classes_and_every_row() -> None:
    x, y = np.arange(500, dtype=np.float32)[:, None], np.repeat([0, 1, 2], [100, 150, 250])
    train, test = stratified(x, y)
    assert train.y is not None and test.y is not None
    assert train.y.bincount().tolist() == [80, 120, 200] and test.y.bincount().tolist() == [20, 30, 50]
    rows = np.concatenate([train.all().x[:, 0], test.all().x[:, 0]])
    assert sorted(rows) == list(range(500))
    assert (y[train.all().x[:, 0].long()] == train.y.numpy()).all()
