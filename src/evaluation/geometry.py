"""The geometry of a latent space: neighbours by geodesic distance, and geodesics between the classes on a map."""

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from src.evaluation.neighbours import accuracy_1nn
from src.evaluation.task import Metric, Scores, Settings, Subject, Task
from src.gp.geodesics import Geodesics, geodesics, near_geodesics
from src.gp.geometry import Metric as MetricOf
from src.gp.latent_graphs import GridMetric
from src.models.capabilities import HasMetric
from src.runs.errors import UserError
from src.runs.published import name_of_class
from src.runs.randomness import stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KNOWN, ASKED = 1000, 200  # training points, and test points whose neighbours are searched among them
CANDIDATES = 5  # nearest training points, by straight lines and by the metric at the test point, to which geodesics go
STEPS = 20  # downhill for such a short geodesic
ENDS = 10  # of the geodesics between classes, or between random points if there are no classes


class Geometry(Task):
    """1-NN by geodesic distance beside the Euclidean one on the same points; the energy of geodesics between classes.

    It is scored with `evaluation.geometry=true`.
    """

    name = "geometry"
    order = 18
    metrics = {  # noqa: RUF012
        "geodesic_1nn": Metric("1-NN accuracy by geodesics, part of the data", "higher", 3),
        "euclidean_1nn": Metric("1-NN accuracy, same part", "higher", 3),
        "geodesic_energy": Metric("energy of geodesics / straight lines", "neither", 3),
    }

    def fits(self, model: Any, data: Any) -> bool:
        """Models with a metric."""
        return isinstance(model, HasMetric)

    def check(self, model: Any, data: Any, settings: Settings) -> None:
        """Raise a UserError if the model has no metric, or its kernel none."""
        if not settings.get("geometry"):
            return
        if not self.fits(model, data):
            raise UserError(
                f"evaluation.geometry=true needs a model with latents, which {type(model).__name__} has not"
            )
        with torch.no_grad():
            Subject(model, data, settings).metric(torch.zeros(1, model.latent_dim))

    def scores(self, subject: Subject) -> Scores:
        """The energies, and if there are classes the accuracies."""
        if not subject.settings.get("geometry"):
            return {}
        found = between_centres(subject)
        ratio = (found.energy / found.straight_energy).mean().item()
        return (accuracies(subject) if is_labelled(subject) else {}) | {"geodesic_energy": ratio}

    def figures(self, subject: Subject) -> "Iterator[tuple[str, Figure]]":
        """The map of a plane."""
        from src.evaluation import geometry_figures

        if subject.settings.get("geometry") and subject.model.latent_dim == 2:
            labels = subject.data.test.y if is_labelled(subject) else None
            curves, names = between_centres(subject).points(50), subject.data.facts.classes
            title = f"{name_of_class(type(subject.model).__name__)}, geodesics"
            z = subject.test_latents
            yield "geodesics", geometry_figures.geodesic_map(z, labels, subject.metric, curves, title, names)


def is_labelled(subject: Subject) -> bool:
    """Whether test points have classes."""
    return subject.data.facts.target.kind == "class" and subject.data.test.y is not None


def between_centres(subject: Subject) -> Geodesics:
    """The geodesics between all pairs of classes, or of random points."""
    z = subject.test_latents
    first, second = zip(*combinations(centres(subject, z).tolist(), 2), strict=True)
    return geodesics(subject.metric, z[list(first)], z[list(second)], z)


def centres(subject: Subject, z: Tensor) -> Tensor:
    """The rows of those test points [n, Q] that are nearest to the mean of their class, of at most ten classes."""
    if not is_labelled(subject):
        return subject.data.test.draw(ENDS, stream(0, ENDS)).index
    y = subject.data.test.y
    assert y is not None
    rows = [(y == label).nonzero().squeeze(1) for label in y.unique()[:ENDS]]
    return torch.stack([row[(z[row] - z[row].mean(0)).square().sum(1).argmin()] for row in rows])


class Part(NamedTuple):
    """Training points with labels, and test points with theirs."""

    known: Tensor  # [N, Q]
    labels: Tensor  # [N]
    asked: Tensor  # [n, Q]
    expected: Tensor  # [n]


def part_of(subject: Subject) -> Part:
    """A random part of both splits, the same in every run; two parts of the training data if there is no test part."""
    data, z = subject.data, subject.train_latents.double()
    assert data.train.y is not None and data.test.y is not None
    if data.test_is_train:
        rows = data.train.draw(KNOWN + ASKED, stream(0, KNOWN)).index
        asked, known = rows[: min(ASKED, len(rows) // 2)], rows[min(ASKED, len(rows) // 2) :]
        return Part(z[known], data.train.y[known], z[asked], data.train.y[asked])
    known = data.train.draw(KNOWN, stream(0, KNOWN)).index
    asked = data.test.draw(ASKED, stream(0, ASKED)).index
    return Part(z[known], data.train.y[known], subject.test_latents[asked].double(), data.test.y[asked])


def accuracies(subject: Subject) -> Scores:
    """Of both distances, on the same points."""
    part = part_of(subject)
    metric: MetricOf = subject.metric
    if part.known.shape[1] == 2:
        metric = GridMetric.over(metric, torch.cat([part.known, part.asked]))
    nearest = nearest_by_geodesics(metric, part.known, part.asked)
    return {
        "geodesic_1nn": float((part.labels[nearest] == part.expected).double().mean()),
        "euclidean_1nn": accuracy_1nn(part.known, part.labels, part.asked, part.expected),
    }


def nearest_by_geodesics(metric: MetricOf, known: Tensor, asked: Tensor) -> Tensor:
    """The row [n] of the known point [N, Q] with the shortest geodesic to each of the points asked for [n, Q].

    Geodesics go to the nearest points by straight lines, and to those that the metric at the end would have nearest.
    """
    move = known - asked.unsqueeze(1)  # [n, N, Q]
    local = torch.einsum("nmq,nqr,nmr->nm", move, metric(asked), move)
    count = min(CANDIDATES, len(known))
    near = [squared.topk(count, largest=False).indices for squared in (move.square().sum(2), local)]
    candidates = torch.cat(near, 1)  # [n, C]
    ends = known[candidates].flatten(0, 1)
    found = near_geodesics(metric, asked.repeat_interleave(candidates.shape[1], 0), ends, STEPS)
    best = found.length.view_as(candidates).argmin(1, keepdim=True)
    return candidates.gather(1, best).squeeze(1)
