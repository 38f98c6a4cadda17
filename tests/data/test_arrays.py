"""A person's own arrays: what is kept, what is turned, and a clear sentence for everything that does not fit."""

import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from src.data import arrays
from src.data.arrays import Arrays
from src.data.batch import Split
from src.data.facts import Target
from src.runs.errors import UserError

FLOATS = np.random.default_rng(0).normal(size=(20, 6)).astype(np.float32)
BYTES = np.random.default_rng(1).integers(0, 256, (20, 4, 4), np.uint8)


@pytest.fixture
def save(tmp_path: Path) -> Callable[..., str]:
    """Saves one array as .npy, or several by name as .npz, and returns the path."""

    def write(name: str, array: np.ndarray | None = None, **arrays: np.ndarray) -> str:
        path = tmp_path / name
        if array is None:
            np.savez(path, **arrays)  # type: ignore[arg-type]
        else:
            np.save(path, array)
        return str(path)

    return write


def load(train: str | None, **paths: str) -> tuple[Split, Split]:
    return Arrays(train, batch_size=2, **paths).load()  # type: ignore[arg-type]


def labels(split: Split) -> list[int]:
    assert split.y is not None and split.y.dtype == torch.int64
    return split.y.tolist()


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ((20, 6), (6,)),
        ((20, 4, 5), (1, 4, 5)),
        ((20, 3, 4, 5), (3, 4, 5)),
        ((20, 2, 4, 5), (2, 4, 5)),
        ((20, 2, 3, 4, 5), (2, 3, 4, 5)),
    ],
)
def test_any_number_of_dimensions(save: Callable[..., str], shape: tuple[int, ...], expected: tuple[int, ...]) -> None:
    data = Arrays(save("x.npy", np.zeros(shape, np.uint8)), batch_size=4)
    data.setup()
    assert data.facts.shape == expected and len(data.train) == 18 and len(data.test) == 2


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [("u1", torch.uint8), ("f2", torch.float32), ("f4", torch.float32), ("f8", torch.float32), (">f4", torch.float32)],
)
def test_bytes_stay_and_floats_become_float32(save: Callable[..., str], dtype: str, expected: torch.dtype) -> None:
    path = save("x.npy", np.arange(12).reshape(4, 3).astype(dtype))
    train, test = load(path, test=path)
    assert train.storage.dtype == test.storage.dtype == train.all().x.dtype == expected
    assert train.all().x.tolist() == np.arange(12).reshape(4, 3).tolist()


@pytest.mark.skipif(sys.platform != "linux", reason="the maps of a process are read from /proc")
def test_an_npy_file_is_mapped_and_never_written_to(save: Callable[..., str]) -> None:
    path = save("x.npy", FLOATS)
    train, _ = load(path, test=path)
    assert any(path in line for line in Path("/proc/self/maps").read_text().splitlines())
    train.storage.values.zero_()
    assert np.array_equal(np.load(path), FLOATS)


@pytest.mark.skipif(sys.platform != "linux", reason="the maps of a process are read from /proc")
@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_nothing_of_a_mapped_file_stays_in_memory(save: Callable[..., str], dtype: str) -> None:
    """Neither the search for values that are not finite nor any batch touches the map."""

    def kilobytes() -> list[str]:
        """Of each mapping of the file."""
        after_name = Path("/proc/self/smaps").read_text().split(path)[1:]
        return [match[1] for text in after_name if (match := re.search(r"Rss: +(\d+) kB", text))]

    x = np.arange(150_000).reshape(1000, 3, 50).astype(dtype)
    path = save("x.npy", x)
    data = Arrays(path, batch_size=100, test=path)
    data.setup()
    assert kilobytes() == ["0", "0"]
    for batch in data.train_dataloader():
        assert np.array_equal(batch.x[:, 0].numpy(), x[batch.index.numpy()])
    assert kilobytes() == ["0", "0"]


def test_a_file_that_is_cut_while_it_is_in_use(save: Callable[..., str]) -> None:
    path = save("x.npy", BYTES)
    train, _ = load(path, test=path)
    with Path(path).open("r+b") as file:
        file.truncate(300)
    with pytest.raises(UserError, match="was shortened while it was in use"):
        train[torch.arange(20)]


@pytest.mark.parametrize("array", [np.asfortranarray(FLOATS), FLOATS.astype(np.float64), FLOATS.astype(">f4")])
def test_a_file_that_does_not_have_rows_as_they_are_used(save: Callable[..., str], array: np.ndarray) -> None:
    path = save("x.npy", array)
    train, _ = load(path, test=path)
    assert np.array_equal(train[torch.tensor([7, 3])].x.numpy(), FLOATS[[7, 3]])


def test_a_tenth_is_held_out_the_same_in_every_run(save: Callable[..., str]) -> None:
    x = np.arange(100, dtype=np.float32)[:, None]
    path, y = save("x.npy", x), save("y.npy", np.arange(100))
    first, second = (Arrays(path, batch_size=2, train_labels=y, seed=seed).load() for seed in (0, 1))
    train, test = first
    assert len(train) == 90 and len(test) == 10
    kept, held_out = (next(split.chunks(100)).x for split in first)
    assert sorted(kept.flatten().tolist() + held_out.flatten().tolist()) == x.flatten().tolist()
    assert torch.equal(held_out, second[1].all().x) and torch.equal(kept, next(second[0].chunks(100)).x)
    assert kept.flatten().tolist() == labels(train) and held_out.flatten().tolist() == labels(test)


def test_holding_out_copies_a_tenth_only(save: Callable[..., str]) -> None:
    """The training split shares the whole array, of which it knows its rows."""
    data = Arrays(save("x.npy", BYTES), batch_size=10)
    data.setup()
    train, test = data.train.storage, data.test.storage
    assert len(train) == 18 and train.values.shape == (20, 1, 4, 4) and test.values.shape == (2, 1, 4, 4)
    assert train.rows is not None and test.rows is None and test.file is None
    batch = next(iter(data.train_dataloader()))
    assert np.array_equal(batch.x[:, 0].numpy(), BYTES[train.rows[batch.index].numpy()])


def test_an_npz_may_hold_everything(save: Callable[..., str]) -> None:
    y = np.arange(20) % 3
    train, test = load(save("all.npz", x_train=BYTES, y_train=y, x_test=BYTES[:5], y_test=y[:5]))
    assert np.array_equal(train.all().x[:, 0], BYTES) and np.array_equal(test.all().x[:, 0], BYTES[:5])
    assert labels(train) == y.tolist() and labels(test) == y[:5].tolist()


def test_paths_come_before_what_the_npz_holds(save: Callable[..., str]) -> None:
    y = np.arange(20) % 3
    everything = save("all.npz", x_train=FLOATS, y_train=y, x_test=FLOATS[:5], y_test=y[:5])
    other = save("other.npz", x=FLOATS[:7], y=np.zeros(7, int))
    train, test = load(everything, test=other, train_labels=save("y.npy", np.ones(20, int)))
    assert len(test) == 7 and labels(test) == [0] * 7 and labels(train) == [1] * 20


def test_labels_of_other_images_are_not_used(save: Callable[..., str]) -> None:
    everything = save("all.npz", x=FLOATS, y=np.arange(20), x_test=FLOATS[:5], y_test=np.arange(5))
    _, test = load(everything, test=save("test.npy", FLOATS[:5]))
    assert test.y is None


def test_an_npz_with_x_and_y(save: Callable[..., str]) -> None:
    train, test = load(save("data.npz", x=FLOATS, y=np.full(20, 7)))
    assert len(train) == 18 and labels(train) == [0] * 18 and labels(test) == [0] * 2


@pytest.mark.parametrize(
    ("train_labels", "test_labels", "expected", "names"),
    [
        (np.array([5, -2, 5]), np.array([9, 5]), ([1, 0, 1], [2, 1]), ("-2", "5", "9")),
        (np.array(["cat", "dog"] * 2)[:3], np.array(["elk", "dog"]), ([0, 1, 0], [2, 1]), ("cat", "dog", "elk")),
        (np.array([b"b", b"a", b"b"]), np.array([b"a", b"a"]), ([1, 0, 1], [0, 0]), ("a", "b")),
        (np.array([[3], [3], [4]], np.uint8), np.array([4, 3], np.int32), ([0, 0, 1], [1, 0]), ("3", "4")),
        (np.array([True, False, True]), np.array([False, False]), ([1, 0, 1], [0, 0]), ("0", "1")),
    ],
)
def test_labels_are_numbered_alike_in_both_splits(
    save: Callable[..., str],
    train_labels: np.ndarray,
    test_labels: np.ndarray,
    expected: tuple[list[int], list[int]],
    names: tuple[str, ...],
) -> None:
    path = save("d.npz", x_train=FLOATS[:3], y_train=train_labels, x_test=FLOATS[:2], y_test=test_labels)
    data = Arrays(path, batch_size=2)
    train, test = data.load()
    assert (labels(train), labels(test)) == expected
    assert data.classes == names and all(type(name) is str for name in data.classes)


def test_real_images(data_file: Callable[[str], Path]) -> None:
    data = Arrays(str(data_file("cifar10_subset.npz")), batch_size=256, max_test=100)
    data.setup()
    assert len(data.train) == 5085 and data.facts.shape == (3, 32, 32) and data.train.storage.dtype == torch.uint8
    assert len(data.test) == 100


def test_no_file_given() -> None:
    with pytest.raises(UserError, match=r"dataset.train is missing; .* dataset.train=path/to/images.npy"):
        load(None)


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"dataset.train=.*/nowhere.npy does not exist"):
        load(str(tmp_path / "nowhere.npy"))


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        load(str(tmp_path))


@pytest.mark.parametrize("content", [b"", b"some,csv\n1,2\n", b"PK\x03\x04junk", b"\x93NUMPY\x01\x00junk"])
def test_what_is_not_an_array_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "data.npy"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"dataset.train=.* is not a whole .npy or .npz file"):
        load(str(path))


@pytest.mark.parametrize("name", ["x.npy", "x.npz"])
def test_a_truncated_file(save: Callable[..., str], name: str) -> None:
    path = Path(save("x.npy", FLOATS) if name == "x.npy" else save("x.npz", x=FLOATS))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(UserError, match="is not a whole"):
        load(str(path))


def test_python_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([[{}]], dtype=object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", x=np.array([[{}]], dtype=object))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(UserError, match="is not a whole"):
            load(str(tmp_path / name))


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e300])
def test_infinite_values_name_their_first_row(save: Callable[..., str], value: float) -> None:
    x = FLOATS.astype(np.float64)
    x[3, 1] = np.nan
    x[[17, 19], 3] = value
    with pytest.raises(UserError, match=r"dataset.train=.* has infinite values .* first in row 17"):
        load(save("x.npy", x))


def test_infinite_values_beyond_the_first_chunk_name_their_row(
    save: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "ROWS_AT_ONCE", 8)
    x = FLOATS.copy()
    x[18, 0] = np.inf
    with pytest.raises(UserError, match="first in row 18"):
        load(save("x.npy", x))


@pytest.mark.parametrize("rows_at_once", [8, 4096])
def test_nan_means_missing(save: Callable[..., str], rows_at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mask tells which values were observed, in every batch of the split that has some missing."""
    monkeypatch.setattr(arrays, "ROWS_AT_ONCE", rows_at_once)
    x = FLOATS.copy()
    x[2, 1] = x[17, 3] = x[17, 5] = np.nan
    data = Arrays(save("x.npy", x), batch_size="full", test=save("t.npy", FLOATS[:4]))
    data.setup()
    assert data.train.mask is not None and np.array_equal(data.train.mask, ~np.isnan(x))
    batch = data.train[torch.tensor([17, 0, 2])]
    assert batch.mask is not None and np.array_equal(batch.mask, ~np.isnan(x[[17, 0, 2]]))
    assert data.test.mask is None and not data.facts.complete


def test_a_held_out_tenth_takes_its_mask(save: Callable[..., str]) -> None:
    x = np.repeat(FLOATS, 5, 0)
    x[::3, 2] = np.nan
    for split in load(save("x.npy", x)):
        assert split.mask is not None and torch.equal(split.mask, ~split.all().x.isnan()) and not split.mask.all()


@pytest.mark.parametrize("dtype", ["u1", "f4"])
def test_what_is_complete_has_no_mask(save: Callable[..., str], dtype: str) -> None:
    data = Arrays(save("x.npy", np.ones((20, 3), dtype)), batch_size=4)
    data.setup()
    assert data.train.mask is None and data.test.mask is None and data.facts.complete


@pytest.mark.parametrize("shape", [(), (5,), (0, 3), (3, 0)])
def test_too_few_dimensions_or_nothing_at_all(save: Callable[..., str], shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="must have one row per sample"):
        load(save("x.npy", np.zeros(shape)))


@pytest.mark.parametrize("channels", [1, 3, 4])
def test_channels_that_come_last(save: Callable[..., str], channels: int) -> None:
    with pytest.raises(UserError, match=r"looks like height x width x channels: .* np.moveaxis\(x, -1, 1\)"):
        load(train=save("x.npy", np.zeros((5, 8, 8, channels), np.uint8)))


@pytest.mark.parametrize("shape", [(5, 8, 8), (5, 1, 8, 8), (5, 3, 8, 8)])
def test_float_images_from_0_to_255(save: Callable[..., str], shape: tuple[int, ...]) -> None:
    images = np.linspace(0, 255, np.prod(shape), dtype=np.float32).reshape(shape)
    images[0] = np.nan
    with pytest.raises(UserError, match="looks like images from 0 to 255: divide them by 255, or save them as uint8"):
        load(train=save("x.npy", images))
    for right in (images / 255, images - 128, images * 2, np.full_like(images, np.nan)):
        load(train=save("x.npy", right))


def test_vectors_may_have_any_size(save: Callable[..., str]) -> None:
    train, test = load(train=save("x.npy", np.linspace(0, 255, 40, dtype=np.float32).reshape(10, 4)))
    assert len(train) + len(test) == 10 and train.all().x.max() > 200


@pytest.mark.parametrize("dtype", [np.int64, np.uint16, bool, complex, "U3"])
def test_types_that_are_neither_bytes_nor_floats(save: Callable[..., str], dtype: type) -> None:
    with pytest.raises(UserError, match=r"must be saved as uint8 .* or as floats"):
        load(save("x.npy", np.zeros((4, 3), dtype)))


@pytest.mark.parametrize("test", [FLOATS[:, :5], FLOATS.reshape(20, 2, 3), np.zeros((5, 6), np.uint8)])
def test_test_images_of_another_shape_or_type(save: Callable[..., str], test: np.ndarray) -> None:
    with pytest.raises(UserError, match=r"dataset.test=.* does not fit dataset.train=.* \(float32 \[20, 6\]\)"):
        load(save("x.npy", FLOATS), test=save("t.npy", test))


@pytest.mark.parametrize("wrong", [np.zeros(19, int), np.zeros((20, 2), int), np.zeros((), int)])
def test_labels_of_another_length(save: Callable[..., str], wrong: np.ndarray) -> None:
    with pytest.raises(UserError, match=r"dataset.train_labels=.* must have one label for each of the 20 samples"):
        load(save("x.npy", FLOATS), train_labels=save("y.npy", wrong))


def test_labels_that_are_neither_numbers_nor_strings(save: Callable[..., str]) -> None:
    with pytest.raises(UserError, match="must hold integers or strings"):
        load(save("x.npy", FLOATS), train_labels=save("y.npy", np.zeros(20, complex)))


@pytest.mark.parametrize("shape", [(20,), (20, 1), (20, 3)])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_floats_are_real_targets(save: Callable[..., str], shape: tuple[int, ...], dtype: str) -> None:
    y = np.random.default_rng(2).normal(size=shape).astype(dtype)
    data = Arrays(save("d.npz", x_train=FLOATS, y_train=y, x_test=FLOATS[:5], y_test=y[5:10]), batch_size=4)
    data.setup()
    assert data.facts.target == Target("real", shape[-1] if len(shape) > 1 else 1)
    for split, expected in ((data.train, y), (data.test, y[5:10])):
        assert split.y is not None and split.y.dtype == torch.float32
        assert np.array_equal(split.y, expected.reshape(len(expected), -1).astype(np.float32))


@pytest.mark.parametrize("wrong", [np.zeros(19), np.zeros(()), np.full(20, np.nan), np.array([np.inf] * 20)])
def test_real_targets_that_are_missing(save: Callable[..., str], wrong: np.ndarray) -> None:
    with pytest.raises(UserError, match="must have finite targets for each of the 20 samples"):
        load(save("x.npy", FLOATS), train_labels=save("y.npy", wrong))


@pytest.mark.parametrize(
    ("train_labels", "test_labels", "kinds"),
    [
        (np.zeros(3, int), np.zeros(2), "integers and real numbers"),
        (np.array(["1", "0", "1"]), np.zeros(2, int), "integers and strings"),
        (np.zeros((3, 2)), np.zeros((2, 1)), r"real numbers \[N, 1\] and real numbers \[N, 2\]"),
    ],
)
def test_labels_of_different_kinds(
    save: Callable[..., str], train_labels: np.ndarray, test_labels: np.ndarray, kinds: str
) -> None:
    path = save("d.npz", x_train=FLOATS[:3], y_train=train_labels, x_test=FLOATS[:2], y_test=test_labels)
    with pytest.raises(UserError, match=f"are of different kinds: {kinds}"):
        load(path)


def test_test_labels_without_test_images(save: Callable[..., str]) -> None:
    with pytest.raises(UserError, match=r"there are no test images: set dataset.test"):
        load(save("x.npy", FLOATS), test_labels=save("y.npy", np.zeros(2, int)))


@pytest.mark.parametrize("names", [["images", "labels"], ["x_train", "angles"]])
def test_an_npz_with_unknown_names(save: Callable[..., str], names: list[str]) -> None:
    with pytest.raises(UserError, match=f"holds {', '.join(names)}; an .npz may hold x_train, y_train"):
        load(save("d.npz", **dict.fromkeys(names, FLOATS)))


def test_an_npz_without_what_it_is_given_for(save: Callable[..., str]) -> None:
    with pytest.raises(UserError, match=r"dataset.train=.* holds x_test, but neither x_train nor x"):
        load(save("d.npz", x_test=FLOATS))
    with pytest.raises(UserError, match=r"dataset.train_labels=.* holds x, but neither y_train nor y"):
        load(save("x.npy", FLOATS), train_labels=save("l.npz", x=FLOATS))


def test_a_single_sample_cannot_be_split(save: Callable[..., str]) -> None:
    with pytest.raises(UserError, match=r"set dataset.test"):
        load(save("x.npy", FLOATS[:1]))


@pytest.mark.parametrize(
    ("array", "binary"),
    [
        (np.array([[0.0, 1.0]] * 20), True),
        (np.array([[0.0, np.nan]] * 20), True),
        (np.array([[0.0, 0.5]] * 20), False),
        (np.array([[0, 255]] * 20, np.uint8), True),
        (np.array([[0, 1]] * 20, np.uint8), False),  # bytes 0 to 255 stand for 0 to 1
    ],
)
def test_bits_are_recognised(save: Callable[..., str], array: np.ndarray, binary: bool) -> None:
    data = Arrays(save("x.npy", array), batch_size="full")
    data.setup()
    assert data.facts.binary == binary


def test_bits_in_one_split_only_are_no_bits(save: Callable[..., str]) -> None:
    bits, greys = np.array([[0.0, 1.0]] * 20), np.array([[0.0, 0.5]] * 20)
    data = Arrays(save("x.npy", bits), batch_size="full", test=save("t.npy", greys))
    data.setup()
    assert not data.facts.binary
