"""The user's own data: images or vectors from .npy and .npz files."""

import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor
from typing_extensions import Unpack

from src.data.batch import Split, split_of
from src.data.module import DataModule, Options
from src.runs.errors import UserError

NPZ_NAMES = ("x_train", "y_train", "x_test", "y_test", "x", "y")
HOLD_OUT_SEED = 0
ROWS_AT_ONCE = 4096
CHANNELS = (1, 3, 4)  # of grey, RGB and RGBA images
BRIGHT = 16  # a float above it, without negative ones, is no intensity in [0, 1] and no standardised value


class Stored(NamedTuple):
    """An array as it was read, and the option or name that the user knows it by."""

    array: np.ndarray
    where: str


class Arrays(DataModule):
    """Arrays [N, D], [N, H, W], [N, C, H, W] or with more dimensions, as uint8 or floats, from .npy or .npz files.

    An .npz file may hold `x_train`, `y_train`, `x_test` and `y_test` (or `x` and `y`); options that name other files
    take precedence. NaN means missing. Integer and string labels are classes, float labels are real targets. Without
    test images, one tenth of the training images becomes the test split: the same tenth in every run. A test split that
    is the same file as the training split is no test: all points are trained on, and scored as training data are.
    """

    def __init__(
        self,
        train: str | None,
        test: str | None = None,
        train_labels: str | None = None,
        test_labels: str | None = None,
        name: str | None = None,
        **options: Unpack[Options],
    ) -> None:
        super().__init__(**options)
        self.name = name
        self.test_is_train = train is not None and test == train
        self.paths = {"train": train, "test": test, "train_labels": train_labels, "test_labels": test_labels}

    def load(self) -> tuple[Split, Split]:
        """Read, check and pair the arrays."""
        return self.paired(*find_arrays(self.paths))

    def paired(
        self, x_train: Stored, y_train: Stored | None, x_test: Stored | None, y_test: Stored | None
    ) -> tuple[Split, Split]:
        """Both splits from arrays as they were read."""
        train = observations(x_train)
        self.binary = is_binary(train)
        targets = checked_targets(y_train, len(train))
        if x_test is None:
            (labels,), self.classes = encode_targets(targets), class_names(targets)
            return hold_out(replace(train, y=labels))
        test = observations(x_test)
        if (test.storage.shape, test.storage.dtype) != (train.storage.shape, train.storage.dtype):
            raise UserError(f"{describe(x_test)} does not fit {describe(x_train)}")
        self.binary = self.binary and is_binary(test)
        test_targets = checked_targets(y_test, len(test))
        labels, test_labels = encode_targets(targets, test_targets)
        self.classes = class_names(targets, test_targets)
        return replace(train, y=labels), replace(test, y=test_labels)


class GivenArrays(Arrays):
    """Arrays in memory, for Python. All points are trained on, and stand for the test split."""

    def __init__(self, x: np.ndarray, y: np.ndarray | None = None, **options: Unpack[Options]) -> None:
        super().__init__(None, **options)
        self.test_is_train = True
        self.x, self.y = Stored(x, "X"), None if y is None else Stored(y, "y")

    def load(self) -> tuple[Split, Split]:
        """Check and pair the arrays."""
        return self.paired(self.x, self.y, self.x, self.y)


def find_arrays(paths: dict[str, str | None]) -> tuple[Stored, Stored | None, Stored | None, Stored | None]:
    """x_train, y_train, x_test, y_test: from the given paths, or else from the file that holds the images."""
    if paths["train"] is None:
        raise UserError("dataset.train is missing; name your .npy or .npz file, as in dataset.train=path/to/images.npy")
    train = read_option(paths, "train", "x") or {}
    test = read_option(paths, "test", "x") or {name: train[name] for name in ("x_test", "y_test") if name in train}
    x_train, x_test = train.get("x_train") or train["x"], pick(test, "x_test", "x")
    y_train = pick(read_option(paths, "train_labels", "y") or train, "y_train", "y")
    y_test = pick(read_option(paths, "test_labels", "y") or test, "y_test", "y")
    if x_test is None and y_test is not None:
        raise UserError(f"{y_test.where} has labels of test images, but there are no test images: set dataset.test")
    return x_train, y_train, x_test, y_test


def read_option(paths: dict[str, str | None], option: str, kind: Literal["x", "y"]) -> dict[str, Stored] | None:
    """The arrays of the file that an option names; at least one must be of the option's kind."""
    path = paths[option]
    if path is None:
        return None
    arrays = read_file(path, f"dataset.{option}={path}", kind)
    wanted = (f"{kind}_{option.removesuffix('_labels')}", kind)
    if pick(arrays, *wanted) is None:
        raise UserError(f"dataset.{option}={path} holds {', '.join(arrays)}, but neither {' nor '.join(wanted)}")
    return arrays


def read_file(path: str, where: str, kind: Literal["x", "y"]) -> dict[str, Stored]:
    """The arrays of a file by name. The array of an .npy file is named after its kind, and mapped instead of read."""
    file = Path(path).expanduser()
    try:
        if zipfile.is_zipfile(file):
            return read_npz(file, where)
        # like "r", mode "c" never writes to the file, but torch warns if memory is not writable
        return {kind: Stored(np.lib.format.open_memmap(file, mode="c"), where)}
    except UserError:
        raise
    except FileNotFoundError:
        raise UserError(f"{where} does not exist (looked for {file.absolute()})") from None
    except OSError as error:
        raise UserError(f"{where} cannot be read: {error.strerror}") from error
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise UserError(f"{where} is not a whole .npy or .npz file of numbers (or, for labels, strings)") from error


def read_npz(file: Path, where: str) -> dict[str, Stored]:
    """The arrays of an .npz file; an unknown name is an error."""
    with np.load(file, allow_pickle=False) as npz:
        if not npz.files or set(npz.files) - set(NPZ_NAMES):
            found = ", ".join(npz.files) or "nothing"
            raise UserError(f"{where} holds {found}; an .npz may hold {', '.join(NPZ_NAMES)}")
        return {name: Stored(npz[name], f"{name} of {where}") for name in npz.files}


def pick(arrays: dict[str, Stored], *names: str) -> Stored | None:
    """The array with the first of these names that exists."""
    return next((arrays[name] for name in names if name in arrays), None)


def describe(stored: Stored) -> str:
    """The origin, type and shape of an array."""
    return f"{stored.where} ({stored.array.dtype} {list(stored.array.shape)})"


def observations(stored: Stored) -> Split:
    """Images or vectors, one per row: [N, H, W] becomes [N, 1, H, W], uint8 stays, floats become float32."""
    array = stored.array
    if array.ndim < 2 or array.size == 0:
        raise UserError(f"{describe(stored)} must have one row per sample: [N, D], [N, H, W] or [N, C, H, W]")
    if array.dtype.kind == "f":
        with np.errstate(over="ignore"):
            array = array.astype(np.float32, copy=False)
    elif array.dtype != np.uint8:
        raise UserError(f"{describe(stored)} must be saved as uint8 (images, 0 to 255) or as floats (used as they are)")
    split = split_of(array[:, None] if array.ndim == 3 else array)
    check_images(split, stored)
    return replace(split, mask=observed(split, stored.where)) if array.dtype.kind == "f" else split


def check_images(split: Split, stored: Stored) -> None:
    """Reject images whose channels seem to come last, and floats whose first rows seem to run from 0 to 255."""
    shape = split.storage.shape
    if len(shape) == 3 and shape[2] in CHANNELS and shape[0] not in CHANNELS:
        raise UserError(
            f"{describe(stored)} looks like height x width x channels: save it as channels x height x width, "
            "with np.moveaxis(x, -1, 1)"
        )
    if len(shape) == 3 and looks_like_bytes(next(iter(split.chunks(ROWS_AT_ONCE))).x):
        raise UserError(
            f"{describe(stored)} looks like images from 0 to 255: divide them by 255, or save them as uint8, "
            "with x.round().astype(np.uint8)"
        )


def looks_like_bytes(x: Tensor) -> bool:
    """Whether floats run from 0 to 255, as intensities that somebody forgot to divide."""
    seen = x.detach()[~x.isnan()] if x.is_floating_point() else x[:0]
    return seen.numel() > 0 and bool(seen.min() >= 0) and BRIGHT < float(seen.max()) <= 255


def observed(split: Split, where: str) -> Tensor | None:
    """The mask [N, *shape] of observed values, or None if no value is missing (NaN); infinite values are an error."""
    mask = None
    for chunk in split.chunks(ROWS_AT_ONCE):
        if chunk.x.isfinite().all():
            continue
        infinite = chunk.x.isinf().flatten(1).any(1)
        if infinite.any():
            raise UserError(f"{where} has infinite values (as float32), first in row {chunk.index[infinite][0]}")
        mask = torch.ones(len(split), *split.storage.shape, dtype=torch.bool) if mask is None else mask
        mask[chunk.index] = ~chunk.x.isnan()
    return mask


def is_binary(split: Split) -> bool:
    """Whether every observed value is 0 or 1, or 0 or 255 in bytes; most data show at once that they are not."""
    one = 255 if split.storage.dtype == torch.uint8 else 1
    values = (chunk.x if chunk.mask is None else chunk.x[chunk.mask] for chunk in split.chunks(ROWS_AT_ONCE))
    return all(bool(((x == 0) | (x == one)).all()) for x in values)


def checked_targets(stored: Stored | None, num_data: int) -> np.ndarray | None:
    """One target per sample: class labels [N] as integers or strings, or real numbers [N, P]."""
    if stored is None:
        return None
    array = stored.array
    if array.dtype.kind == "f":
        return real_targets(stored, num_data)
    if array.shape not in ((num_data,), (num_data, 1)):
        raise UserError(f"{describe(stored)} must have one label for each of the {num_data} samples")
    if array.dtype.kind not in "iubUS":
        raise UserError(f"{describe(stored)} must hold integers or strings (class labels) or floats (real targets)")
    labels = array.reshape(-1)
    return labels if labels.dtype.kind in "US" else labels.astype(np.int64)


def real_targets(stored: Stored, num_data: int) -> np.ndarray:
    """Real targets as float32 [N, P], all finite."""
    if stored.array.shape[:1] != (num_data,) or not np.isfinite(stored.array).all():
        raise UserError(f"{describe(stored)} must have finite targets for each of the {num_data} samples")
    return stored.array.reshape(num_data, -1).astype(np.float32)


def encode_targets(*splits: np.ndarray | None) -> list[Tensor | None]:
    """Real targets unchanged; labels as class ids 0 to P - 1, which mean the same class in all splits."""
    present = [targets for targets in splits if targets is not None]
    kinds = {kind_of(targets) for targets in present}
    if len(kinds) > 1:
        raise UserError(
            f"the labels of the training and the test samples are of different kinds: {' and '.join(sorted(kinds))}"
        )
    if present and present[0].ndim == 2:
        return [None if targets is None else torch.from_numpy(targets) for targets in splits]
    classes = distinct(present)
    return [None if labels is None else torch.from_numpy(np.searchsorted(classes, labels)) for labels in splits]


def class_names(*splits: np.ndarray | None) -> tuple[str, ...]:
    """The names of the classes in the order of their ids; none for real targets."""
    classes = distinct([targets for targets in splits if targets is not None and targets.ndim == 1])
    names = np.char.decode(classes, "utf-8", "replace") if classes.dtype.kind == "S" else classes.astype(str)
    return tuple(names.tolist())  # plain text, which a checkpoint can hold


def distinct(labels: list[np.ndarray]) -> np.ndarray:
    """All labels, each once and sorted."""
    return np.unique(np.concatenate(labels)) if labels else np.empty(0)


def kind_of(targets: np.ndarray) -> str:
    """The kind of the labels, which must be the same in both splits."""
    if targets.ndim == 2:
        return f"real numbers [N, {targets.shape[1]}]"
    return "strings" if targets.dtype.kind in "US" else "integers"


def hold_out(data: Split) -> tuple[Split, Split]:
    """Make one tenth of the samples, drawn with a constant seed, the test split; both splits keep the order.

    Only the test split is copied: the training split shares the array, which may be larger than the memory.
    """
    if len(data) < 2:
        raise UserError("dataset.train has a single sample, too few to hold out a test split: set dataset.test")
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(HOLD_OUT_SEED))
    num_test = max(1, len(data) // 10)
    test, train = (rows.sort().values for rows in order.tensor_split([num_test]))
    return data.part(train), data.part(test).in_memory()
