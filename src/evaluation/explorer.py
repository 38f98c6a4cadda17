"""What a finished run leaves for the report: some test images in latent space, and a grid of what is decoded there.

Pixels are bytes: 0 and 255 stand for the values of `range`, which is 0 and 1 for images and those of the data for
vectors.
"""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import Normal

from src.data.module import DataModule
from src.models.base import Decoder
from src.runs.files import whole
from src.runs.randomness import stream

MAX_POINTS, MAX_SIDE = 1000, 32
MAX_VALUES = 2**20  # pixels of all points, and twice those of the grid: bounds the file to a few MB uncompressed
CHUNK = 512  # points decoded at once, so that large images fit in memory


@torch.no_grad()
def write(model: Decoder, data: DataModule, z: Tensor, path: Path) -> None:
    """Keep the arrays in one small file; z [n, Q] are the latent means of the test data."""
    arrays = {**points(model, data, z), **{key: as_array(value) for key, value in data.exhibits(model).items()}}
    with whole(path) as unfinished:
        np.savez_compressed(unfinished, **arrays)  # type: ignore[arg-type]  # names are not its other argument


def points(model: Decoder, data: DataModule, z: Tensor) -> dict[str, np.ndarray]:
    """A seeded subset of the test data: latents, labels, images, reconstructions and their RMSE; if Q = 2 the grid."""
    size = min(MAX_POINTS, max(100, MAX_VALUES // math.prod(data.shape)))
    drawn = data.test.draw(size, stream(0, len(data.test)))
    given, z = model.given(), z[drawn.index]
    x, mean = model.as_float(drawn.x), decoded(model, z, given).mean
    scale = (0.0, 1.0) if len(data.shape) == 3 else (x.min().item(), x.max().item())
    arrays = {
        "z": z.float().numpy(),
        "error": (x.cpu() - mean).flatten(1).square().mean(1).sqrt().float().numpy(),
        "range": np.array(scale),
        "images": as_bytes(x, scale),
        "reconstructions": as_bytes(mean, scale),
    }
    if drawn.y is not None:
        arrays["labels"] = drawn.y.numpy()
    return arrays | (decoded_grid(model, z, given, scale) if z.shape[1] == 2 else {})


def decoded_grid(model: Decoder, z: Tensor, given: Any, scale: tuple[float, float]) -> dict[str, np.ndarray]:
    """What is decoded on a square grid over z [n, 2]: means, sds averaged over pixels and, where they differ, all sds.

    Rows run along the second coordinate, from its lowest value.
    """
    from src.evaluation.figures import latent_grid  # loads matplotlib

    side = min(MAX_SIDE, max(8, math.isqrt(MAX_VALUES // 2 // math.prod(model.shape))))
    grid = latent_grid(z, side, margin=0.05)
    p = decoded(model, grid.points, given)
    sd = p.stddev.expand_as(p.mean)
    arrays = {
        "grid_across": grid.ticks[0].numpy(),
        "grid_up": grid.ticks[1].numpy(),
        "grid_mean": as_bytes(p.mean, scale).reshape(side, side, *model.shape),
        "grid_sd": sd.flatten(1).mean(1).float().numpy().reshape(side, side),
    }
    if (sd.flatten(1).amax(1) - sd.flatten(1).amin(1)).max() > 1e-6:
        largest = sd.max().item()
        arrays["grid_sd_range"] = np.array([0.0, largest])
        arrays["grid_sd_images"] = as_bytes(sd, (0.0, largest)).reshape(side, side, *model.shape)
    return arrays


def decoded(model: Decoder, z: Tensor, given: Any) -> Normal:
    """p(x | z) at points [n, Q], on the CPU."""
    parts = [model.decode(points.to(model.data_mean), given) for points in z.split(CHUNK)]
    mean, sd = (torch.cat([getattr(p, name).cpu() for p in parts]) for name in ("mean", "stddev"))
    return Normal(mean, sd, validate_args=False)


def as_bytes(x: Tensor, scale: tuple[float, float]) -> np.ndarray:
    """Values as the nearest of 256 levels between two limits, beyond which they are cut off."""
    low, high = scale
    level = (x.cpu() - low) / ((high - low) or 1.0)
    return (level.clamp(0, 1) * 255).round().to(torch.uint8).numpy()


def as_array(values: Tensor) -> np.ndarray:
    """Values for a file, no finer than float32."""
    values = values.detach().cpu()
    return (values.float() if values.is_floating_point() else values).numpy()
