"""Scores of single datasets."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from src.evaluation.paths import path_rmse


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("latent_dim", [2, 5])
def test_exact_affine_images_of_the_paths_score_zero(latent_dim: int) -> None:
    paths = normal(7, 30, 2)
    latents = paths @ normal(2, latent_dim, seed=1) + normal(latent_dim, seed=2)
    assert path_rmse(latents, paths) < 1e-12
    assert path_rmse(latents.float(), paths) < 1e-5


@pytest.mark.parametrize("latent_dim", [1, 2, 3])
def test_one_least_squares_map_with_a_constant_for_all_videos(latent_dim: int) -> None:
    latents, paths = normal(7, 30, latent_dim) + 3, normal(7, 30, 2, seed=1) - 5
    design = np.hstack([latents.reshape(210, -1), np.ones((210, 1))])
    target = paths.reshape(210, 2).numpy()
    residual = target - design @ np.linalg.lstsq(design, target, rcond=None)[0]
    assert path_rmse(latents, paths) == pytest.approx(math.sqrt((residual**2).sum() / 210), rel=1e-12)


def test_affine_maps_of_the_latents_change_nothing() -> None:
    paths = normal(7, 30, 2)
    latents = paths + 0.3 * normal(7, 30, 2, seed=1)
    mapped = latents @ normal(2, 2, seed=2) * 100 + 1e4
    assert path_rmse(mapped, paths) == pytest.approx(path_rmse(latents, paths), rel=1e-9)


def test_it_is_the_distance_of_points_and_not_of_coordinates() -> None:
    paths, noise = normal(2000, 30, 2), normal(2000, 30, 2, seed=1)
    assert path_rmse(torch.zeros(2000, 30, 2), paths) == pytest.approx(math.sqrt(2), rel=0.02)
    assert path_rmse(paths, paths + 0.1 * noise) == pytest.approx(0.1 * math.sqrt(2), rel=0.02)


def test_a_collapsed_latent_dimension_is_no_obstacle() -> None:
    paths = normal(7, 30, 2)
    alone = paths[..., :1] + 0.1
    collapsed = torch.cat([alone, torch.full_like(alone, 0.7)], dim=-1)
    repeated = torch.cat([alone, 2 * alone], dim=-1)
    expected = path_rmse(alone, paths)
    assert path_rmse(collapsed, paths) == pytest.approx(expected, rel=1e-9)
    assert path_rmse(repeated, paths) == pytest.approx(expected, rel=1e-9)


def test_different_maps_for_different_videos_are_not_allowed() -> None:
    paths = normal(2, 30, 2)
    flipped = paths * torch.tensor([1.0, -1.0]).view(2, 1, 1)
    assert path_rmse(flipped[:1], paths[:1]) < 1e-12 and path_rmse(flipped[1:], paths[1:]) < 1e-12
    assert path_rmse(flipped, paths) > 1
