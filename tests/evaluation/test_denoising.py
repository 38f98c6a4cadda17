"""Denoising: what is noisy, what the model sees of it, and what is scored."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Normal

from src.data.batch import split_of
from src.evaluation.denoising import Denoising, denoise, with_noise
from src.runs.errors import UserError
from tests.evaluation.subjects import SETTINGS, Known, MadeUp, subject


def table(number: int = 400) -> MadeUp:
    train, test = (torch.randn(n, 3, generator=torch.Generator().manual_seed(n)) for n in (5, number))
    return MadeUp(split_of(train), split_of(test))


def images(number: int = 20) -> MadeUp:
    x = torch.randint(0, 256, (number, 1, 10, 10), generator=torch.Generator().manual_seed(0)).byte()
    return MadeUp(split_of(x))


class Pixels(Known):
    """Decodes an image whose pixels are all z_1."""

    def as_float(self, x: Tensor) -> Tensor:
        return x / 255 if x.dtype == torch.uint8 else x

    def decode(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Normal:
        return Normal(z[:, :1, None, None].expand(-1, 1, 10, 10), self.sd)


def test_each_row_has_noise_on_one_random_column() -> None:
    clean = table().test.all().x
    noise = with_noise(clean, 2.0, "table") - clean
    assert ((noise != 0).sum(1) == 1).all()
    assert (noise != 0).double().mean(0).tolist() == pytest.approx([1 / 3] * 3, abs=0.08)
    assert noise[noise != 0].std().item() == pytest.approx(2.0, rel=0.15)


def test_images_have_noise_on_fifty_pixels_within_their_range() -> None:
    clean = torch.full((6, 1, 40, 40), 0.5)
    noisy = with_noise(clean, 1.0, "image")
    assert ((noisy != clean).flatten(1).sum(1) == 50).all()
    assert noisy.min() == 0 and noisy.max() == 1


def test_the_model_sees_noisy_points_as_unseen_ones_and_is_scored_by_the_clean_ones() -> None:
    data = table(30)
    told = subject(Known, data, denoising=1.5)
    scores = Denoising().scores(told)
    clean, noisy, denoised = denoise(told)
    assert told.model.encoded[0] == (False, 30)
    assert torch.equal(clean, data.test.all().x)
    torch.testing.assert_close(denoised, torch.cat([noisy[:, :2], torch.zeros(30, 1)], 1))
    assert scores["denoising_rmse"] == pytest.approx((denoised - clean).square().mean().sqrt().item(), rel=1e-5)
    assert scores["noisy_rmse"] == pytest.approx((noisy - clean).square().mean().sqrt().item(), rel=1e-5)


def test_six_images_are_chosen_the_same_in_every_run() -> None:
    first, second = (denoise(subject(Pixels, images(), seed=seed, denoising=1.0)) for seed in (0, 1))
    assert first.clean.shape == (6, 1, 10, 10) and first.clean.max() <= 1
    assert torch.equal(first.clean, second.clean) and torch.equal(first.noisy, second.noisy)


def test_nothing_is_scored_unless_it_is_asked_for() -> None:
    assert (
        Denoising().scores(
            subject(
                Known,
                table(),
            )
        )
        == {}
    )
    assert list(Denoising().figures(subject(Known, table()))) == []


@pytest.mark.parametrize(("model", "data"), [(Known, table()), (Pixels, images())])
def test_the_figure_shows_clean_noisy_and_denoised_points(model: type[Known], data: MadeUp) -> None:
    ((name, figure),) = Denoising().figures(subject(model, data, denoising=1.0))
    labels = (
        [axes.get_ylabel() for axes in figure.axes]
        if model is Pixels
        else [text.get_text() for text in figure.legends[0].get_texts()]
    )
    assert name == "denoising" and set(labels) == {"clean", "noisy", "reconstruction"}


def test_incomplete_data_and_other_models_have_no_denoising() -> None:
    x = torch.zeros(4, 3)
    holes = MadeUp(split_of(x), split_of(x, mask=torch.eye(4, 3, dtype=torch.bool)))
    assert not Denoising().fits(Known(holes.facts), holes) and not Denoising().fits(object(), table())
    with pytest.raises(UserError, match="needs a model with latents, and complete test data"):
        Denoising().check(Known(holes.facts), holes, SETTINGS | {"denoising": 1.0})
    Denoising().check(Known(holes.facts), holes, SETTINGS)


@pytest.mark.parametrize("sd", [0, -1.0, True, "much"])
def test_the_noise_has_an_sd_above_zero(sd: Any) -> None:
    data = table()
    with pytest.raises(UserError, match="must be the sd of the noise, above 0"):
        Denoising().check(Known(data.facts), data, SETTINGS | {"denoising": sd})
