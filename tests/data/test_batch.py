"""Batches, and the splits that they are taken from: everything of a row goes with it, and groups stay whole."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from src.data.batch import Batch, Split, chunk_rows, split_of
from src.runs.errors import UserError
from tests.data.rows import SCALE, assert_is_gather, rows

ARRAY = np.arange(60, dtype=np.float32).reshape(20, 3)


@pytest.fixture
def mapped(tmp_path: Path) -> Callable[[np.ndarray], np.memmap]:
    """Saves an array as .npy and maps it."""

    def write(array: np.ndarray) -> np.memmap:
        np.save(tmp_path / "x.npy", array)
        return np.lib.format.open_memmap(tmp_path / "x.npy", mode="c")

    return write


def test_a_batch_is_one_gather_with_its_indices() -> None:
    assert_is_gather(rows(10)[torch.tensor([7, 0, 7])], torch.tensor([7, 0, 7]))


def test_all_is_every_row_in_order() -> None:
    assert_is_gather(rows(10).all(), torch.arange(10))


def test_labels_auxiliary_columns_and_masks_may_be_absent() -> None:
    batch = split_of(torch.zeros(3, 2))[torch.tensor([1])]
    assert batch.y is None and batch.aux is None and batch.mask is None


def test_a_batch_of_no_split_counts_its_rows() -> None:
    batch = Batch.of(torch.zeros(3, 2), aux=torch.ones(3, 1))
    assert len(batch) == 3 and batch.index.tolist() == [0, 1, 2] and batch.aux is not None and batch.y is None


def test_all_of_a_batch_moves_to_a_device() -> None:
    batch = rows(4).all()
    assert batch.to(torch.device("cpu")) is batch
    moved = batch.to(torch.device("meta"))
    for name in ("x", "index", "y", "aux", "mask"):
        assert getattr(moved, name).device.type == "meta" and getattr(moved, name).shape == getattr(batch, name).shape
    assert Batch.of(torch.zeros(3, 2)).to(torch.device("meta")).mask is None


def test_chunks_are_all_of_the_split_in_order() -> None:
    chunks = list(rows(10).chunks(4))
    assert [len(chunk) for chunk in chunks] == [4, 4, 2]
    for chunk, index in zip(chunks, torch.arange(10).split(4), strict=True):
        assert_is_gather(chunk, index)


def test_chunks_need_no_groups() -> None:
    assert [index.tolist() for index in chunk_rows(5, 2, None)] == [[0, 1], [2, 3], [4]]


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([0, 0, 0, 1, 1, 1], [[0, 1, 2], [3, 4, 5]]),  # two would be 6 points, more than 5
        ([0, 0, 1, 1, 1, 2], [[0, 1, 2, 3, 4], [5]]),  # exactly 5 points fit
        ([7, 3, 7, 3, 9, 9], [[1, 3, 0, 2], [4, 5]]),  # rows of a group need not be neighbours
        ([5, 5, 5, 5, 5, 5], [[0, 1, 2, 3, 4, 5]]),  # a group larger than a chunk
        ([0, 1, 1, 1, 1, 1], [[0], [1, 2, 3, 4, 5]]),
    ],
)
def test_groups_stay_whole(groups: list[int], expected: list[list[int]]) -> None:
    split = rows(6, torch.tensor(groups))
    chunks = list(split.chunks(5))
    assert [chunk.index.tolist() for chunk in chunks] == expected
    for chunk in chunks:
        assert_is_gather(chunk, chunk.index)


def test_67_videos_of_30_frames_are_cut_between_videos() -> None:
    videos = torch.arange(67).repeat_interleave(30)
    chunks = list(chunk_rows(len(videos), 2000, videos))
    assert [len(index) for index in chunks] == [1980, 30]
    assert torch.cat(chunks).tolist() == list(range(2010))


def test_a_draw_has_no_repetition_and_is_a_function_of_its_seed() -> None:
    first, again, other = (rows(1000).draw(100, seed) for seed in (1, 1, 2))
    assert len(first.index.unique()) == 100
    assert torch.equal(first.index, again.index) and not torch.equal(first.index, other.index)
    assert_is_gather(first, first.index)


def everything(split: Split) -> list[Tensor]:
    """All that a split knows of its points, row by row."""
    batch = split.all()
    known = [batch.x, batch.y, batch.aux, batch.mask, split.groups, split.latents]
    found = [values for values in known if values is not None]
    assert len(found) == 6 and all(len(values) == len(split) for values in found)
    return found


def test_a_part_takes_everything_of_the_same_rows() -> None:
    chosen = torch.tensor([7, 2, 5])
    part, whole = rows(10).part(chosen), rows(10)
    assert len(part) == 3
    for of_part, of_whole in zip(everything(part), everything(whole), strict=True):
        assert torch.equal(of_part, of_whole[chosen])


def test_a_part_of_a_part_counts_the_rows_of_the_part() -> None:
    once = rows(10).part(torch.tensor([8, 6, 4, 2])).part(torch.tensor([3, 0]))
    assert once.all().x.tolist() == [[2, 20], [8, 80]] and once.y is not None and once.y.tolist() == [102, 108]
    assert once.all().index.tolist() == [0, 1]


def test_a_part_shares_its_observations_and_in_memory_copies_them() -> None:
    whole = rows(10)
    part = whole.part(torch.tensor([3, 1]))
    copy = part.in_memory()
    assert part.storage.values is whole.storage.values and copy.storage.values.shape == (2, 2)
    assert all(torch.equal(a, b) for a, b in zip(everything(part), everything(copy), strict=True))
    whole.storage.values.zero_()
    assert copy.all().x.tolist() == (torch.tensor([[3], [1]]) * SCALE).tolist()


def test_rows_of_a_mapped_file_are_read(mapped: Callable[[np.ndarray], np.memmap]) -> None:
    split = split_of(mapped(ARRAY))
    assert split.storage.file is not None and len(split) == 20 and split.storage.shape == (3,)
    index = torch.tensor([19, 0, 7, 7])
    assert np.array_equal(split.storage.take(index), ARRAY[index])
    part = split.part(torch.tensor([4, 9, 2]))
    assert part.storage.file is split.storage.file
    assert np.array_equal(part.storage.take(torch.tensor([2, 1])), ARRAY[[2, 9]])
    assert part.in_memory().storage.file is None and np.array_equal(part.in_memory().all().x, ARRAY[[4, 9, 2]])


def test_values_of_a_mapped_file_are_not_touched(mapped: Callable[[np.ndarray], np.memmap]) -> None:
    """What is taken comes from the file, whatever the memory of the map holds."""
    split = split_of(mapped(ARRAY))
    split.storage.values.zero_()
    assert np.array_equal(split.all().x, ARRAY)


@pytest.mark.parametrize("part", [slice(5, None), slice(None, 5), slice(3, 9), slice(None, None, 2)])
def test_a_part_of_a_mapped_array_has_its_own_rows(mapped: Callable[[np.ndarray], np.memmap], part: slice) -> None:
    """A slice keeps the offset of the whole array, so its rows are not where the file would be read."""
    assert np.array_equal(split_of(mapped(ARRAY)[part]).all().x, ARRAY[part])


def test_a_file_that_is_cut_while_it_is_in_use(mapped: Callable[[np.ndarray], np.memmap]) -> None:
    array = mapped(ARRAY)
    split = split_of(array)
    with Path(str(array.filename)).open("r+b") as file:
        file.truncate(200)
    with pytest.raises(UserError, match=r"x.npy was shortened while it was in use"):
        split.all()
