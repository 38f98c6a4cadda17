"""Facts of datasets that are known before any file is read, so that commands reject an impossible pair at once.

None means that a fact shows only in the data. A dataset without an entry is checked when it is loaded; a test compares
every entry with the facts of the loaded data.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from src.runs.identity import class_name

OF_EACH_DIGIT = (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949)  # images of 0 to 9 in MNIST
Settings = dict[str, Any]  # the node `dataset` of a config


@dataclass(frozen=True)
class Known:
    """What is known of the facts of a dataset; the names are those of `Facts`."""

    target: str | None = None  # the kind: none, class or real
    scale: str | None = None  # image or table
    num_train: int | None = None
    batch_size: int | None = None
    aux: tuple[str, ...] | None = ()
    binary: bool | None = False
    one_hot: bool = False
    complete: bool | None = True  # both splits
    fresh: bool = False


def images(num_train: int | None, target: str = "class", **others: Any) -> Known:
    """Complete images."""
    return Known(target, "image", num_train, **others)


def table(num_train: int, target: str = "class") -> Known:
    """A complete table of real numbers."""
    return Known(target, "table", num_train)


def own_array(settings: Settings) -> Known:
    """A user's arrays: an .npz file may hold labels too."""
    unlabelled = settings.get("train_labels") is None and str(settings.get("train")).endswith(".npy")
    return Known("none" if unlabelled else None, binary=None, complete=None)


def own_table(settings: Settings) -> Known:
    """A user's table."""
    kind = "real" if settings.get("target") else "class" if settings.get("label") is not None else "none"
    bits = False if settings.get("standardise", True) else None
    return Known(kind, "table", binary=bits, one_hot=bool(settings.get("one_hot")), complete=None)


def moving_ball(settings: Settings) -> Known:
    """Videos of 30 frames; batches are whole videos."""
    known = images(30 * settings["num_train_videos"], "none", aux=("video", "time"), binary=True)
    return replace(known, batch_size=30 * settings["batch_videos"], fresh=settings["fresh"])


def rotated_mnist(settings: Settings) -> Known:
    """The same number of images of each digit, each object a class."""
    digits = settings["digits"]
    return images(4050 * len(digits) if digits else None, aux=("object", "angle"))


def mnist(settings: Settings) -> Known:
    """As many images as there are of each digit."""
    digits = settings.get("digits")
    return images(sum(OF_EACH_DIGIT[digit] for digit in (range(10) if digits is None else digits)))


DECLARED: dict[str, Known | Callable[[Settings], Known]] = {
    "Anuran": table(7195),
    "Arrays": own_array,
    "CIFAR10": images(50_000),
    "CIFAR10Subset": images(5085),
    "CMU35": table(2613),
    "Digits": images(1437),
    "DrivFace": images(606),
    "FashionMNIST": images(60_000),
    "Flights": table(70_000, "real"),
    "Frey": images(1769, "none"),
    "MNIST": mnist,
    "MNISTMillion": lambda settings: images(settings["size"]),
    "MovingBall": moving_ball,
    "OilFlow": table(1000),
    "Olivetti": images(320),
    "PBMC68k": table(560),
    "QPCR": table(349),
    "Rectangles": images(1200, binary=True),
    "RectanglesImage": images(12_000),
    "RotatedMNIST": rotated_mnist,
    "Sarcos": table(3559, "real"),
    "Table": own_table,
    "Textures": lambda settings: images(150 * len(settings["textures"])),
    "ToyCurve": table(100, "real"),
}
OF_USERS = ("Arrays", "Table")  # whose files the user names


def known(settings: Settings) -> Known | None:
    """The facts of a dataset with these settings, as far as they are known; None if nothing is declared."""
    declared = DECLARED.get(class_name(settings["_target_"]))
    if declared is None:
        return None
    whole = declared(settings) if callable(declared) else declared
    used = replace(whole, num_train=points(whole.num_train, settings))
    if used.batch_size is None:
        asked = settings.get("batch_size")
        used = replace(used, batch_size=used.num_train if asked == "full" else asked)
    hidden = (settings.get("missing") or {}).get("fraction") is not None or settings.get("test_missing") is not None
    return replace(
        used, complete=False if hidden else used.complete, binary=bool(settings.get("binary")) or used.binary
    )


def points(available: int | None, settings: Settings) -> int | None:
    """N of the part that is trained on; None if a part of it is held out, whose size depends on the groups."""
    if settings.get("validation") is not None:
        return None
    return settings.get("max_train") or available


def size_problem(settings: Settings, found: Known | None) -> str | None:
    """What is wrong with the number of points that a run takes, or with its batches."""
    asked, batch = settings.get("max_train"), settings.get("batch_size")
    whole = None if found is None or asked is None else known({**settings, "max_train": None})
    if whole is not None and whole.num_train is not None and asked is not None and asked > whole.num_train:
        return subset_problem("dataset.max_train", asked, whole.num_train)
    num_train = asked if found is None else found.num_train
    return batch_problem(batch, num_train) if isinstance(batch, int) else None


def subset_problem(name: str, size: int, available: int) -> str | None:
    """A part of a split that is larger than the split."""
    if 1 <= size <= available:
        return None
    return f"{name}={size} must lie between 1 and the {available} available points"


def batch_problem(batch_size: int, num_train: int | None) -> str | None:
    """A batch that is larger than the training split."""
    if num_train is None or 1 <= batch_size <= num_train:
        return None
    return (
        f"dataset.batch_size={batch_size} must lie between 1 and the {num_train} training points "
        "(dataset.batch_size=full takes all of them)"
    )
