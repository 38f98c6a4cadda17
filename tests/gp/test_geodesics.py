"""Geodesics: known ones of known metrics, and no energy above that of the straight line."""

import math
from itertools import pairwise

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch import Tensor

from src.gp import geodesics as module
from src.gp.active_set import condition
from src.gp.geodesics import along, downhill_from, geodesics, near_geodesics, quadrature, straight_lines, true_geodesics
from src.gp.geometry import Metric, expected_metric


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def identity(z: Tensor) -> Tensor:
    return torch.eye(z.shape[1]).to(z).expand(len(z), -1, -1)


def flat(z: Tensor) -> Tensor:
    """The same everywhere, with a preferred direction."""
    root = torch.tensor([[2.0, 0.5], [0.0, 0.7]]).to(z)
    return (root.mT @ root).expand(len(z), -1, -1)


def hyperbolic(z: Tensor) -> Tensor:
    """Poincaré's half plane or half space: I / y^2, y the last coordinate."""
    return identity(z) / z[:, -1].square().view(-1, 1, 1)


def hyperbolic_distance(a: Tensor, b: Tensor) -> Tensor:
    return (1 + (a - b).square().sum(1) / (2 * a[:, -1] * b[:, -1])).acosh()


def polar(z: Tensor) -> Tensor:
    """The plane in polar coordinates (r, angle): diag(1, r^2)."""
    return torch.stack([torch.ones_like(z[:, 0]), z[:, 0].square()], 1).diag_embed()


def wall(z: Tensor) -> Tensor:
    """Steps cost much behind a wall at z_1 = 0, which ends at |z_2| = 1.5."""
    height = 40 * (-((z[:, 0] / 0.3) ** 2) - (z[:, 1] / 1.5) ** 6).exp()
    return identity(z) * (1 + height).view(-1, 1, 1)


def gp(latent_dim: int = 2, points: int = 25) -> Metric:
    """The metric of a GP with noisy data."""
    kernel = ScaleKernel(RBFKernel()).double().requires_grad_(False)
    kernel.base_kernel.lengthscale = 0.7
    noise = torch.tensor([0.01], dtype=torch.float64)
    given = condition(seeded(points, 8, seed=1), seeded(points, latent_dim), kernel, noise)
    return lambda z: expected_metric(given.jacobian_moments, z)


def finer_energy(metric: Metric, curves: Tensor) -> Tensor:
    """From many short straight pieces, the metric in the middle of each."""
    with torch.no_grad():
        steps = curves.diff(dim=1)
        g = metric(((curves[:, 1:] + curves[:, :-1]) / 2).flatten(0, 1)).unflatten(0, steps.shape[:2])
        return steps.shape[1] * torch.einsum("ptq,ptqr,ptr->p", steps, g, steps)


def test_a_metric_that_is_the_same_everywhere_has_straight_geodesics() -> None:
    a, b = seeded(5, 2), seeded(5, 2, seed=1)
    found = geodesics(flat, a, b)
    times = torch.linspace(0, 1, 9).double().view(1, 9, 1)
    torch.testing.assert_close(found.points(9), a.unsqueeze(1) + times * (b - a).unsqueeze(1), atol=1e-6, rtol=0)
    squared = torch.einsum("nq,nqr,nr->n", b - a, flat(a), b - a)
    torch.testing.assert_close(found.energy, squared)
    torch.testing.assert_close(found.length, squared.sqrt())
    torch.testing.assert_close(found.straight_energy, squared)


@pytest.mark.parametrize("latent_dim", [2, 3])
def test_lengths_of_hyperbolic_space(latent_dim: int) -> None:
    """In the plane the search sees a grid, in space the metric itself."""
    a, b = seeded(20, latent_dim), seeded(20, latent_dim, seed=1)
    a[:, -1], b[:, -1] = a[:, -1].abs() + 1, b[:, -1].abs() + 1
    found, truth = geodesics(hyperbolic, a, b), hyperbolic_distance(a, b)
    torch.testing.assert_close(found.length, truth, rtol=2e-3, atol=0)
    assert (found.length > truth * (1 - 1e-4)).all() and (found.straight_length > 1.001 * truth).any()


def test_polar_coordinates_have_the_straight_lines_of_the_plane() -> None:
    a, b = torch.tensor([[1.0, 0.2], [2.0, 0.1]]).double(), torch.tensor([[1.5, 2.2], [1.0, 1.6]]).double()
    found = geodesics(polar, a, b, known=torch.tensor([[0.3, 0.0], [2.3, 2.5]]))
    places = [torch.stack([z[..., 0] * z[..., 1].cos(), z[..., 0] * z[..., 1].sin()], -1) for z in (a, b)]
    torch.testing.assert_close(found.length, (places[0] - places[1]).norm(dim=1), rtol=1e-3, atol=0)
    r, angle = found.points(5).unbind(2)
    middle = torch.stack([r[:, 2] * angle[:, 2].cos(), r[:, 2] * angle[:, 2].sin()], 1)
    torch.testing.assert_close(middle, (places[0] + places[1]) / 2, atol=0.01, rtol=0)


def test_one_dimension_has_one_curve_at_constant_speed() -> None:
    """G = exp(2 z): the length is e^b - e^a."""
    found = geodesics(lambda z: (2 * z).exp().unsqueeze(2), torch.zeros(1, 1), torch.ones(1, 1))
    assert found.length.item() == pytest.approx(math.e - 1, rel=1e-3)
    assert found.energy.item() == pytest.approx((math.e - 1) ** 2, rel=1e-3) and found.energy < found.straight_energy
    assert found.points(3)[0, 1].item() == pytest.approx(math.log((1 + math.e) / 2), abs=1e-3)


@pytest.mark.parametrize("latent_dim", [2, 3])
def test_energies_are_never_above_those_of_straight_lines(latent_dim: int) -> None:
    """Many pairs, near and far, with energies from a quadrature of its own."""
    metric, pairs = gp(latent_dim), 300 if latent_dim == 2 else 40
    a, b = 1.5 * seeded(pairs, latent_dim, seed=3), 1.5 * seeded(pairs, latent_dim, seed=4)
    b[:20] = a[:20] + 0.05 * seeded(20, latent_dim, seed=5)
    found = geodesics(metric, a, b, seeded(60, latent_dim, seed=6))
    times = torch.linspace(0, 1, 513).double().view(1, 513, 1)
    straight = finer_energy(metric, a.unsqueeze(1) + times * (b - a).unsqueeze(1))
    curved = finer_energy(metric, found.points(513))
    assert (found.energy <= found.straight_energy).all()
    assert (curved <= straight * (1 + 1e-3)).all() and (curved < 0.9 * straight).any()
    torch.testing.assert_close(found.straight_energy, straight, rtol=5e-3, atol=1e-6)
    torch.testing.assert_close(found.energy, curved, rtol=5e-3, atol=1e-6)
    assert (found.energy >= found.length.square() * (1 - 1e-9)).all()  # Cauchy-Schwarz, equal at constant speed
    assert (found.energy / found.length.square()).median() < 1.01


@pytest.mark.parametrize("latent_dim", [2, 3])
def test_a_wall_is_walked_around_since_the_search_starts_from_a_graph(latent_dim: int) -> None:
    a, b = torch.zeros(1, latent_dim).double(), torch.zeros(1, latent_dim).double()
    a[0, 0], b[0, 0], b[0, 1] = -1.5, 1.5, 0.1
    known = 2.5 * torch.rand(1500, latent_dim, generator=torch.Generator().manual_seed(0)).double() * 2 - 2.5
    found = geodesics(wall, a, b, known)
    assert found.points(65)[0, :, 1].abs().max() > 1.2 and found.energy < 0.5 * found.straight_energy
    from_line = downhill_from(wall, straight_lines(a, b), steps=60).energy
    assert latent_dim == 3 or found.energy < 0.99 * from_line


def test_a_curve_that_is_worse_under_the_true_metric_gives_way_to_the_straight_line() -> None:
    """As one can be that went downhill on a grid's metric; the other is kept."""
    a, b = torch.tensor([[1.0, 1.0], [0.0, 1.0]]).double(), torch.tensor([[3.0, 1.0], [4.0, 1.0]]).double()
    straight, curved = straight_lines(a, b), near_geodesics(hyperbolic, a, b).control
    curved[0, 1:-1, 1] -= 1.0  # downwards, where steps of the half plane are long
    found = true_geodesics(hyperbolic, curved, straight)
    torch.testing.assert_close(found.control, torch.stack([straight[0], curved[1]]))
    assert found.energy[0] == found.straight_energy[0] and found.length[0] == found.straight_length[0]
    assert found.energy[1] < found.straight_energy[1] and found.length[1] < found.straight_length[1]


def test_going_downhill_never_raises_an_energy() -> None:
    metric = gp()
    control = straight_lines(seeded(30, 2, seed=3), seeded(30, 2, seed=4))
    energies = [downhill_from(metric, control, steps).energy for steps in (0, 1, 3, 10, 30)]
    torch.testing.assert_close(energies[0], along(metric, control).speed @ quadrature().weights)
    for before, after in pairwise(energies):
        assert (after <= before).all() and (after < before).any()


def test_many_curves_are_the_same_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    metric, a, b = gp(), seeded(7, 2, seed=3), seeded(7, 2, seed=4)
    at_once = near_geodesics(metric, a, b, steps=20)
    monkeypatch.setattr(module, "MOST_CURVES", 3)
    torch.testing.assert_close(near_geodesics(metric, a, b, steps=20).control, at_once.control)


def test_near_points_have_the_geodesics_of_the_full_search() -> None:
    metric, a = gp(), seeded(10, 2, seed=3)
    b = a + 0.2 * seeded(10, 2, seed=4)
    torch.testing.assert_close(near_geodesics(metric, a, b).length, geodesics(metric, a, b).length, rtol=2e-3, atol=0)


def test_curves_have_their_ends_whatever_the_precision_and_a_point_has_none() -> None:
    a, b = seeded(3, 2).float(), seeded(3, 2, seed=1).float()
    b[2] = a[2]
    found = geodesics(gp(), a, b)
    torch.testing.assert_close(found.points(2), torch.stack([a, b], 1).double())
    assert found.energy[2] < 1e-20 and found.length[2] < 1e-10 and found.points(7)[2].isfinite().all()
