"""The latent space in pictures: a map, decoded observations across it, and the arrays of the report's explorer.

Pixels are stored as bytes: 0 and 255 are the values of `range`, which is 0 and 1 for images and the extremes of the
data for vectors.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch import uint8 as byte
from torch.distributions import Normal

from src.data.batch import Batch
from src.evaluation.shown import Limits
from src.evaluation.task import Arrays, Subject, Task, decoded
from src.models.capabilities import HasInducingLatents, HasLatents, HasMetric, Refines
from src.models.likelihoods import masked
from src.models.sampling import latents
from src.runs.errors import UserError
from src.runs.published import name_of_class
from src.runs.randomness import stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_POINTS, MAX_SIDE = 1000, 32
MAX_VALUES = 2**20  # the pixels of all points, and twice those of the grid: limits the file to a few MB


class LatentSpace(Task):
    """The figures `latent_map`, `decoded_grid` and, if the grid is a slice, `samples`; the arrays of the explorer."""

    name = "latent_space"
    order = 40

    def fits(self, model: Any, data: Any) -> bool:
        """All models with latents."""
        return isinstance(model, HasLatents)

    def figures(self, subject: Subject) -> "Iterator[tuple[str, Figure]]":
        """The map of the test points and any inducing inputs, and observations decoded across the latent plane."""
        from src.evaluation import fit_figures, latent_figures

        def decode(z: Tensor) -> Normal:
            return Normal(*subject.decode(z), validate_args=False)

        z, data = subject.test_latents, subject.data
        labels = data.test.y if data.facts.target.kind == "class" else None
        kind = "images" if data.facts.scale == "image" else "points"
        title = f"{name_of_class(type(subject.model).__name__)}, {len(z)} test {kind}"
        latent_map = latent_figures.latent_map(z, labels, decode, title, data.facts.classes)
        if isinstance(subject.model, HasInducingLatents):
            coordinates = latent_figures.latent_grid(z, side=2).coordinates
            fit_figures.mark_inducing(latent_map, subject.model.inducing, coordinates)
        yield "latent_map", latent_map
        yield "decoded_grid", latent_figures.decoded_grid(z, decode, data.facts.shape, limits=subject.limits)
        drawn = drawn_latents(subject, latent_figures.SAMPLES) if z.shape[1] > 2 and kind == "images" else None
        if drawn is not None:
            yield "samples", latent_figures.samples(subject.decode(drawn)[0], subject.limits)

    def artifacts(self, subject: Subject) -> Arrays:
        """A random part of the test data with reconstructions and their RMSE; if Q = 2 also a decoded grid."""
        model, data = subject.model, subject.data
        size = min(MAX_POINTS, max(100, MAX_VALUES // math.prod(data.facts.shape)))
        drawn = data.test.draw(size, stream(0, len(data.test)))
        z = subject.test_latents[drawn.index]
        x, mean = model.as_float(drawn.x).cpu(), decoded(model, z, subject.given, drawn.aux).mean
        observed = x if drawn.mask is None else x[drawn.mask]
        is_image = len(data.facts.shape) == 3
        scale = subject.limits if is_image else Limits(observed.min().item(), observed.max().item())
        arrays = {
            "z": z.float().numpy(),
            "error": rmse_of_each(x - mean, drawn.mask).float().numpy(),
            "range": np.array(scale),
            "images": as_bytes(x, scale),
            "reconstructions": as_bytes(mean, scale),
        }
        arrays |= incomplete_points(subject, drawn, mean, scale)
        if drawn.y is not None and data.facts.target.kind == "class":
            arrays["labels"] = drawn.y.numpy()
            if data.facts.classes:
                arrays["classes"] = np.array(data.facts.classes)
        return arrays | (decoded_grid(subject, z, scale) if z.shape[1] == 2 else {})


def drawn_latents(subject: Subject, count: int) -> Tensor | None:
    """Latents of the prior, or of the density of those that a model knows; None if it has neither."""
    model = subject.model
    if not isinstance(model, Refines) or subject.data.facts.aux:
        return None
    try:
        return latents(model, count, None, torch.Generator().manual_seed(stream(0, count))).to(subject.test_latents)
    except UserError:  # point latents, of which the model carries none
        return None


def decoded_grid(subject: Subject, z: Tensor, scale: tuple[float, float]) -> Arrays:
    """A square grid over z [n, 2]: decoded means, sds averaged over pixels and, if pixels differ, all sds.

    Rows run along the second coordinate, from its lowest value.
    """
    from src.evaluation.latent_figures import latent_grid  # loads matplotlib

    shape = subject.data.facts.shape
    side = min(MAX_SIDE, max(8, math.isqrt(MAX_VALUES // 2 // math.prod(shape))))
    grid = latent_grid(z, side, margin=0.05)
    mean, sd = subject.decode(grid.points)
    arrays = {
        "grid_across": grid.ticks[0].numpy(),
        "grid_up": grid.ticks[1].numpy(),
        "grid_mean": as_bytes(mean, scale).reshape(side, side, *shape),
        "grid_sd": sd.flatten(1).mean(1).float().numpy().reshape(side, side),
    }
    if (sd.flatten(1).amax(1) - sd.flatten(1).amin(1)).max() > 1e-6:
        largest = sd.max().item()
        arrays["grid_sd_range"] = np.array([0.0, largest])
        arrays["grid_sd_images"] = as_bytes(sd, (0.0, largest)).reshape(side, side, *shape)
    return arrays | metric_grid(subject, grid.points)


def metric_grid(subject: Subject, points: Tensor) -> Arrays:
    """The metric at the points of a square grid: G_11, G_12 and G_22, [side, side, 3], if the model has one."""
    side = math.isqrt(len(points))
    try:
        g = subject.metric(points.double()) if isinstance(subject.model, HasMetric) else None
    except UserError:  # a kernel whose functions have no derivative
        return {}
    return {} if g is None else {"grid_metric": g[:, [0, 0, 1], [0, 1, 1]].float().numpy().reshape(side, side, 3)}


def incomplete_points(subject: Subject, drawn: Batch, mean: Tensor, scale: tuple[float, float]) -> Arrays:
    """What was observed of test points, in bits; of values hidden on purpose also the truth and the RMSE of a point."""
    test = subject.data.test
    if drawn.mask is None:
        return {}
    arrays = {"seen": np.packbits(drawn.mask.flatten(1).numpy(), axis=1)}
    if test.hidden is None:
        return arrays
    truth = subject.model.as_float(test.truth(drawn.index)).cpu()
    error = rmse_of_each(truth - mean, test.hidden[drawn.index])
    return arrays | {"truth": as_bytes(truth, scale), "hidden_error": error.float().numpy()}


def rmse_of_each(error: Tensor, mask: Tensor | None) -> Tensor:
    """The root mean squared error [n] of the values of each point that the mask selects; 0 for a point without any."""
    squared = error.flatten(1).square()
    if mask is None:
        return squared.mean(1).sqrt()
    chosen = mask.flatten(1)
    return (masked(squared, chosen).sum(1) / chosen.sum(1).clamp_min(1)).sqrt()


def as_bytes(x: Tensor, scale: tuple[float, float]) -> np.ndarray:
    """Values as the nearest of 256 levels between two limits; values beyond are clipped, missing values become 0."""
    low, high = scale
    level = (x.cpu().nan_to_num(low) - low) / ((high - low) or 1.0)
    return (level.clamp(0, 1) * 255).round().to(byte).numpy()
