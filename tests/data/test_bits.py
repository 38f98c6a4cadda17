"""Bits from grey images: the threshold, fresh draws in training, fixed draws elsewhere."""

from typing import Any

import pytest
import torch
from torch import Tensor

from src.data.batch import Batch, Split, split_of
from src.data.bits import FreshBits
from src.data.module import DataModule
from src.runs.errors import UserError

BYTES = torch.arange(256, dtype=torch.uint8).repeat(40, 1).view(40, 1, 16, 16)


class Greys(DataModule):
    """The same ramp of intensities in every image."""

    def __init__(self, x: Tensor = BYTES, mask: Tensor | None = None, **options: Any) -> None:
        super().__init__(**({"batch_size": 10} | options))
        self.x, self.mask = x, mask

    def load(self) -> tuple[Split, Split]:
        return split_of(self.x[:30], mask=self.mask), split_of(self.x[30:])


def greys(**options: Any) -> Greys:
    data = Greys(**options)
    data.setup()
    return data


def epoch(data: DataModule, number: int, start: int = 0) -> list[Batch]:
    loader = data.train_dataloader()
    loader.sampler.set_epoch(number)
    loader.load_state_dict({"step": start})
    return list(loader)


def test_a_threshold_of_one_half() -> None:
    data = greys(binary=True)
    assert data.facts.binary and not isinstance(data.train_dataloader(), FreshBits)
    for split in (data.train, data.test):
        x = split.all().x
        assert x.dtype == torch.uint8 and torch.equal(x, (BYTES[: len(x)] > 127).byte() * 255)
    floats = greys(x=BYTES / 255, binary=True).test.all().x
    assert floats.dtype == torch.float32 and torch.equal(floats * 255, data.test.all().x.float())


def test_without_the_option_nothing_changes() -> None:
    data = greys()
    assert torch.equal(data.train.all().x, BYTES[:30]) and not data.facts.binary


@pytest.mark.parametrize("scale", [1, 255])
def test_draws_have_the_intensities_as_their_means(scale: int) -> None:
    data = greys(x=BYTES if scale == 1 else BYTES / 255, binary="stochastic", batch_size=30)
    assert data.facts.binary
    bits = torch.cat([batch.x * scale / 255 for number in range(40) for batch in epoch(data, number)])
    assert set(bits.unique().tolist()) == {0.0, 1.0} and len(bits) == 1200
    assert (bits.float().mean((0, 1)).flatten() - torch.arange(256) / 255).abs().max() < 5 * 0.5 / 1200**0.5


def test_training_draws_are_fresh_in_every_epoch_and_a_function_of_seed_epoch_and_step() -> None:
    data, again, other = (greys(binary="stochastic", seed=seed) for seed in (1, 1, 2))
    first = epoch(data, 0)
    torch.manual_seed(3)  # the global generator has no part in it
    for batch, same in zip(first, epoch(again, 0), strict=True):
        assert torch.equal(batch.x, same.x) and torch.equal(batch.index, same.index)
    for different in (epoch(data, 1), epoch(other, 0)):
        assert all(not torch.equal(batch.x, another.x) for batch, another in zip(first, different, strict=True))
    assert not torch.equal(first[0].x, first[1].x)
    resumed = epoch(again, 0, start=2)
    assert len(resumed) == 1 and torch.equal(resumed[0].x, first[2].x)


def test_everything_but_training_sees_one_draw() -> None:
    data, other = (greys(binary="stochastic", validation=0.2, seed=seed) for seed in (1, 2))
    assert torch.equal(data.test.all().x, data.test.all().x)
    assert torch.equal(data.test.all().x, other.test.all().x)  # the same test for all seeds
    assert data.validation is not None and data.validation.all().x.unique().tolist() == [0, 255]
    assert torch.equal(data.train[torch.tensor([3, 5])].x, data.train.all().x[[3, 5]])
    assert not torch.equal(data.train.all().x, other.train.all().x)


@pytest.mark.parametrize("binary", [True, "stochastic"])
def test_missing_values_stay_missing(binary: Any) -> None:
    x, mask = BYTES / 255, torch.ones(30, 1, 16, 16, dtype=torch.bool)
    x[:, 0, 2, 5], mask[:, 0, 2, 5] = float("nan"), False
    data = greys(x=x, mask=mask, binary=binary, missing={"fraction": 0.25, "split": "both"})
    for batch in (*epoch(data, 0), data.train.all()):
        assert batch.mask is not None
        assert batch.x[~batch.mask].isnan().all() and set(batch.x[batch.mask].tolist()) == {0.0, 1.0}
    truth = data.test.truth(torch.arange(10))
    assert truth[:, 0, 2, 5].isnan().all() and truth.isnan().sum() == 10


class AlreadyBits(Greys):
    binary = True


def test_what_has_no_bits_is_refused() -> None:
    with pytest.raises(UserError, match=r"dataset\.binary=maybe must be true"):
        greys(binary="maybe")
    with pytest.raises(UserError, match=r"dataset\.binary=true makes bits of images, but these data are vectors"):
        greys(x=BYTES.flatten(1), binary=True)
    with pytest.raises(UserError, match=r"dataset\.binary=stochastic needs intensities from 0 to 1"):
        greys(x=BYTES.float(), binary="stochastic")
    already = AlreadyBits(binary=True)
    with pytest.raises(UserError, match=r"dataset\.binary=true has no effect"):
        already.setup()
