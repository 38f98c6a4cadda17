"""Paths through the latent space, compared with the true paths of simulated data."""

from typing import Any

import torch
from torch import Tensor

from src.evaluation.task import Arrays, Metric, Scores, Subject, Task
from src.models.capabilities import HasLatents

SHOWN = 5  # test videos in the report's figure


class Paths(Task):
    """The distance of latent means from the true paths, after one affine map for all videos, or one quadratic map.

    What the quadratic map takes off is the bend of the latent plane.
    """

    name = "paths"
    order = 30
    metrics = {  # noqa: RUF012
        "path_rmse": Metric("path RMSE", digits=3),
        "path_rmse_quadratic": Metric("path RMSE after a quadratic map", digits=3),
    }
    watched = ("path_rmse",)

    def fits(self, model: Any, data: Any) -> bool:
        """Models with latents, and data with true latents."""
        return isinstance(model, HasLatents) and data.test.latents is not None

    def scores(self, subject: Subject) -> Scores:
        """The errors after the best affine and the best quadratic map."""
        z, paths = subject.test_latents, subject.data.test.latents
        assert paths is not None
        return {"path_rmse": path_rmse(z, paths), "path_rmse_quadratic": path_rmse(with_products(z), paths)}

    def artifacts(self, subject: Subject) -> Arrays:
        """The first true paths [videos, T, 2], and the latent means mapped to them."""
        paths, length = subject.data.test.latents, subject.data.facts.group_size or 1
        assert paths is not None
        both = {"paths": paths, "estimated_paths": aligned(subject.test_latents, paths)}
        return {name: path.unflatten(0, (-1, length))[:SHOWN].float().numpy() for name, path in both.items()}


def path_rmse(latent_means: Tensor, paths: Tensor) -> float:
    """The RMS distance of latent means [n, Q] from true paths [n, 2] after the best affine map, in path units.

    One least-squares map serves all videos, since a latent space is only known up to such a map. Squared errors are
    summed over the two coordinates and averaged over frames, so the score does not depend on the axes. Uninformative
    latents score the spread of the paths, about √2. The published code prints the square times the number of frames.
    The error of one coordinate is the score divided by √2.
    """
    return float((paths.cpu() - aligned(latent_means, paths)).square().sum(-1).mean().sqrt())


def with_products(latent_means: Tensor) -> Tensor:
    """Latent means [n, Q], standardised, and all products of two of them; affine maps of these are quadratic maps."""
    z = latent_means.detach().cpu().double()
    z = (z - z.mean(0)) / z.std(0).clamp_min(1e-12)
    first, second = torch.triu_indices(z.shape[1], z.shape[1])
    return torch.cat([z, z[:, first] * z[:, second]], 1)


def aligned(latent_means: Tensor, paths: Tensor) -> Tensor:
    """Latent means [n, Q] after the affine map with the least squared distance to true paths [n, 2]."""
    z, path = (values.detach().cpu().double() for values in (latent_means, paths))
    centre, z = path.mean(0), z - z.mean(0)  # instead of a constant term
    slope = torch.linalg.lstsq(z, path - centre, driver="gelsd").solution  # by SVD, as latent dimensions may collapse
    return centre + z @ slope
