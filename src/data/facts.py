"""The facts that a dataset declares. Models check them instead of a dataset's class; checkpoints store them."""

import math
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

SEQUENCES = ("shape", "aux", "columns", "centre", "spread", "classes", "one_hot")


@dataclass(frozen=True)
class Target:
    """What there is to predict: nothing, one of P classes, or P real numbers."""

    kind: Literal["none", "class", "real"] = "none"
    size: int = 0  # P


@dataclass(frozen=True)
class Facts:
    """The facts of a dataset as one run uses it."""

    shape: tuple[int, ...]  # of one observation: (C, H, W) for images, (D,) for tables
    num_train: int  # N
    batch_size: int  # B
    target: Target = field(default_factory=Target)
    aux: tuple[str, ...] = ()  # the names of the auxiliary columns
    objects: int | None = None  # the number of objects in the column `object`
    group: str | None = None  # the auxiliary column whose points stay together, such as `video`
    group_size: int | None = None  # points per group, such as the frames of a video
    complete: bool = True  # False if values of the training split are missing
    complete_test: bool = True  # False if values of the test split are missing
    missing: int = 0  # values of the training split that are missing
    patterns: int = 1  # sets of training points that a value can have been observed at; at most D
    binary: bool = False  # True if every value is 0 or 1
    levels: int = 0  # grey levels of bytes, 256; 0 if values are floats
    one_hot: tuple[int, ...] = ()  # the numbers of columns of the categories, in order, if all columns are one-hot
    fresh: bool = False  # True if every training batch is newly generated and not part of the training split
    scale: Literal["image", "table"] = "image"  # values of images are about 0 to 1, those of tables arbitrary
    columns: tuple[str, ...] = ()  # the names of a table's columns
    centre: tuple[float, ...] = ()  # what standardisation subtracted from each column; empty: not standardised
    spread: tuple[float, ...] = ()  # what it then divided each column by
    classes: tuple[str, ...] = ()  # the names of the classes, in the order of their ids

    @property
    def observed(self) -> int:
        """The number of observed values of the training split: N D, less those that are missing."""
        return self.num_train * math.prod(self.shape) - self.missing

    def plain(self) -> dict[str, Any]:
        """The facts as plain values, for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_plain(cls, values: dict[str, Any]) -> "Facts":
        """The facts that `plain` wrote; facts that an older checkpoint lacks have their defaults."""
        sequences = {name: tuple(values[name]) for name in SEQUENCES if name in values}
        return cls(**{**values, **sequences, "target": Target(**values["target"])})
