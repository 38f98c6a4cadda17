"""Scores of single datasets, beside the metrics that all share."""

import torch
from torch import Tensor


def path_rmse(latent_means: Tensor, paths: Tensor) -> float:
    """How far latent means [videos, T, Q] are from true paths [videos, T, 2] after the best affine map, in path units.

    One least-squares map for all videos (a latent space is known up to such a map), then the root of the mean squared
    distance: summed over the two coordinates, averaged over frames. Hence it does not depend on the axes, latents that
    know nothing score the spread of the paths, about √2, and its square times the number of frames is the residual sum
    of squares that the published code prints. Divided by √2 it is the error of one coordinate.
    """
    return (paths.cpu() - aligned(latent_means, paths)).square().sum(-1).mean().sqrt().item()


def aligned(latent_means: Tensor, paths: Tensor) -> Tensor:
    """Latent means [videos, T, Q] after the affine map that takes them nearest to true paths [videos, T, 2]."""
    z, path = (values.detach().cpu().double().flatten(0, 1) for values in (latent_means, paths))
    centre, z = path.mean(0), z - z.mean(0)  # takes the place of a constant term
    slope = torch.linalg.lstsq(z, path - centre, driver="gelsd").solution  # by SVD: latent dimensions may collapse
    return (centre + z @ slope).unflatten(0, paths.shape[:2])
