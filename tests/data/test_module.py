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


def test_the_validation_split_is_a_seeded_part_of_the_training_split() -> None:
    data, again, other = (loaded(validation=0.3, seed=seed) for seed in (1, 1, 2))
    assert data.validation is not None and again.validation is not None and other.validation is not None
    held_out, kept = chosen_rows(data.validation), chosen_rows(data.train)
    assert sorted([*held_out.tolist(), *kept.tolist()]) == list(range(10)) and len(held_out) == 3
    assert held_out.tolist() == sorted(held_out.tolist()) and kept.tolist() == sorted(kept.tolist())
    assert torch.equal(held_out, chosen_rows(again.validation))
    assert not torch.equal(held_out, chosen_rows(other.validation))
    assert data.facts.num_train == 7 and torch.equal(data.test.all().x, loaded().test.all().x)


def test_without_validation_nothing_changes() -> None:
    data = loaded(validation=None)
    assert data.validation is None and torch.equal(data.train.all().x, loaded().train.all().x)


def test_groups_of_the_training_split_are_held_out_whole() -> None:
    class Grouped(DataModule):
        def load(self) -> tuple[Split, Split]:
            return rows(12, groups=torch.arange(12) // 4 + 7), rows(4)

    data = Grouped(batch_size=2, validation=0.4)
    data.setup()
    assert data.validation is not None and data.validation.groups is not None and data.train.groups is not None
    assert len(data.validation) == 4 and len(data.validation.groups.unique()) == 1
    assert len(data.train.groups.unique()) == 2


def test_the_validation_split_stands_in_for_the_test_split() -> None:
    data = loaded(validation=0.3, missing={"fraction": 0.5})
    assert data.validation is not None and data.validation.hidden is not None and data.train.hidden is None
    twin = data.tested_on_validation()
    assert twin.test is data.validation and twin.validation is None
    assert data.test is not data.validation and twin.train is data.train


@pytest.mark.parametrize("part", [0.0, 1.0, 0.01, -0.5, "x", True])
def test_a_validation_split_that_cannot_be_is_an_error(part: float) -> None:
    with pytest.raises(UserError, match=r"dataset.validation=.* must be a fraction that holds out some but not all"):
        loaded(validation=part)


def test_fresh_data_have_no_validation_split() -> None:
    class Fresh(DataModule):
        fresh = True

        def load(self) -> tuple[Split, Split]:
            return rows(10), rows(4)

    with pytest.raises(UserError, match=r"dataset.validation needs the same data in every epoch"):
        Fresh(batch_size=2, validation=0.5).setup()


def test_classes_of_the_validation_split_count_too() -> None:
    class Rare(DataModule):
        def load(self) -> tuple[Split, Split]:
            return split_of(torch.zeros(9, 1), torch.arange(9)), split_of(torch.zeros(1, 1), torch.zeros(1).long())

    for seed in range(5):
        data = Rare(batch_size=2, validation=0.3, seed=seed)
        data.setup()
        assert data.facts.target == Target("class", 9)
