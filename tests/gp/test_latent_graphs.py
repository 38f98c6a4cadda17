"""Shortest paths on graphs: those of a metric that can be checked by eye or by counting."""

import pytest
import torch
from torch import Tensor

from src.gp.geometry import Metric
from src.gp.latent_graphs import GridMetric, paths_over_points, shortest_routes
from tests.gp.test_geodesics import hyperbolic, identity, seeded, wall


def length(metric: Metric, path: Tensor) -> float:
    """Of a path [m, 2], each piece by the mean of the metrics at its ends."""
    move, g = path.diff(dim=0), metric(path)
    return torch.einsum("nq,nqr,nr->n", move, (g[1:] + g[:-1]) / 2, move).sqrt().sum().item()


def test_the_grid_has_the_metric_at_its_nodes_and_linear_values_between() -> None:
    """In cells of a linear metric they are exact."""
    linear: Metric = lambda z: identity(z) * (3 + z[:, 0] + 2 * z[:, 1]).view(-1, 1, 1)  # noqa: E731
    points = seeded(50, 2).clamp(-1, 1)
    grid = GridMetric.over(linear, points, side=5)
    torch.testing.assert_close(grid(points), linear(points))
    nodes = grid.node(points)
    assert ((grid.at(nodes) - points).abs() <= grid.step / 2 + 1e-9).all()
    assert grid(torch.full((1, 2), 100.0).double()).isfinite().all()


def test_shortest_paths_on_a_grid_follow_the_metric() -> None:
    grid = GridMetric.over(wall, torch.tensor([[-2.0, -3.0], [2.0, 3.0]]).double(), side=41)
    a, b = torch.tensor([[-1.5, 0.0]]).double(), torch.tensor([[1.5, 0.1]]).double()
    (path,) = grid.shortest_paths(a, b)
    torch.testing.assert_close(path[[0, -1]], torch.cat([a, b]))
    assert path[:, 1].abs().max() > 1.2


@pytest.mark.parametrize("move", [(3, 0), (0, 3), (3, 3), (3, -3), (3, 6), (6, 3), (3, -6), (6, -3)])
def test_all_directions_of_the_grid_are_straight_in_a_metric_that_is_the_same_everywhere(move: tuple[int, int]) -> None:
    """Paths that go in one of the grid's directions, there or back, have the length of the straight line."""
    grid = GridMetric.over(identity, torch.tensor([[-1.0, -1.0], [1.0, 1.0]]).double(), side=21)
    a = grid.low + 10 * grid.step
    b = a + torch.tensor(move) * grid.step
    for start, end in ((a, b), (b, a)):
        (path,) = grid.shortest_paths(start.unsqueeze(0), end.unsqueeze(0))
        assert length(identity, path) == pytest.approx((end - start).norm().item())


def test_no_path_on_a_grid_is_longer_than_its_directions_allow() -> None:
    """Sixteen directions leave at most 2.8 % in a flat space, besides the ends that lie between nodes."""
    grid = GridMetric.over(identity, torch.tensor([[-1.0, -1.0], [1.0, 1.0]]).double())
    a, b = (2 * torch.rand(40, 2, generator=torch.Generator().manual_seed(i)).double() - 1 for i in (0, 1))
    for path, straight in zip(grid.shortest_paths(a, b), (b - a).norm(dim=1).tolist(), strict=True):
        assert straight - 1e-9 <= length(identity, path) <= 1.028 * straight + 4 * grid.step.max().item()


def test_routes_are_the_shortest_of_a_graph_by_hand() -> None:
    """0 to 3 by way of 1 (1 + 1) and not directly (3); edges can be walked both ways."""
    sources, targets = torch.tensor([0, 1, 0, 3]), torch.tensor([1, 3, 3, 2])
    weights = torch.tensor([1.0, 1.0, 3.0, 0.5])
    there, back = shortest_routes(sources, targets, weights, 4, torch.tensor([0, 2]), torch.tensor([3, 0]))
    assert there.tolist() == [0, 1, 3] and back.tolist() == [2, 3, 1, 0]


def test_paths_over_points_go_through_near_known_points_where_steps_are_short() -> None:
    """In the half space, up and down again is shorter than along the floor."""
    known = torch.rand(800, 3, generator=torch.Generator().manual_seed(0)).double() * 4
    a, b = torch.tensor([[0.0, 2.0, 0.2]]).double(), torch.tensor([[4.0, 2.0, 0.2]]).double()
    (path,) = paths_over_points(hyperbolic, a, b, known)
    torch.testing.assert_close(path[[0, -1]], torch.cat([a, b]))
    assert path[:, 2].max() > 1 and len(path) > 4
    assert all(any(torch.equal(point, other) for other in known) for point in path[1:-1])


def test_without_known_points_paths_are_straight_lines() -> None:
    a, b = seeded(3, 3), seeded(3, 3, seed=1)
    for path, start, end in zip(paths_over_points(identity, a, b, a[:0]), a, b, strict=True):
        torch.testing.assert_close(path, torch.stack([start, end]))
