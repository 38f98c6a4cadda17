"""What datasets say about themselves, and that a checkpoint can hold it."""

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from src.data import mnist_million, rotated_mnist
from src.data.arrays import Arrays
from src.data.facts import Facts, Target
from src.data.fetching import idx_bytes
from src.data.files import FromFiles
from src.data.images import CIFAR10, MNIST, Digits, FashionMNIST
from src.data.mnist_million import MNISTMillion
from src.data.module import DataModule
from src.data.moving_ball import MovingBall
from src.data.rotated_mnist import RotatedMNIST

RNG = np.random.default_rng(0)


def facts_of(data: DataModule) -> Facts:
    data.setup()
    return data.facts


@pytest.fixture
def mnist_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """600 + 20 images of noise, labelled 0 to 9, in place of MNIST."""
    files = {}
    for name, size in (("train", 600), ("t10k", 20)):
        files[f"{name}-images-idx3-ubyte"] = idx_bytes(RNG.integers(0, 256, (size, 28, 28), np.uint8))
        files[f"{name}-labels-idx1-ubyte"] = idx_bytes((np.arange(size) % 10).astype(np.uint8))
    monkeypatch.setattr(FromFiles, "contents", lambda self: files)


@pytest.mark.usefixtures("mnist_files")
@pytest.mark.parametrize("dataset", [MNIST, FashionMNIST])
def test_mnist(dataset: type[MNIST]) -> None:
    facts = facts_of(dataset("nowhere", batch_size=50, max_train=100))
    assert facts == Facts(shape=(1, 28, 28), num_train=100, batch_size=50, target=Target("class", 10), levels=256)
    assert facts.scale == "image" and facts.complete and not facts.binary


def test_cifar10(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = {"data": np.zeros((10, 3072), np.uint8), "labels": list(range(10))}
    contents = {**{f"data_batch_{i}": b"" for i in range(1, 6)}, "test_batch": b""}
    monkeypatch.setattr(FromFiles, "contents", lambda self: contents)
    monkeypatch.setattr("src.data.fetching.unpickle", lambda content: batch)
    facts = facts_of(CIFAR10("nowhere", batch_size=5))
    assert facts == Facts(shape=(3, 32, 32), num_train=50, batch_size=5, target=Target("class", 10), levels=256)


def test_digits() -> None:
    facts = facts_of(Digits(batch_size=100))
    assert facts == Facts(shape=(1, 8, 8), num_train=1437, batch_size=100, target=Target("class", 10))


@pytest.mark.usefixtures("mnist_files")
def test_mnist_million(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mnist_million, "make", lambda root, size: written(tmp_path, size))
    facts = facts_of(MNISTMillion(tmp_path, batch_size=4, size=30))
    assert facts == Facts(shape=(1, 28, 28), num_train=30, batch_size=4, target=Target("class", 10), levels=256)


def written(folder: Path, size: int) -> tuple[Path, Path]:
    np.save(folder / "x.npy", np.zeros((size, 28, 28), np.uint8))
    np.save(folder / "y.npy", (np.arange(size) % 10).astype(np.uint8))
    return folder / "x.npy", folder / "y.npy"


@pytest.mark.usefixtures("mnist_files")
@pytest.mark.parametrize(("digits", "target"), [([6], 8), ([6, 3], 7)])
def test_rotated_mnist(digits: list[int], target: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One digit is labelled by its objects, of which 8 are in the pool; several are labelled by digit."""
    monkeypatch.setattr(rotated_mnist, "OBJECTS", 10)
    monkeypatch.setattr(rotated_mnist, "POOL", 8)
    facts = facts_of(RotatedMNIST("nowhere", batch_size=9, digits=digits))
    assert facts.shape == (1, 28, 28) and facts.num_train == 90 * len(digits) and facts.batch_size == 9
    assert facts.aux == ("object", "angle") and facts.objects == 10 * len(digits)
    assert facts.target == Target("class", target)
    assert facts.group is None and not facts.binary and facts.scale == "image" and not facts.fresh


@pytest.mark.parametrize("fresh", [True, False])
def test_moving_ball(fresh: bool) -> None:
    facts = facts_of(MovingBall(batch_videos=2, num_train_videos=4, num_test_videos=1, fresh=fresh))
    assert facts == Facts(
        shape=(1, 32, 32),
        num_train=120,
        batch_size=60,
        aux=("video", "time"),
        group="video",
        group_size=30,
        binary=True,
        fresh=fresh,
    )
    assert facts.target.kind == "none" and facts.objects is None and facts.scale == "image"


@pytest.mark.parametrize(
    ("shape", "scale", "expected"), [((9, 4), "table", (4,)), ((9, 4, 5), "image", (1, 4, 5))], ids=["rows", "images"]
)
@pytest.mark.parametrize(
    ("y", "target"),
    [
        (None, Target()),
        (np.array([3, 5, 3, 5, 3, 5, 3, 9, 9]), Target("class", 3)),
        (np.array(list("abcabcabc")), Target("class", 3)),
        (np.zeros((9, 2)), Target("real", 2)),
        (np.zeros(9), Target("real", 1)),
    ],
    ids=["none", "integers", "strings", "reals", "one real"],
)
def test_arrays(
    tmp_path: Path,
    shape: tuple[int, ...],
    scale: str,
    expected: tuple[int, ...],
    y: np.ndarray | None,
    target: Target,
) -> None:
    arrays = {"x_train": np.full(shape, 0.3), "x_test": np.full(shape, 0.3)}
    arrays |= {} if y is None else {"y_train": y, "y_test": y}
    np.savez(tmp_path / "d.npz", **arrays)  # type: ignore[arg-type]
    facts = facts_of(Arrays(str(tmp_path / "d.npz"), batch_size=4))
    assert (facts.shape, facts.num_train, facts.scale, facts.target) == (expected, 9, scale, target)
    assert facts.aux == () and facts.group is None and facts.complete and not facts.binary and not facts.fresh


EVERYTHING = Facts(
    shape=(3, 32, 32),
    num_train=50,
    batch_size=7,
    target=Target("real", 2),
    aux=("object", "angle"),
    objects=400,
    group="video",
    group_size=30,
    complete=False,
    binary=True,
    levels=256,
    one_hot=(2, 3),
    fresh=True,
    scale="table",
    columns=("a", "b"),
    centre=(0.5, 1e9),
    spread=(2.0, 1e-3),
    classes=("cat", "32 TE"),
)


@pytest.mark.parametrize("facts", [EVERYTHING, replace(EVERYTHING, target=Target(), aux=(), objects=None)])
def test_a_checkpoint_holds_facts_as_plain_values(facts: Facts) -> None:
    file = io.BytesIO()
    torch.save(facts.plain(), file)
    file.seek(0)
    assert Facts.from_plain(torch.load(file, weights_only=True)) == facts


def test_facts_survive_lists_in_place_of_tuples() -> None:
    plain = EVERYTHING.plain()
    assert (
        Facts.from_plain({**plain, "shape": list(plain["shape"]), "aux": list(plain["aux"]), "columns": ["a", "b"]})
        == EVERYTHING
    )


def test_an_older_checkpoint_lacks_the_names_of_a_table() -> None:
    plain = replace(EVERYTHING, columns=(), centre=(), spread=(), classes=()).plain()
    old = {key: value for key, value in plain.items() if key not in ("columns", "centre", "spread", "classes")}
    assert Facts.from_plain(old) == replace(EVERYTHING, columns=(), centre=(), spread=(), classes=())
