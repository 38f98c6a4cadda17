"""What a run leaves for the report is what its model encodes and decodes, to the quantisation of a byte."""

from pathlib import Path

import numpy as np
import pytest
import torch

from src.data.images import Digits
from src.data.module import DataModule
from src.data.moving_ball import MovingBall
from src.evaluation import explorer
from src.evaluation.metrics import latent_means
from tests.models.builders import Given, noisy_curve, started
from tests.models.rotated import OBJECTS, small_rotated_mnist

SMALL = ["active_set.size=20"]


def written(data: DataModule, model: explorer.Decoder, path: Path) -> dict[str, np.ndarray]:
    explorer.write(model.eval(), data, latent_means(model, data.test, seen=False), path / "explorer.npz")
    with np.load(path / "explorer.npz") as arrays:
        return dict(arrays)


def digits(*overrides: str) -> tuple[Digits, explorer.Decoder]:
    data = Digits(batch_size=64)
    model = started(data, *SMALL, *overrides)
    return data, model


@torch.no_grad()
def test_points_are_a_fixed_part_of_the_test_data_with_their_reconstructions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explorer, "MAX_POINTS", 50)
    data, model = digits("model=sas")
    arrays, y = written(data, model, tmp_path), data.test.y
    assert y is not None and arrays["z"].shape == (50, 2) and arrays["images"].shape == (50, 1, 8, 8)
    for i in (0, 49):
        (row,) = (
            (data.test.x * 255)
            .round()
            .to(torch.uint8)
            .eq(torch.from_numpy(arrays["images"][i]))
            .flatten(1)
            .all(1)
            .nonzero()[0]
        )
        z = model.encode(data.test.x[row : row + 1]).mean
        mean = model.decode(z).mean
        np.testing.assert_allclose(arrays["z"][i], z[0], atol=1e-6)
        assert arrays["labels"][i] == y[row]
        assert arrays["error"][i] == pytest.approx(
            (mean - model.as_float(data.test.x[row])).square().mean().sqrt().item()
        )
        assert (mean[0].clamp(0, 1) * 255 - torch.from_numpy(arrays["reconstructions"][i])).abs().max() <= 0.51
    again = written(data, model, tmp_path)
    assert all(np.array_equal(arrays[key], again[key]) for key in arrays)


@torch.no_grad()
@pytest.mark.parametrize("name", ["sas", "vae"])
def test_the_grid_is_decoded_where_it_says(name: str, tmp_path: Path) -> None:
    data, model = digits(f"model={name}")
    arrays = written(data, model, tmp_path)
    across, up = arrays["grid_across"], arrays["grid_up"]
    assert len(across) == len(up) == 32 and across[0] < arrays["z"][:, 0].min() and up[-1] > arrays["z"][:, 1].max()
    for row, column in ((0, 0), (3, 17), (31, 8)):
        p = model.decode(torch.tensor([[across[column], up[row]]]))
        assert (p.mean[0].clamp(0, 1) * 255 - torch.from_numpy(arrays["grid_mean"][row, column])).abs().max() <= 0.51
        assert arrays["grid_sd"][row, column] == pytest.approx(p.stddev.expand_as(p.mean).mean().item(), rel=1e-4)
    assert "grid_sd_images" not in arrays  # one sd for all pixels


@torch.no_grad()
def test_a_plane_has_a_grid_and_other_spaces_have_none(tmp_path: Path) -> None:
    data, model = digits("model=vae", "model.latent_dim=3")
    arrays = written(data, model, tmp_path)
    assert arrays["z"].shape[1] == 3 and not [key for key in arrays if key.startswith("grid")]


@torch.no_grad()
def test_vectors_are_scaled_to_their_range(tmp_path: Path) -> None:
    data = Given(noisy_curve())
    arrays = written(data, started(data, "model=sas", *SMALL), tmp_path)
    low, high = arrays["range"]
    assert (low, high) == (data.x.min(), data.x.max()) and "labels" not in arrays
    values = low + arrays["images"] / 255 * (high - low)
    nearest = np.abs(values[:, None] - data.x.numpy()).max(-1).min(1)
    assert nearest.max() <= 0.51 * (high - low) / 255


def test_large_images_are_fewer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(explorer, "MAX_VALUES", 64 * 200)
    data, model = digits("model=vae")
    arrays = written(data, model, tmp_path)
    assert len(arrays["z"]) == 200 and arrays["grid_mean"].shape[:2] == (10, 10)


@torch.no_grad()
def test_moving_ball_keeps_paths_and_their_estimates(tmp_path: Path) -> None:
    data = MovingBall(batch_videos=2, num_train_videos=4, num_test_videos=6)
    model = started(data, "model=gp_vae", "dataset=moving_ball")
    arrays = written(data, model, tmp_path)
    assert arrays["paths"].shape == arrays["estimated_paths"].shape == (5, 30, 2)
    np.testing.assert_allclose(arrays["paths"], data.test_paths[:5], rtol=1e-6)
    everywhere = data.latent_paths(model)
    design = np.c_[everywhere.flatten(0, 1).double(), np.ones(180)]
    best = design @ np.linalg.lstsq(design, data.test_paths.flatten(0, 1).numpy(), rcond=None)[0]
    np.testing.assert_allclose(arrays["estimated_paths"].reshape(150, 2), best[:150], atol=1e-4)
    assert arrays["grid_sd_images"].shape == arrays["grid_mean"].shape  # the sd of a binary pixel is its own


@torch.no_grad()
def test_rotated_mnist_keeps_views_made_of_object_and_angle_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = small_rotated_mnist(monkeypatch)
    model = started(data, "model=cvae", "dataset=rotated_mnist", num_objects=OBJECTS)
    arrays = written(data, model, tmp_path)
    assert data.test.aux is not None
    made = model.decode(model.generate(data.test.aux).mean).mean
    np.testing.assert_allclose(arrays["generated_views"], made[:10], atol=1e-6)
    np.testing.assert_array_equal(arrays["views"], data.test.x[:10])
