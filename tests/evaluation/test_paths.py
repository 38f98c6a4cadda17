"""Latent paths beside the true ones: known affine maps, and the same latents as every other score."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from src.data.batch import Batch, split_of
from src.evaluation.paths import Paths, path_rmse, with_products
from src.evaluation.reconstruction import Reconstruction
from src.models.posterior import Point
from tests.evaluation.subjects import Known, MadeUp, subject


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("latent_dim", [2, 5])
def test_exact_affine_images_of_the_paths_score_zero(latent_dim: int) -> None:
    paths = normal(210, 2)
    latents = paths @ normal(2, latent_dim, seed=1) + normal(latent_dim, seed=2)
    assert path_rmse(latents, paths) < 1e-12
    assert path_rmse(latents.float(), paths) < 1e-5


@pytest.mark.parametrize("latent_dim", [1, 2, 3])
def test_one_least_squares_map_with_a_constant_for_all_videos(latent_dim: int) -> None:
    latents, paths = normal(210, latent_dim) + 3, normal(210, 2, seed=1) - 5
    design = np.hstack([latents, np.ones((210, 1))])
    target = paths.numpy()
    residual = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    assert path_rmse(latents, paths) == pytest.approx(math.sqrt((residual**2).sum() / 210), rel=1e-12)


def test_affine_maps_of_the_latents_change_nothing() -> None:
    paths = normal(210, 2)
    latents = paths + 0.3 * normal(210, 2, seed=1)
    mapped = latents @ normal(2, 2, seed=2) * 100 + 1e4
    assert path_rmse(mapped, paths) == pytest.approx(path_rmse(latents, paths), rel=1e-9)


def test_it_is_the_distance_of_points_and_not_of_coordinates() -> None:
    paths, noise = normal(60_000, 2), normal(60_000, 2, seed=1)
    assert path_rmse(torch.zeros(60_000, 2), paths) == pytest.approx(math.sqrt(2), rel=0.02)
    assert path_rmse(paths, paths + 0.1 * noise) == pytest.approx(0.1 * math.sqrt(2), rel=0.02)


def test_a_collapsed_latent_dimension_is_no_obstacle() -> None:
    paths = normal(210, 2)
    alone = paths[..., :1] + 0.1
    collapsed = torch.cat([alone, torch.full_like(alone, 0.7)], dim=-1)
    repeated = torch.cat([alone, 2 * alone], dim=-1)
    expected = path_rmse(alone, paths)
    assert path_rmse(collapsed, paths) == pytest.approx(expected, rel=1e-9)
    assert path_rmse(repeated, paths) == pytest.approx(expected, rel=1e-9)


def test_different_maps_for_different_videos_are_not_allowed() -> None:
    paths = normal(2, 30, 2)
    flipped = paths * torch.tensor([1.0, -1.0]).view(2, 1, 1)
    assert path_rmse(flipped[0], paths[0]) < 1e-12 and path_rmse(flipped[1], paths[1]) < 1e-12
    assert path_rmse(flipped.flatten(0, 1), paths.flatten(0, 1)) > 1


@pytest.mark.parametrize("latent_dim", [2, 3])
def test_a_quadratic_map_takes_off_the_bend_of_the_plane_and_nothing_else(latent_dim: int) -> None:
    latents, noise = 5 * normal(210, latent_dim) + 3, 0.1 * normal(210, 2, seed=1)
    bend = (latents[:, :1] * latents[:, 1:2] + latents[:, 1:2].square()).expand(210, 2)
    paths = latents[:, :2] + 0.2 * bend
    assert path_rmse(latents, paths) > 1
    assert path_rmse(with_products(latents), paths) < 1e-10
    design = np.hstack([latents, *(latents[:, [i]] * latents[:, i:] for i in range(latent_dim)), np.ones((210, 1))])
    target = (paths + noise).numpy()
    residual = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    expected = math.sqrt((residual**2).sum() / 210)
    assert path_rmse(with_products(latents), paths + noise) == pytest.approx(expected, rel=1e-9)


class Videos(MadeUp):
    """Groups of three frames."""

    group, group_size = "video", 3


def videos(number: int) -> Videos:
    """The true path of a frame is an affine map of its first two values."""
    x = normal(3 * number, 3).float()
    split = split_of(x, groups=torch.arange(3 * number) // 3, latents=2 * x[:, :2].double().flip(1) - 1)
    return Videos(split)


def test_the_score_is_that_of_the_test_latents() -> None:
    assert Paths().scores(subject(Known, videos(4)))["path_rmse"] < 1e-6


class Restless(Known):
    """Encodes to other latents every time."""

    def encode(self, batch: Batch, seen: bool) -> Point:
        return Point(torch.randn(len(batch), 2))


def test_paths_and_reconstructions_are_of_the_same_latents() -> None:
    known = subject(Restless, videos(4))
    scores = {**Reconstruction().scores(known), **Paths().scores(known)}
    z, test = known.test_latents, known.data.test
    assert test.latents is not None
    assert scores["path_rmse"] == path_rmse(z, test.latents)
    assert scores["path_rmse_quadratic"] == path_rmse(with_products(z), test.latents) < scores["path_rmse"]
    expected = (torch.cat([z, torch.zeros(len(z), 1)], 1) - test.all().x).square().mean().sqrt().item()
    assert scores["rmse"] == pytest.approx(expected)


def test_the_first_paths_are_kept_with_their_estimates() -> None:
    data = videos(8)
    arrays = Paths().artifacts(subject(Known, data))
    assert data.test.latents is not None
    true = data.test.latents.view(8, 3, 2)[:5]
    np.testing.assert_allclose(arrays["paths"], true, rtol=1e-6)
    np.testing.assert_allclose(arrays["estimated_paths"], true, atol=1e-5)


def test_one_map_of_all_videos_estimates_the_paths_that_are_kept() -> None:
    data = videos(8)
    known = subject(Restless, data)
    assert data.test.latents is not None
    design = np.c_[known.test_latents.double(), np.ones(24)]
    best = design @ np.linalg.lstsq(design, data.test.latents.numpy(), rcond=None)[0]
    np.testing.assert_allclose(Paths().artifacts(known)["estimated_paths"].reshape(15, 2), best[:15], atol=1e-5)


def test_it_takes_data_that_know_their_latents() -> None:
    data = videos(2)
    assert Paths().fits(Known(data.facts), data) and not Paths().fits(object(), data)
    assert not Paths().fits(Known(data.facts), MadeUp(split_of(torch.zeros(3, 3))))
