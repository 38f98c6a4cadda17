"""What every dataset shares: seeded subsets that keep points together, whole batches, and the facts of the data."""

import pytest
import torch
from torch import Tensor

from src.data.batch import Split, split_of
from src.data.facts import Target
from src.data.module import DataModule, target_of
from src.data.sampling import ShuffledBatches
from src.runs.errors import UserError
from tests.data.rows import assert_is_gather, loaded, rows


def epoch_order(data: DataModule, epoch: int) -> list[int]:
    loader = data.train_dataloader()
    assert isinstance(loader.sampler, ShuffledBatches)
    loader.sampler.set_epoch(epoch)
    return torch.cat([batch.index for batch in loader]).tolist()


def test_the_loader_yields_whole_batches_that_are_gathers() -> None:
    data = loaded()
    batches = list(data.train_dataloader())
    assert [len(batch) for batch in batches] == [3, 3, 3] and len(data.train_dataloader()) == 3
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


def chosen_rows(split: Split) -> Tensor:
    """The rows of the whole split that a subset has, by its observations; everything else must be of the same rows."""
    row = split.all().x[:, 0]
    assert split.y is not None and split.aux is not None and split.mask is not None
    assert split.groups is not None and split.latents is not None
    assert torch.equal(split.y, row + 100) and torch.equal(split.aux, row[:, None] / 2)
    assert torch.equal(split.mask[:, 0], row % 2 == 0) and torch.equal(split.groups, row + 1000)
    assert torch.equal(split.latents, -row[:, None])
    return row


def test_a_subset_is_seeded_and_keeps_points_together() -> None:
    data, again, other = (loaded(max_train=5, max_test=2, seed=seed) for seed in (1, 1, 3))
    assert len(data.train) == 5 and len(data.test) == 2
    first, same, different = (chosen_rows(d.train) for d in (data, again, other))
    assert len(first.unique()) == 5 and first.tolist() != list(range(5)) and len(chosen_rows(data.test)) == 2
    assert torch.equal(first, same) and not torch.equal(first, different)
    assert len(data.train.storage.values) == 5  # copied: the whole array can be forgotten


@pytest.mark.parametrize("options", [{"max_train": 11}, {"max_train": 0}, {"max_test": 5}])
def test_a_subset_that_cannot_be_filled_is_an_error(options: dict[str, int]) -> None:
    with pytest.raises(UserError, match=f"dataset.{next(iter(options))}="):
        loaded(**options)


@pytest.mark.parametrize("options", [{"batch_size": 11}, {"batch_size": 0}, {"batch_size": 6, "max_train": 5}])
def test_a_batch_that_cannot_be_filled_is_an_error(options: dict[str, int]) -> None:
    with pytest.raises(UserError, match=r"dataset\.batch_size=\d+ must lie between 1 and the"):
        loaded(**options)


def test_a_full_batch_takes_them_all() -> None:
    data = loaded(batch_size="full")
    assert data.batch_size == 10 and len(data.train_dataloader()) == 1
    assert data.facts.batch_size == 10


def test_setup_loads_once() -> None:
    data = loaded()
    train = data.train
    data.setup("fit")
    assert data.train is train


def test_the_facts_are_those_of_the_splits() -> None:
    facts = loaded(max_train=7).facts
    assert facts.shape == (2,) and facts.num_train == 7 and facts.batch_size == 3
    assert facts.scale == "table" and not facts.complete and not facts.fresh and facts.objects is None


@pytest.mark.parametrize("masked", [0, 1])
def test_a_mask_makes_its_split_incomplete_and_no_other(masked: int) -> None:
    class Missing(DataModule):
        def load(self) -> tuple[Split, Split]:
            splits = [split_of(torch.zeros(4, 2)), split_of(torch.zeros(4, 2))]
            splits[masked] = rows(4)
            return splits[0], splits[1]

    data = Missing(batch_size=2)
    data.setup()
    assert (data.facts.complete, data.facts.complete_test) == (masked == 1, masked == 0)


def test_targets_are_none_classes_or_reals() -> None:
    assert target_of(None, None) == Target("none", 0)
    assert target_of(torch.tensor([0, 4, 2]), None) == Target("class", 5)
    assert target_of(torch.zeros(3, 2), torch.zeros(1, 2)) == Target("real", 2)


def test_classes_of_the_test_split_count_too() -> None:
    """A model that predicts P classes must be able to score each class that it is tested on."""
    assert target_of(torch.tensor([0, 1]), torch.tensor([2, 0])) == Target("class", 3)
