"""Standardised columns have mean 0 and sd 1 over what training may see, and new data are treated alike."""

import pytest
import torch

from src.data.batch import Split, split_of
from src.data.facts import Facts
from src.data.module import DataModule
from src.data.standardisation import Scale, shortened
from src.runs.errors import UserError

X = torch.tensor([[1.0, 100.0], [3.0, 300.0], [5.0, float("nan")]], dtype=torch.float64)


def split(x: torch.Tensor) -> Split:
    return split_of(x, mask=~x.isnan())


class Given(DataModule):
    """Two columns of normal numbers on different scales."""

    standardise, columns = True, ("small", "large")

    def load(self) -> tuple[Split, Split]:
        x = torch.randn(60, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        x = x * torch.tensor([0.1, 50.0]) + torch.tensor([3.0, 1.6e9])
        return split_of(x[:50]), split_of(x[50:])


def test_mean_and_sd_are_those_of_the_observed_values() -> None:
    scale = Scale.of(split(X))
    assert scale.centre.tolist() == [3.0, 200.0]
    torch.testing.assert_close(scale.spread, torch.tensor([(8 / 3) ** 0.5, 100.0], dtype=torch.float64))
    x = scale.applied(split(X)).all().x
    assert x.dtype == torch.float32 and x[:2, 1].tolist() == [-1.0, 1.0] and x[2, 1].isnan()


def test_every_column_of_a_dataset_is_standardised_by_its_training_part() -> None:
    data = Given(batch_size="full", max_train=30)
    data.setup()
    x = data.train.all().x
    torch.testing.assert_close(x.mean(0), torch.zeros(2), atol=1e-5, rtol=0)  # also of 1.6e9 + noise: no digits lost
    torch.testing.assert_close(x.std(0, correction=0), torch.ones(2))
    raw = Given.load(data)[1].all().x
    centre, spread = (torch.tensor(values, dtype=torch.float64) for values in (data.facts.centre, data.facts.spread))
    torch.testing.assert_close(data.test.all().x, ((raw - centre) / spread).float())
    assert data.facts.columns == ("small", "large")


def test_values_hidden_on_purpose_do_not_count_but_are_scored_on_the_same_scale() -> None:
    data = Given(batch_size="full", missing={"fraction": 0.5, "split": "both"}, seed=3)
    data.setup()
    seen = data.train.all().x
    assert int(seen.isnan().sum()) == 50
    torch.testing.assert_close(seen.nanmean(0), torch.zeros(2), atol=1e-5, rtol=0)
    torch.testing.assert_close(seen.square().nanmean(0), torch.ones(2))
    truth = data.train.truth(torch.arange(50))
    assert truth.isfinite().all() and torch.equal(truth[data.train.mask], seen[data.train.mask])


def test_a_checkpoint_s_constants_treat_new_data_alike() -> None:
    data = Given(batch_size="full")
    data.setup()
    again = Scale.stored(Facts.from_plain(data.facts.plain()))
    assert again is not None
    assert torch.equal(again.applied(Given.load(data)[1]).all().x, data.test.all().x)
    assert Scale.stored(Facts((2,), 3, 3)) is None


@pytest.mark.parametrize("column", [[7.0, 7.0, 7.0], [0.0, 0.0, 0.0], [float("nan")] * 3, [0.1, float("nan"), 0.1]])
def test_constant_and_empty_columns_are_named(column: list[float]) -> None:
    x = torch.cat([X, torch.tensor(column, dtype=torch.float64)[:, None]], 1)
    with pytest.raises(UserError, match=r"cannot be standardised: c; leave them out .* dataset.standardise=false"):
        Scale.of(split(x), ("a", "b", "c"))
    with pytest.raises(UserError, match="cannot be standardised: number 2;"):
        Scale.of(split(x))


def test_long_lists_of_names_are_cut() -> None:
    assert shortened(["a", "b"]) == "a, b" and shortened(list("abcdefg")) == "a, b, c, d, e and 2 more"
