"""Which points a step trains on is a function of seed, epoch, step and rank, from any step of an epoch on."""

from itertools import pairwise

import pytest
import torch

from src.data.sampling import Batches, ShuffledBatches
from tests.data.rows import assert_is_gather, rows


def epoch_rows(sampler: ShuffledBatches, epoch: int) -> list[list[int]]:
    sampler.set_epoch(epoch)
    return [index.tolist() for index in sampler]


def test_whole_batches_without_repetition() -> None:
    steps = epoch_rows(ShuffledBatches(10, 3, seed=0), 0)
    assert [len(step) for step in steps] == [3, 3, 3]
    assert len({row for step in steps for row in step}) == 9


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    first, again, other = (ShuffledBatches(40, 4, seed) for seed in (1, 1, 2))
    torch.manual_seed(123)  # the global generator has no part in it
    assert epoch_rows(first, 5) == epoch_rows(again, 5)
    orders = [epoch_rows(sampler, epoch) for sampler in (first, other) for epoch in range(5)]
    assert all(a != b for a, b in pairwise(sorted(orders)))


@pytest.mark.parametrize("processes", [2, 3, 4])
def test_processes_share_an_epoch_and_leave_nothing_out(processes: int) -> None:
    """12 batches of 2: the shares are disjoint, and together they are what one process would train on."""
    alone = epoch_rows(ShuffledBatches(24, 2, seed=0), 3)
    shares = [epoch_rows(ShuffledBatches(24, 2, 0, rank, processes), 3) for rank in range(processes)]
    assert {len(share) for share in shares} == {12 // processes}
    steps = [tuple(step) for share in shares for step in share]
    assert len(set(steps)) == 12 and sorted(steps) == sorted(map(tuple, alone))
    assert sorted(row for step in steps for row in step) == list(range(24))
    assert [share[0] for share in shares] == alone[:processes]  # the first step of all together


def test_all_processes_have_as_many_steps() -> None:
    samplers = [ShuffledBatches(14, 2, 0, rank, 3) for rank in range(3)]
    assert [len(sampler) for sampler in samplers] == [2, 2, 2]
    assert [len(epoch_rows(sampler, 0)) for sampler in samplers] == [2, 2, 2]


def test_batches_are_those_of_the_sampler() -> None:
    loader = Batches(rows(10), ShuffledBatches(10, 3, seed=0))
    expected = epoch_rows(ShuffledBatches(10, 3, seed=0), 0)
    assert len(loader) == 3
    for batch, step in zip(loader, expected, strict=True):
        assert_is_gather(batch, torch.tensor(step))


@pytest.mark.parametrize("done", [0, 1, 2])
def test_an_interrupted_epoch_goes_on_after_its_last_step(done: int) -> None:
    loader, resumed = (Batches(rows(10), ShuffledBatches(10, 3, seed=0)) for _ in range(2))
    whole = [batch.index.tolist() for batch in loader]
    steps = iter(loader)
    for _ in range(done):
        next(steps)
    state = loader.state_dict() if done else {"step": 0}
    assert state == {"step": done}
    resumed.load_state_dict(state)
    assert [batch.index.tolist() for batch in resumed] == whole[done:]
    assert [batch.index.tolist() for batch in resumed] == whole  # only the interrupted epoch is cut


def test_a_whole_epoch_is_followed_by_a_whole_one() -> None:
    loader, resumed = (Batches(rows(10), ShuffledBatches(10, 3, seed=0)) for _ in range(2))
    whole = [batch.index.tolist() for batch in loader]
    resumed.load_state_dict(loader.state_dict())
    assert loader.state_dict() == {"step": 3} and [batch.index.tolist() for batch in resumed] == whole


def test_the_epoch_may_be_chosen_after_the_first_step_was_asked_for() -> None:
    """A resumed Trainer calls iter() before set_epoch()."""
    sampler = ShuffledBatches(10, 3, seed=0)
    steps = iter(sampler)
    sampler.set_epoch(4)
    assert [index.tolist() for index in steps] == epoch_rows(ShuffledBatches(10, 3, seed=0), 4)
