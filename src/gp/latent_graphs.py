"""Shortest paths on graphs over a latent space, under a metric: where geodesics start.

In the plane the graph is a grid. In other dimensions it joins near latent points that are known.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from src.gp.geometry import Metric

SIDE = 96  # of the grid in the plane
MARGIN = 0.1  # of the grid around all points, as a part of their range
MOVES = ((0, 1), (1, 0), (1, 1), (1, -1), (1, 2), (2, 1), (1, -2), (2, -1))  # to neighbours on the grid, one way
NEIGHBOURS, MAX_KNOWN = 10, 1000  # of the graph in other dimensions than two


@dataclass(frozen=True)
class GridMetric:
    """A metric in the plane, known at the nodes of a square grid and linear between them; constant beyond its edge.

    Means of positive definite matrices are positive definite.
    """

    low: Tensor  # [2]
    step: Tensor  # [2]
    values: Tensor  # [side, side, 2, 2], by the first coordinate and the second

    @classmethod
    def over(cls, metric: Metric, points: Tensor, side: int = SIDE) -> "GridMetric":
        """The grid over all points, and a little more."""
        low, high = points.amin(0), points.amax(0)
        space = MARGIN * (high - low).amax().clamp_min(1e-6)
        ticks = torch.stack([torch.linspace(lo, hi, side) for lo, hi in zip(low - space, high + space, strict=True)])
        ticks = ticks.to(points)
        values = metric(torch.cartesian_prod(*ticks)).view(side, side, 2, 2)
        return cls(ticks[:, 0], ticks[:, 1] - ticks[:, 0], values)

    def __call__(self, z: Tensor) -> Tensor:
        """G [n, 2, 2] at z [n, 2]."""
        side = len(self.values)
        place = ((z - self.low) / self.step).clamp(0, side - 1 - 1e-9)
        corner = place.detach().floor().long()
        (x, y), (right, up) = corner.T, (place - corner).T[:, :, None, None]
        lower = (1 - right) * self.values[x, y] + right * self.values[x + 1, y]
        upper = (1 - right) * self.values[x, y + 1] + right * self.values[x + 1, y + 1]
        return (1 - up) * lower + up * upper

    def node(self, z: Tensor) -> Tensor:
        """The number of the node next to each point."""
        place = ((z - self.low) / self.step).round().long().clamp(0, len(self.values) - 1)
        return place[:, 0] * len(self.values) + place[:, 1]

    def at(self, nodes: Tensor) -> Tensor:
        """Where nodes are, [m, 2]."""
        side = len(self.values)
        return self.low + torch.stack([nodes // side, nodes % side], 1) * self.step

    def shortest_paths(self, a: Tensor, b: Tensor) -> list[Tensor]:
        """The paths [m, 2] over nodes from a to b, with these points as their ends."""
        side = len(self.values)
        flat, places = self.values.flatten(0, 1), torch.arange(side * side).view(side, side)
        edges = []
        for right, up in MOVES:
            sources = places[: side - right, max(0, -up) : side - max(0, up)].flatten()
            targets = places[right:, max(0, up) : side + min(0, up)].flatten()
            move = self.step * torch.tensor([right, up]).to(self.step)
            edges.append((sources, targets, ((flat[sources] + flat[targets]) / 2 @ move @ move).sqrt()))
        sources, targets, weights = (torch.cat(each) for each in zip(*edges, strict=True))
        starts, ends = self.node(a), self.node(b)
        routes = shortest_routes(sources, targets, weights, side * side, starts, ends)
        return [torch.cat([a[i : i + 1], self.at(route)[1:-1], b[i : i + 1]]) for i, route in enumerate(routes)]


def shortest_routes(
    sources: Tensor, targets: Tensor, weights: Tensor, size: int, starts: Tensor, ends: Tensor
) -> list[Tensor]:
    """The nodes of the shortest routes of a graph with these edges, from starts [P] to ends [P]."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import dijkstra

    graph = coo_array((weights.numpy(), (sources.numpy(), targets.numpy())), (size, size)).tocsr()
    unique, row = starts.unique(return_inverse=True)
    _, before = dijkstra(graph, directed=False, indices=unique.numpy(), return_predecessors=True)
    routes = []
    for i, node in enumerate(ends.tolist()):
        route = [node]
        while (node := int(before[row[i], node])) >= 0:
            route.append(node)
        routes.append(torch.tensor(route[::-1]))
    return routes


def paths_over_points(metric: Metric, a: Tensor, b: Tensor, known: Tensor) -> list[Tensor]:
    """The shortest paths [m, Q] from a to b through near known points, some of them if there are many.

    An edge has the length of its straight line under the metric in its middle. Without known points, paths are
    straight lines.
    """
    from sklearn.neighbors import kneighbors_graph

    some = known[torch.linspace(0, len(known) - 1, min(len(known), MAX_KNOWN)).long()]
    points, size = torch.cat([a, b, some]), len(a)
    if not len(some):
        return list(torch.stack([a, b], 1))
    near = kneighbors_graph(points.numpy(), min(NEIGHBOURS, len(points) - 1)).tocoo()
    edges, direct = torch.from_numpy(np.stack([near.row, near.col])).long(), torch.arange(size)
    own = ((edges[0] - edges[1]).abs() == size) & (edges.amin(0) < size)  # a graph adds edges that it has twice
    sources, targets = torch.cat([edges[:, ~own], torch.stack([direct, direct + size])], 1)
    move = points[targets] - points[sources]
    g = metric((points[targets] + points[sources]) / 2)
    weights = torch.einsum("nq,nqr,nr->n", move, g, move).clamp_min(1e-30).sqrt()
    return [points[route] for route in shortest_routes(sources, targets, weights, len(points), direct, direct + size)]
