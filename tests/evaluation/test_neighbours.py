"""1-NN accuracy: fitted on training latents and labels, scored on those of the test."""

import pytest
import torch
from torch import Tensor

from src.data.batch import split_of
from src.evaluation.neighbours import Neighbours, accuracy_1nn
from tests.evaluation.subjects import Known, MadeUp, subject

CLASSES = torch.tensor([0, 1, 1])


def labelled(train: list[float], labels: list[int], test: list[float], expected: list[int]) -> MadeUp:
    def column(values: list[float]) -> Tensor:
        return torch.tensor(values)[:, None].expand(-1, 3)

    return MadeUp(split_of(column(train), torch.tensor(labels)), split_of(column(test), torch.tensor(expected)))


def test_half_of_the_test_points_have_the_label_of_their_nearest_training_point() -> None:
    """At 0.9 the nearest training point, 1, has the right label, at 2.1 the nearest, 2, has the wrong one."""
    data = labelled([0.0, 1.0, 2.0, 3.0], [0, 1, 0, 1], [0.9, 2.1], [1, 1])
    assert Neighbours().scores(subject(Known, data)) == {"accuracy_1nn": 0.5}


def test_no_point_is_its_own_neighbour() -> None:
    """The same points in both splits, with other labels in one of them: nothing is right."""
    data = labelled([0.0, 1.0, 2.0], [0, 1, 1], [0.0, 1.0, 2.0], [1, 0, 0])
    assert Neighbours().scores(subject(Known, data)) == {"accuracy_1nn": 0.0}


def test_points_without_a_test_part_are_left_out_in_turn() -> None:
    """Of the points at 0, 1, 2.5 and 5, the first two are each other's neighbours, as they would not be at once."""

    class Alone(MadeUp):
        test_is_train = True

    data = labelled([0.0, 1.0, 2.5, 5.0], [0, 0, 1, 1], [0.0, 1.0, 2.5, 5.0], [0, 0, 1, 1])
    alone = Alone(data.train, data.train)
    assert Neighbours().scores(subject(Known, alone)) == {"accuracy_1nn": 0.75}
    assert Neighbours().scores(subject(Known, data)) == {"accuracy_1nn": 1.0}


def test_training_latents_are_those_of_seen_points() -> None:
    class Moved(Known):
        if_seen = 1.0

    data = labelled([0.0, 1.0, 2.0], [0, 1, 0], [1.0, 2.0], [0, 1])
    assert Neighbours().scores(subject(Moved, data)) == {"accuracy_1nn": 1.0}
    assert Neighbours().scores(subject(Known, data)) == {"accuracy_1nn": 0.0}


@pytest.mark.parametrize("latent_dim", [2, 20])
def test_the_nearest_of_many_neighbours_is_that_of_brute_force(latent_dim: int) -> None:
    """A tree for few latent dimensions, everything for many."""
    generator = torch.Generator().manual_seed(0)
    known, z = (torch.randn(size, latent_dim, generator=generator) for size in (20_000, 300))
    labels, expected = (torch.randint(0, 10, (len(points),), generator=generator) for points in (known, z))
    nearest = torch.cdist(z.double(), known.double()).argmin(1)
    assert accuracy_1nn(known, labels, z, labels[nearest]) == 1
    assert accuracy_1nn(known, labels, z, expected) == (labels[nearest] == expected).double().mean().item()


@pytest.mark.parametrize(
    ("train", "test", "fits"),
    [
        (CLASSES, CLASSES, True),
        (None, None, False),
        (CLASSES, None, False),
        (None, CLASSES, False),
        (torch.zeros(3, 1), torch.zeros(3, 1), False),
    ],
)
def test_it_takes_classes_in_both_splits(train: Tensor | None, test: Tensor | None, fits: bool) -> None:
    data = MadeUp(split_of(torch.zeros(3, 3), train), split_of(torch.zeros(3, 3), test))
    assert Neighbours().fits(Known(data.facts), data) == fits


def test_it_takes_a_model_with_latents() -> None:
    data = labelled([0.0], [0], [0.0], [0])
    assert not Neighbours().fits(object(), data)
