"""Hidden values: the right number at the right places, a function of the seed, and nowhere to be seen in a batch."""

from typing import Any

import pytest
import torch

from src.data.batch import Split, split_of
from src.data.missing import Missing, blocks, scattered
from src.data.module import DataModule
from src.runs.errors import UserError


class Images(DataModule):
    """Twelve training and six test images in colour, as floats or bytes."""

    def __init__(self, dtype: torch.dtype = torch.float32, nan: bool = False, **options: Any) -> None:
        super().__init__(batch_size=4, **options)
        self.dtype, self.nan = dtype, nan

    def load(self) -> tuple[Split, Split]:
        x = torch.rand(18, 3, 4, 8, generator=torch.Generator().manual_seed(0))
        if self.dtype == torch.uint8:
            x = (200 * x + 50).to(torch.uint8)
        if not self.nan:
            return split_of(x[:12]), split_of(x[12:])
        mask = torch.ones(18, 3, 4, 8, dtype=torch.bool)
        mask[:, :, 0, 0] = False
        x[~mask] = torch.nan
        return split_of(x[:12], mask=mask[:12]), split_of(x[12:], mask=mask[12:])


def loaded(**options: Any) -> Images:
    data = Images(**options)
    data.setup()
    return data


HALF = {"fraction": 0.5}


def test_nothing_is_hidden_unless_asked_for() -> None:
    data = loaded(missing={"fraction": None, "kind": None, "split": None})
    assert data.train.mask is None and data.test.mask is None and data.facts.complete and data.facts.complete_test


@pytest.mark.parametrize(("split", "train", "test"), [(None, 0, 1), ("test", 0, 1), ("train", 1, 0), ("both", 1, 1)])
def test_values_are_hidden_in_the_part_that_was_named(split: str | None, train: bool, test: bool) -> None:
    data = loaded(missing={**HALF, "split": split})
    assert (data.train.hidden is not None, data.test.hidden is not None) == (train, test)
    assert (data.facts.complete, data.facts.complete_test) == (not train, not test)


@pytest.mark.parametrize("fraction", [0.1, 0.5, 150 / 256, 1.0])
def test_scattered_hides_the_same_number_of_random_pixels_of_each_image(fraction: float) -> None:
    hidden = scattered(5000, (3, 16, 16), fraction, torch.Generator().manual_seed(0))
    assert (hidden.flatten(1).sum(1) == 3 * round(fraction * 256)).all()
    assert torch.equal(hidden[:, 0], hidden[:, 2])  # a pixel with all its channels
    share = hidden[:, 0].float().mean(0)  # every pixel equally often, up to five standard errors
    assert ((share - share.mean()).abs() <= 5 * (share.mean() * (1 - share.mean()) / 5000).sqrt()).all()


def test_a_block_is_whole_inside_the_image_and_at_all_its_places() -> None:
    hidden = blocks(2000, (1, 28, 28), 0.25, torch.Generator().manual_seed(0))[:, 0]
    rows, columns = hidden.any(2), hidden.any(1)
    assert (hidden == rows.unsqueeze(2) & columns.unsqueeze(1)).all()  # a rectangle
    for lines in (rows, columns):
        first = lines.float().argmax(1)
        assert (lines.sum(1) == 14).all() and set(first.tolist()) == set(range(15))
        assert (lines == (torch.arange(28) >= first[:, None]) & (torch.arange(28) < first[:, None] + 14)).all()


def test_a_block_of_a_vector_is_a_run_of_columns() -> None:
    hidden = blocks(500, (10,), 0.3, torch.Generator().manual_seed(0))
    starts = hidden.float().argmax(1)
    assert set(starts.tolist()) == set(range(8))
    assert torch.equal(hidden, (torch.arange(10) >= starts[:, None]) & (torch.arange(10) < starts[:, None] + 3))


def test_hidden_values_are_a_function_of_the_seed_and_differ_between_the_splits() -> None:
    first, again, other = (loaded(missing={**HALF, "split": "both"}, seed=seed) for seed in (1, 1, 2))
    for part in ("train", "test"):
        masks = [getattr(data, part).hidden for data in (first, again, other)]
        assert torch.equal(masks[0], masks[1]) and not torch.equal(masks[0], masks[2])
    assert first.train.hidden is not None and first.test.hidden is not None
    assert not torch.equal(first.train.hidden[:6], first.test.hidden)


@pytest.mark.parametrize("dtype", [torch.float32, torch.uint8])
def test_a_batch_has_no_hidden_value_and_the_truth_has_them_all(dtype: torch.dtype) -> None:
    open_, data = loaded(dtype=dtype), loaded(dtype=dtype, missing=HALF)
    index = torch.tensor([5, 0, 2])
    batch, whole = data.test[index], open_.test[index].x
    assert batch.mask is not None and data.test.hidden is not None
    assert torch.equal(batch.mask, ~data.test.hidden[index])
    assert torch.equal(batch.x[batch.mask], whole[batch.mask])
    blank = batch.x[~batch.mask]
    assert blank.isnan().all() if dtype == torch.float32 else (blank == 0).all()
    assert torch.equal(data.test.truth(index), whole)


def test_values_that_nobody_knows_are_missing_but_not_hidden() -> None:
    data = loaded(nan=True, missing={"fraction": 1.0})
    assert data.test.mask is not None and data.test.hidden is not None
    assert not data.test.mask.any() and not data.test.hidden[:, :, 0, 0].any()
    assert data.test.hidden.sum() == 6 * 3 * 31


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"kind": "block"}, "needs a fraction of the values to hide, as in dataset.missing.fraction=0.5"),
        ({"fraction": 0}, r"dataset.missing.fraction=0 must lie above 0 and not above 1"),
        ({"fraction": 1.5}, r"dataset.missing.fraction=1.5 must lie"),
        ({"fraction": "half"}, r"dataset.missing.fraction=half must lie"),
        ({"fraction": 0.5, "kind": "stripes"}, "dataset.missing.kind=stripes must be random or block"),
        ({"fraction": 0.5, "split": "all"}, "dataset.missing.split=all must be train, test, both"),
    ],
)
def test_a_wrong_option_is_an_error(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Missing(**options)


def test_the_facts_count_what_was_observed_and_the_patterns_of_what_was_not() -> None:
    complete, data, blind = loaded(), loaded(missing={**HALF, "split": "train"}), loaded(nan=True)
    assert data.train.mask is not None
    columns = data.train.mask.flatten(1).mT
    assert data.facts.observed == int(data.train.mask.sum()) == 12 * 3 * 16
    assert data.facts.patterns == len(columns.unique(dim=0)) > 16
    assert (complete.facts.observed, complete.facts.patterns) == (12 * 3 * 32, 1)
    assert (blind.facts.observed, blind.facts.patterns) == (12 * 3 * 31, 2)


def test_fresh_training_data_have_nothing_to_hide() -> None:
    data = Images(missing={**HALF, "split": "train"})
    data.fresh = True
    with pytest.raises(UserError, match=r"needs the same data in every epoch: set dataset.fresh=false"):
        data.setup()
