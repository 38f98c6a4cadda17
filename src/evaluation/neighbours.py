"""The label of the nearest training point in latent space: how well latents separate the classes."""

from typing import Any

from torch import Tensor

from src.evaluation.task import Metric, Scores, Subject, Task
from src.models.capabilities import HasLatents


class Neighbours(Task):
    """1-nearest-neighbour accuracy of the test points among the encoded training points."""

    name = "neighbours"
    order = 10
    validated = True
    metrics = {"accuracy_1nn": Metric("1-NN accuracy", "higher", 3)}  # noqa: RUF012

    def fits(self, model: Any, data: Any) -> bool:
        """Models with latents, and class labels in both splits."""
        labelled = data.facts.target.kind == "class" and data.test.y is not None
        return isinstance(model, HasLatents) and labelled

    def scores(self, subject: Subject) -> Scores:
        """Fitted on training latents and labels, scored on test latents and labels.

        If the training points stand for a test part, each is left out in turn: it would be its own nearest neighbour.
        """
        train, test = subject.data.train.y, subject.data.test.y
        assert train is not None and test is not None
        if subject.data.test_is_train:
            return {"accuracy_1nn": accuracy_1nn(subject.train_latents, train, None, train)}
        return {"accuracy_1nn": accuracy_1nn(subject.train_latents, train, subject.test_latents, test)}


def accuracy_1nn(known: Tensor, labels: Tensor, z: Tensor | None, expected: Tensor) -> float:
    """The fraction of points z with the label of their nearest known point; up to Q = 15 a tree is searched.

    Without z, the points are the known ones themselves, and the nearest is another one.
    """
    from sklearn.neighbors import NearestNeighbors

    nearest = NearestNeighbors(n_neighbors=1).fit(known).kneighbors(z, return_distance=False)[:, 0]
    return float((labels[nearest] == expected).double().mean())
