"""The paper's findings on the moving ball in small: length scales are recovered, and inducing times spread.

The observations are the paths themselves, with nets that pass them on, so that the bound is that of sparse GPs.
"""

from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn

from src.data.batch import Batch
from src.data.moving_ball import FRAMES, LENGTH_SCALE, draw_paths
from tests.models.builders import SMALL_NETS, Given, built, rows

NOISE = 0.1
VIDEOS = 15


class PassedOn(nn.Module):
    """A pseudo-observation with the observation as its mean and the noise as its variance."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, torch.full_like(x, np.log(NOISE))], 1)


def paths() -> Given:
    """Noisy positions of balls, one point per frame."""
    rng = np.random.default_rng(0)
    clean = draw_paths(VIDEOS, rng).flatten(0, 1)
    x = clean + NOISE**0.5 * torch.from_numpy(rng.standard_normal(clean.shape))
    aux = torch.cartesian_prod(torch.arange(VIDEOS), torch.arange(FRAMES)).float()
    told = {"aux": ("video", "time"), "group": "video", "group_size": FRAMES}
    return Given(x, aux=aux, told=told)


def sparse(num_inducing: int, start: list[float] | None = None) -> tuple[Any, Batch]:
    """A model of the paths, and all of them."""
    data = paths()
    aux = {"_target_": "src.models.auxiliary.VideoTime", "start": start}
    kernel = {"_target_": "src.gp.kernels.rbf", "lengthscale": LENGTH_SCALE}
    model = built(data, "svgp_vae", **SMALL_NETS, aux=aux, kernel=kernel, num_inducing=num_inducing, noise=NOISE)
    model.latents.net, model.decoder = PassedOn(), nn.Identity()
    return model, rows(data)


@torch.no_grad()
def loss_at(model: Any, batch: Batch, lengthscale: float) -> float:
    model.kernel.lengthscale = lengthscale
    torch.manual_seed(0)
    return float(model.objective(batch).loss)


def learned_lengthscale(num_inducing: int) -> float:
    model, batch = sparse(num_inducing)
    found = minimize_scalar(lambda log: loss_at(model, batch, float(np.exp(log))), bounds=(0, 2.5), method="bounded")
    return float(np.exp(found.x))


def test_the_length_scale_of_the_paths_is_recovered_with_enough_inducing_times() -> None:
    """Jazbec et al., Fig. 3. Where they are as far apart as the length scale, at M = 15, the bound asks for more."""
    few, some, many = (learned_lengthscale(num_inducing) for num_inducing in (5, 15, 20))
    assert many == pytest.approx(LENGTH_SCALE, rel=0.05)
    assert 1.05 * LENGTH_SCALE < some < 1.1 * LENGTH_SCALE
    assert few > 3 * LENGTH_SCALE


OTHERS = [pytest.param(start, marks=pytest.mark.slow) for start in ([12.0, 17.0], [24.0, 29.0])]


@pytest.mark.parametrize("start", [[0.0, 5.0], *OTHERS])
def test_inducing_times_spread_over_the_video_from_a_bad_start(start: list[float]) -> None:
    """Jazbec et al., Fig. 4: ten times, which would be 29 / 9 apart if they were even."""
    model, batch = sparse(10, start)
    optimizer = torch.optim.Adam([model.inducing], lr=0.3)
    for _ in range(100):
        torch.manual_seed(0)
        optimizer.zero_grad()
        model.objective(batch).loss.backward()
        optimizer.step()
    times = model.inducing.detach().flatten().sort().values
    assert times[0] < 3 and times[-1] > 26
    assert times.diff().max() < 1.5 * 29 / 9 and times.diff().min() > 0.5 * 29 / 9


def outside(functions: Tensor, num_inducing: int) -> float:
    """The part of the variance of functions [videos, 30, 2] that a GP through so many inducing times cannot carry."""
    times, inducing = torch.arange(30.0).double(), torch.linspace(0, 29, num_inducing).double()
    carried, _ = torch.linalg.qr((-0.5 * ((times[:, None] - inducing) / LENGTH_SCALE).square()).exp())
    centred = functions - functions.mean((0, 1))
    rest = centred - carried @ (carried.mT @ centred)
    return float(rest.square().sum() / centred.square().sum())


def test_fifteen_inducing_times_carry_paths_but_not_the_bends_of_a_latent_plane() -> None:
    """Why the plane of a sparse model stays straight: the squares of a path have twice its frequencies."""
    straight = draw_paths(500, np.random.default_rng(0))
    assert outside(straight, 15) < 0.005 and outside(straight, 10) > 0.03
    assert outside(straight.square(), 15) > 8 * outside(straight, 15)
    assert outside(straight.square(), 30) < 1e-6
