"""Batches carry their indices, and everything random about them is a function of seed and epoch."""

import pytest
import torch
from torch import Tensor

from src.data.module import Batch, DataModule, ShuffledBatches, Split
from src.runs.errors import UserError


class Rows(DataModule):
    """Ten training and four test samples of which everything can be told from the row."""

    def load(self) -> tuple[Split, Split]:
        return rows(10), rows(4)


def rows(num_data: int) -> Split:
    row = torch.arange(num_data)
    return Split(x=row[:, None] * torch.tensor([1, 10]), y=row + 100, aux=row[:, None] / 2)


def assert_is_gather(batch: Batch, index: Tensor) -> None:
    assert batch.y is not None and batch.aux is not None
    assert torch.equal(batch.index, index)
    assert torch.equal(batch.x, index[:, None] * torch.tensor([1, 10]))
    assert torch.equal(batch.y, index + 100)
    assert torch.equal(batch.aux, index[:, None] / 2)


def loaded(**options: int | str) -> Rows:
    data = Rows(**{"batch_size": 3, **options})  # type: ignore[arg-type]
    data.setup()
    return data


def epoch_order(data: DataModule, epoch: int) -> list[int]:
    loader = data.train_dataloader()
    assert isinstance(loader.sampler, ShuffledBatches)
    loader.sampler.set_epoch(epoch)
    return torch.cat([batch.index for batch in loader]).tolist()


def test_a_batch_is_one_gather_with_its_indices() -> None:
    assert_is_gather(rows(10)[torch.tensor([7, 0, 7])], torch.tensor([7, 0, 7]))


def test_labels_and_auxiliary_inputs_may_be_absent() -> None:
    batch = Split(torch.zeros(3, 2))[torch.tensor([1])]
    assert batch.y is None and batch.aux is None


def test_chunks_are_all_of_the_split_in_order() -> None:
    chunks = list(rows(10).chunks(4))
    assert [len(chunk.x) for chunk in chunks] == [4, 4, 2]
    for chunk, index in zip(chunks, torch.arange(10).split(4), strict=True):
        assert_is_gather(chunk, index)


def test_a_draw_has_no_repetition_and_is_a_function_of_its_seed() -> None:
    first, again, other = (rows(1000).draw(100, seed).index for seed in (1, 1, 2))
    assert len(first.unique()) == 100
    assert torch.equal(first, again) and not torch.equal(first, other)


def test_the_loader_yields_whole_batches_that_are_gathers() -> None:
    data = loaded()
    batches = list(data.train_dataloader())
    assert [len(batch.x) for batch in batches] == [3, 3, 3] and len(data.train_dataloader()) == 3
    for batch in batches:
        assert_is_gather(batch, batch.index)
    assert len({row for batch in batches for row in batch.index.tolist()}) == 9


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    data, again, other = loaded(seed=1), loaded(seed=1), loaded(seed=2)
    torch.manual_seed(123)  # the global generator has no part in it
    assert epoch_order(data, 0) == epoch_order(again, 0)
    assert epoch_order(data, 5) == epoch_order(again, 5)
    assert len({tuple(epoch_order(data, epoch)) for epoch in range(5)}) == 5
    assert epoch_order(data, 0) != epoch_order(other, 0)


def test_a_subset_is_seeded_and_keeps_samples_together() -> None:
    data, again, other = (loaded(max_train=5, max_test=2, seed=seed) for seed in (1, 1, 3))
    assert len(data.train) == 5 and len(data.test) == 2
    assert torch.equal(data.train.x, again.train.x) and not torch.equal(data.train.x, other.train.x)
    assert data.train.y is not None and torch.equal(data.train.x[:, 0] + 100, data.train.y)


@pytest.mark.parametrize("options", [{"max_train": 11}, {"max_train": 0}, {"max_test": 5}])
def test_a_subset_that_cannot_be_filled_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(UserError, match=f"dataset.{next(iter(options))}="):
        loaded(**options)


@pytest.mark.parametrize("options", [{"batch_size": 11}, {"batch_size": 0}, {"batch_size": 6, "max_train": 5}])
def test_a_batch_that_cannot_be_filled_is_refused(options: dict[str, int]) -> None:
    with pytest.raises(UserError, match=r"dataset\.batch_size=\d+ must lie between 1 and the"):
        loaded(**options)


def test_a_full_batch_takes_them_all() -> None:
    data = loaded(batch_size="full")
    assert data.batch_size == 10 and len(data.train_dataloader()) == 1
    assert data.shape == (2,)


def test_setup_loads_once() -> None:
    data = loaded()
    train = data.train
    data.setup("fit")
    assert data.train is train
