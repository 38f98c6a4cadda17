"""What a run leaves for the report is what its model encodes and decodes, to the quantisation of a byte."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from src.data.batch import split_of
from src.data.images import Digits
from src.data.module import DataModule
from src.data.moving_ball import MovingBall
from src.evaluation import latent_space
from src.evaluation.latent_space import LatentSpace, as_bytes
from src.evaluation.task import Arrays, Subject
from src.models.sampling import latents
from src.runs.randomness import stream
from tests.evaluation.subjects import SETTINGS, Known, MadeUp, built, noisy_curve, subject

SMALL = "active_set.size=20"


@torch.no_grad()
def kept(data: DataModule, model: Any) -> Arrays:
    return LatentSpace().artifacts(Subject(model, data, SETTINGS))


def digits(*overrides: str) -> tuple[Digits, Any]:
    data = Digits(batch_size=64)
    return data, built(data, SMALL, *overrides)


@torch.no_grad()
def test_points_are_a_fixed_part_of_the_test_data_with_their_reconstructions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latent_space, "MAX_POINTS", 50)
    data, model = digits("model=sas")
    arrays, y, x = kept(data, model), data.test.y, data.test.all().x
    assert y is not None and arrays["z"].shape == (50, 2) and arrays["images"].shape == (50, 1, 8, 8)
    for i in (0, 49):
        image = torch.from_numpy(arrays["images"][i])
        row = int((x * 255).round().to(torch.uint8).eq(image).flatten(1).all(1).nonzero()[0])
        z = model.encode(data.test[torch.tensor([row])], seen=False).mean
        mean = model.decode(z).mean
        np.testing.assert_allclose(arrays["z"][i], z[0], atol=1e-6)
        assert arrays["labels"][i] == y[row]
        assert arrays["error"][i] == pytest.approx((mean - x[row]).square().mean().sqrt().item())
        assert (mean[0].clamp(0, 1) * 255 - torch.from_numpy(arrays["reconstructions"][i])).abs().max() <= 0.51
    again = kept(data, model)
    assert all(np.array_equal(arrays[key], again[key]) for key in arrays)


@torch.no_grad()
@pytest.mark.parametrize("name", ["sas", "vae"])
def test_the_grid_is_decoded_where_it_says(name: str) -> None:
    data, model = digits(f"model={name}")
    arrays = kept(data, model)
    across, up = arrays["grid_across"], arrays["grid_up"]
    assert len(across) == len(up) == 32 and across[0] < arrays["z"][:, 0].min() and up[-1] > arrays["z"][:, 1].max()
    for row, column in ((0, 0), (3, 17), (31, 8)):
        p = model.decode(torch.tensor([[across[column], up[row]]]))
        assert (p.mean[0].clamp(0, 1) * 255 - torch.from_numpy(arrays["grid_mean"][row, column])).abs().max() <= 0.51
        assert arrays["grid_sd"][row, column] == pytest.approx(p.stddev.expand_as(p.mean).mean().item(), rel=1e-4)
    assert "grid_sd_images" not in arrays  # one sd for all pixels


def test_a_plane_has_a_grid_and_other_spaces_have_none() -> None:
    arrays = kept(*digits("model=vae", "model.latent_dim=3"))
    assert arrays["z"].shape[1] == 3 and not [key for key in arrays if key.startswith("grid")]


@torch.no_grad()
@pytest.mark.parametrize("name", ["vae", "sas"])
def test_samples_are_drawn_where_the_grid_is_a_slice(name: str) -> None:
    """Of N(0, I), or of the density of the latents that a model carries."""
    data, model = digits(f"model={name}", "model.latent_dim=3")
    drawn: dict[str, Any] = dict(LatentSpace().figures(Subject(model, data, SETTINGS)))
    z = latents(model, 60, None, torch.Generator().manual_seed(stream(0, 60))).float()
    picture = drawn["samples"].axes[0].images[0].get_array()
    assert picture.shape == (3 * 8, 20 * 8)
    image = model.decode(z).mean[21, 0].clamp(0, 1)  # the second of the second row
    np.testing.assert_allclose(picture[8:16, 8:16], image, atol=1e-5)


@torch.no_grad()
def test_a_plane_and_vectors_have_no_samples() -> None:
    vectors = MadeUp(split_of(noisy_curve()))
    for data, model in (digits("model=vae"), (vectors, built(vectors, "model=sas", SMALL, "model.latent_dim=3"))):
        figures = LatentSpace().figures(Subject(model, data, SETTINGS))
        assert [name for name, _ in figures] == ["latent_map", "decoded_grid"]


def test_vectors_are_scaled_to_their_range() -> None:
    data = MadeUp(split_of(noisy_curve()))
    arrays, x = kept(data, built(data, "model=sas", SMALL)), data.test.all().x
    low, high = arrays["range"]
    assert (low, high) == (x.min(), x.max()) and "labels" not in arrays
    values = low + arrays["images"] / 255 * (high - low)
    nearest = np.abs(values[:, None] - x.numpy()).max(-1).min(1)
    assert nearest.max() <= 0.51 * (high - low) / 255


def test_large_images_are_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latent_space, "MAX_VALUES", 64 * 200)
    arrays = kept(*digits("model=vae"))
    assert len(arrays["z"]) == 200 and arrays["grid_mean"].shape[:2] == (10, 10)


def test_bits_have_an_sd_of_their_own() -> None:
    data = MovingBall(batch_videos=2, num_train_videos=4, num_test_videos=6)
    arrays = kept(data, built(data, "model=gp_vae", "dataset=moving_ball"))
    assert arrays["grid_sd_images"].shape == arrays["grid_mean"].shape
    assert arrays["grid_sd_range"].tolist() == [0, pytest.approx(0.5, abs=0.1)]


KNOWN = torch.tensor([[0.0, 1.0, 0.5], [1.0, 0.0, -0.5], [2.0, 2.0, 2.0]])


def test_errors_by_hand_in_the_order_of_the_points() -> None:
    """The third value of a reconstruction is 0."""
    arrays = kept(MadeUp(split_of(KNOWN)), Known(MadeUp(split_of(KNOWN)).facts))
    assert arrays["range"].tolist() == [-0.5, 2.0]
    for z, error in zip(arrays["z"].tolist(), arrays["error"], strict=True):
        third = {0.0: 0.5, 1.0: 0.5, 2.0: 2.0}[z[0]]
        assert error == pytest.approx(third / math.sqrt(3))


def test_missing_values_count_in_nothing() -> None:
    x = KNOWN.clone()
    x[0, 0] = x[2, 2] = math.nan

    class Filled(Known):
        def encode(self, batch: Any, seen: bool) -> Any:
            batch.x = KNOWN[batch.index]
            return super().encode(batch, seen)

    data = MadeUp(split_of(x, mask=~x.isnan()))
    arrays = kept(data, Filled(data.facts))
    assert arrays["range"].tolist() == [-0.5, 2.0] and arrays["images"].dtype == np.uint8
    for z, error in zip(arrays["z"].tolist(), arrays["error"], strict=True):
        assert error == pytest.approx({0.0: 0.5 / math.sqrt(2), 1.0: 0.5 / math.sqrt(3), 2.0: 0.0}[z[0]])


def test_incomplete_points_keep_what_was_seen_and_the_hidden_truth() -> None:
    """Predictions of the third value are 0; of two of the points it is hidden, of one it is missing anyway."""
    x = KNOWN.clone()
    x[2, 2] = math.nan
    mask = torch.tensor([[True, True, False]]).expand(3, 3)
    hidden = torch.tensor([[False, False, True], [False, False, True], [False, False, False]])
    data = MadeUp(split_of(KNOWN), split_of(x, mask=mask, hidden=hidden))
    arrays = kept(data, Known(data.facts))
    seen = np.unpackbits(arrays["seen"], axis=1, count=3).astype(bool)
    assert (seen == mask.numpy()).all() and arrays["range"].tolist() == [0.0, 2.0]
    for z, error, truth in zip(arrays["z"].tolist(), arrays["hidden_error"], arrays["truth"], strict=True):
        assert error == {0.0: 0.5, 1.0: 0.5, 2.0: 0.0}[z[0]]
        assert truth[0] == round(z[0] / 2 * 255) and truth[2] == (64 if z[0] == 0 else 0)
    without = kept(MadeUp(split_of(KNOWN), split_of(x, mask=mask)), Known(data.facts))
    assert "seen" in without and "truth" not in without
    assert "seen" not in kept(MadeUp(split_of(KNOWN)), Known(data.facts))


@pytest.mark.parametrize(
    ("y", "coloured"), [(torch.tensor([0, 1, 1]), True), (torch.zeros(3, 1), False), (None, False)]
)
def test_only_classes_are_labels(y: Tensor | None, coloured: bool) -> None:
    known = subject(Known, MadeUp(split_of(KNOWN, y)))
    assert ("labels" in LatentSpace().artifacts(known)) == coloured
    figures = dict(LatentSpace().figures(known))
    assert list(figures) == ["latent_map", "decoded_grid"]
    assert bool(figures["latent_map"].legends) == coloured
    assert "Known, 3 test points" in figures["latent_map"].axes[0].get_title()


def test_classes_have_names_if_the_data_name_them() -> None:
    data = MadeUp(split_of(KNOWN, torch.tensor([0, 2, 1])))
    assert "classes" not in LatentSpace().artifacts(subject(Known, data))
    data.classes = ("cat", "dog", "elk")
    known = subject(Known, data)
    assert LatentSpace().artifacts(known)["classes"].tolist() == ["cat", "dog", "elk"]
    figure = dict(LatentSpace().figures(known))["latent_map"]
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["cat", "dog", "elk"]


def test_bytes_are_the_nearest_of_256_levels() -> None:
    x = torch.tensor([-5.0, -1.0, -0.9961, 0.0, 1.0, 9.0, math.nan])
    assert as_bytes(x, (-1.0, 1.0)).tolist() == [0, 0, 0, 128, 255, 255, 0]
    assert as_bytes(torch.ones(2), (1.0, 1.0)).tolist() == [0, 0]


def test_it_takes_any_model_with_latents(tmp_path: Path) -> None:
    data = MadeUp(split_of(KNOWN))
    assert LatentSpace().fits(Known(data.facts), data) and not LatentSpace().fits(object(), data)
