"""The base class of all datasets: a dataset is a subclass of `DataModule` with one method, `load`."""

from collections.abc import Mapping
from copy import copy
from typing import Any, ClassVar, Literal

import torch
from pytorch_lightning import LightningDataModule
from torch import Tensor
from typing_extensions import Required, TypedDict

from src.data.batch import Split
from src.data.bits import Binary, DrawnBits, FreshBits, binarised, check_binary
from src.data.facts import Facts, Target
from src.data.known import batch_problem, subset_problem
from src.data.missing import Missing, count_patterns, is_number
from src.data.sampling import Batches, ShuffledBatches
from src.data.standardisation import Scale
from src.runs.errors import UserError
from src.runs.randomness import stream

VALIDATION_STREAM = 3  # of random numbers; those of hidden values are 1 and 2


class Options(TypedDict, total=False):
    """The options of every dataset, for the constructors that pass them on."""

    batch_size: Required[int | Literal["full"]]
    max_train: int | None
    max_test: int | None
    missing: Mapping[str, Any] | None
    validation: float | None
    binary: Binary | None
    seed: int


class DataModule(LightningDataModule):
    """Two splits and the facts about them; `max_train` and `max_test` take a seeded subset of each.

    `missing` hides values on purpose; those that are missing anyway are NaN in a user's data. `validation` holds out a
    part of the training split, for numbers that may choose settings, as those of the test split must not. `binary`
    makes bits of grey images.
    """

    aux_names: ClassVar[tuple[str, ...]] = ()  # of the auxiliary columns
    group: ClassVar[str | None] = None  # the auxiliary column whose points stay together
    group_size: ClassVar[int | None] = None  # points per group
    binary: bool = False  # True if every value is 0 or 1
    one_hot: tuple[int, ...] = ()  # the numbers of columns of the categories, if all columns are one-hot
    fresh: bool = False  # True if every training batch is newly generated and not part of `train`
    test_is_train: bool = False  # True if there is no test part, so that the training points stand for it
    noise_free_test: ClassVar[bool] = False  # True if test targets are values of the function behind the data
    objects: Tensor | None = None  # [objects, *shape], one picture per object of the column `object`
    columns: tuple[str, ...] = ()  # the names of a table's columns
    classes: tuple[str, ...] = ()  # the names of the classes, in the order of their ids
    standardise: bool = False  # True: each column of vectors gets mean 0 and sd 1 over its observed training values
    standardisation: Scale | None = None  # its constants, once the data are loaded
    validation: Split | None = None  # the part of the training split that is held out, once the data are loaded

    def __init__(
        self,
        batch_size: int | Literal["full"],
        max_train: int | None = None,
        max_test: int | None = None,
        missing: Mapping[str, Any] | None = None,
        validation: float | None = None,
        binary: Binary | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.requested_batch_size, self.max_train, self.max_test, self.seed = batch_size, max_train, max_test, seed
        self.missing, self.validation_part, self.make_binary = Missing(**(missing or {})), validation, binary
        self.loaded = False

    def load(self) -> tuple[Split, Split]:
        """The whole training and test split."""
        raise NotImplementedError

    def setup(self, stage: str | None = None) -> None:
        """Load once, take the subsets, and check that the training split can fill a batch."""
        if self.loaded:
            return
        train, test = self.load()
        if self.fresh and self.missing.hides("train"):
            raise UserError(
                f"dataset.missing.split={self.missing.split} needs the same data in every epoch: "
                "set dataset.fresh=false"
            )
        train = subset(train, self.max_train, self.seed, "dataset.max_train")
        test = subset(test, self.max_test, self.seed, "dataset.max_test")
        if self.validation_part is not None:
            train, validation = self.hold_out(train, self.validation_part)
            self.validation = self.missing.applied(
                validation, "test", self.seed, self.one_hot
            )  # it stands in for the test split
        self.train = self.missing.applied(train, "train", self.seed, self.one_hot)
        self.test = self.missing.applied(test, "test", self.seed, self.one_hot)
        if self.make_binary is not None:
            self.binarise(self.make_binary)
        if self.standardise:
            self.standardisation = Scale.of(self.train, self.columns)
            self.train, self.test = self.standardisation.applied(self.train), self.standardisation.applied(self.test)
            if self.validation is not None:
                self.validation = self.standardisation.applied(self.validation)
        self.batch_size = len(self.train) if self.requested_batch_size == "full" else self.requested_batch_size
        if problem := batch_problem(self.batch_size, len(self.train)):
            raise UserError(problem)
        mask = self.train.mask
        self.num_missing, self.num_patterns = (0, 1) if mask is None else (int((~mask).sum()), count_patterns(mask))
        self.loaded = True

    def binarise(self, binary: Binary) -> None:
        """Make bits of the images of all splits."""
        check_binary(binary, self.train.storage.shape, self.binary)
        self.train = binarised(self.train, binary, "train", self.seed)
        self.test = binarised(self.test, binary, "test", self.seed)
        if self.validation is not None:
            self.validation = binarised(self.validation, binary, "validation", self.seed)
        self.binary = True

    def hold_out(self, train: Split, part: float) -> tuple[Split, Split]:
        """The training split without a random part of it, and that part, a function of the seed; groups stay whole."""
        if self.fresh:
            raise UserError("dataset.validation needs the same data in every epoch: set dataset.fresh=false")
        units = torch.arange(len(train)) if train.groups is None else train.groups.unique(return_inverse=True)[1]
        count = int(units.max()) + 1
        size = round(part * count) if is_number(part) else 0
        if not 0 < size < count:
            raise UserError(
                f"dataset.validation={part} must be a fraction that holds out some but not all of the {count} "
                f"{'training points' if train.groups is None else 'groups of training points'}, such as 0.1"
            )
        generator = torch.Generator().manual_seed(stream(self.seed, VALIDATION_STREAM))
        held_out = torch.isin(units, torch.randperm(count, generator=generator)[:size])
        return train.part((~held_out).nonzero().squeeze(1)), train.part(held_out.nonzero().squeeze(1))

    def tested_on_validation(self) -> "DataModule":
        """The same data with the validation split in place of the test split."""
        assert self.validation is not None
        twin = copy(self)
        twin.test, twin.validation, twin.test_is_train = self.validation, None, False
        return twin

    @property
    def facts(self) -> Facts:
        """What a model knows about the data before training."""
        shape, held_out = self.train.storage.shape, None if self.validation is None else self.validation.y
        target = target_of(self.train.y, self.test.y, held_out)
        return Facts(
            shape=shape,
            num_train=len(self.train),
            batch_size=self.batch_size,
            target=target,
            aux=self.aux_names if self.train.aux is not None else (),
            objects=None if self.objects is None else len(self.objects),
            group=self.group,
            group_size=self.group_size,
            complete=self.train.mask is None,
            complete_test=self.test.mask is None,
            missing=self.num_missing,
            patterns=self.num_patterns,
            binary=self.binary,
            one_hot=self.one_hot,
            levels=256 if self.train.storage.dtype == torch.uint8 else 0,
            fresh=self.fresh,
            scale="image" if len(shape) == 3 else "table",
            columns=self.columns,
            centre=() if self.standardisation is None else tuple(self.standardisation.centre.tolist()),
            spread=() if self.standardisation is None else tuple(self.standardisation.spread.tolist()),
            classes=self.classes[: target.size],  # a subset may lack the last ones
        )

    def train_dataloader(self) -> Batches:
        """Shuffled whole batches; random bits are drawn anew in every epoch."""
        sampler = ShuffledBatches(len(self.train), self.batch_size, self.seed, *self.share())
        if isinstance(self.train.storage, DrawnBits):
            return FreshBits(self.train, sampler, self.seed)
        return Batches(self.train, sampler)

    def share(self) -> tuple[int, int]:
        """The rank of this process, and the number of processes that train together."""
        trainer = self.trainer
        return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)


def target_of(train: Tensor | None, *others: Tensor | None) -> Target:
    """The kind of the targets: integers [N] are classes, counted over all splits, floats [N, P] are real numbers."""
    if train is None:
        return Target()
    if train.is_floating_point():
        return Target("real", train.shape[1])
    return Target("class", 1 + max(int(y.max()) for y in (train, *others) if y is not None))


def subset(split: Split, size: int | None, seed: int, name: str) -> Split:
    """`size` random points of a split, a function of the seed; the whole split if `size` is None."""
    if size is None:
        return split
    if problem := subset_problem(name, size, len(split)):
        raise UserError(problem)
    return split.part(torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))[:size]).in_memory()
