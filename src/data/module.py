"""What every dataset shares: a dataset is a subclass of `DataModule` with one method, `load`."""

from typing import ClassVar, Literal

import torch
from pytorch_lightning import LightningDataModule
from torch import Tensor

from src.data.batch import Split
from src.data.facts import Facts, Target
from src.data.sampling import Batches, ShuffledBatches
from src.runs.errors import UserError


class DataModule(LightningDataModule):
    """Two splits and the facts about them; `max_train` and `max_test` take a seeded subset of each."""

    aux_names: ClassVar[tuple[str, ...]] = ()  # of the auxiliary columns
    group: ClassVar[str | None] = None  # the auxiliary column whose points stay together
    group_size: ClassVar[int | None] = None  # points per group
    binary: ClassVar[bool] = False  # True if every value is 0 or 1
    fresh: bool = False  # True if training batches are made anew and are not rows of `train`
    objects: Tensor | None = None  # [objects, *shape], one picture of each object that the column `object` counts

    def __init__(
        self,
        batch_size: int | Literal["full"],
        max_train: int | None = None,
        max_test: int | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.requested_batch_size, self.max_train, self.max_test, self.seed = batch_size, max_train, max_test, seed
        self.loaded = False

    def load(self) -> tuple[Split, Split]:
        """The whole training and test split."""
        raise NotImplementedError

    def setup(self, stage: str | None = None) -> None:
        """Load once, cut to size, and check that a batch can be filled."""
        if self.loaded:
            return
        train, test = self.load()
        self.train = subset(train, self.max_train, self.seed, "dataset.max_train")
        self.test = subset(test, self.max_test, self.seed, "dataset.max_test")
        self.batch_size = len(self.train) if self.requested_batch_size == "full" else self.requested_batch_size
        if not 1 <= self.batch_size <= len(self.train):
            raise UserError(
                f"dataset.batch_size={self.batch_size} must lie between 1 and the {len(self.train)} training points "
                "(dataset.batch_size=full takes them all)"
            )
        self.loaded = True

    @property
    def facts(self) -> Facts:
        """What models may know about these data before they see any."""
        shape = self.train.storage.shape
        return Facts(
            shape=shape,
            num_train=len(self.train),
            batch_size=self.batch_size,
            target=target_of(self.train.y, self.test.y),
            aux=self.aux_names if self.train.aux is not None else (),
            objects=None if self.objects is None else len(self.objects),
            group=self.group,
            group_size=self.group_size,
            complete=self.train.mask is None and self.test.mask is None,
            binary=self.binary,
            fresh=self.fresh,
            scale="image" if len(shape) == 3 else "table",
        )

    def train_dataloader(self) -> Batches:
        """Shuffled whole batches."""
        return Batches(self.train, ShuffledBatches(len(self.train), self.batch_size, self.seed, *self.share()))

    def share(self) -> tuple[int, int]:
        """This process among all that train together: its rank, and how many there are."""
        trainer = self.trainer
        return (0, 1) if trainer is None else (trainer.global_rank, trainer.world_size)


def target_of(train: Tensor | None, test: Tensor | None) -> Target:
    """Class ids are integers [N], real targets floats [N, P]. Classes that only the test split has count too."""
    if train is None:
        return Target()
    if train.is_floating_point():
        return Target("real", train.shape[1])
    return Target("class", 1 + max(int(y.max()) for y in (train, test) if y is not None))


def subset(split: Split, size: int | None, seed: int, name: str) -> Split:
    """`size` random points of a split, the same for the same seed; all of it for None."""
    if size is None:
        return split
    if not 1 <= size <= len(split):
        raise UserError(f"{name}={size} must lie between 1 and the {len(split)} points there are")
    return split.part(torch.randperm(len(split), generator=torch.Generator().manual_seed(seed))[:size]).in_memory()
