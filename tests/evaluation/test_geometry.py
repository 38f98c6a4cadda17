"""The task of the geometry: neighbours by another distance, geodesics between classes, and their map."""

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.collections import LineCollection
from torch import Tensor

from src.data.batch import split_of
from src.data.images import Digits
from src.evaluation import geometry
from src.evaluation.geometry import Geometry, between_centres, centres, nearest_by_geodesics, part_of
from src.evaluation.latent_space import LatentSpace
from src.evaluation.task import Subject
from src.runs.errors import UserError
from tests.evaluation.subjects import SETTINGS, Known, MadeUp, built, noisy_curve

ASKED = SETTINGS | {"geometry": True}
STRETCH = torch.tensor([0.01, 100.0]).double()  # of steps along the first coordinate, and along the second


def stretched(z: Tensor) -> Tensor:
    return STRETCH.diag().to(z).expand(len(z), -1, -1)


class Stretched(Known):
    """Steps along the second coordinate count a hundred times as much as along the first."""

    def metric(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Tensor:
        return stretched(z)


class Grooved(Known):
    """Steps are short near the circle of radius 2, and long elsewhere."""

    def metric(self, z: Tensor, given: Any = None, aux: Tensor | None = None) -> Tensor:
        height = 1 + 50 * (1 - (-((z.norm(dim=1) - 2) / 0.5).square()).exp())
        return height.view(-1, 1, 1) * torch.eye(2).to(z)


def bands(size: int = 300) -> MadeUp:
    """Two classes in thin bands that alternate upwards; along a band, points are far apart."""
    generator = torch.Generator().manual_seed(0)
    band = torch.arange(size) % 10
    across = 20 * torch.rand(size, generator=generator)
    up = 0.5 * band + 0.02 * torch.randn(size, generator=generator)
    x, y = torch.stack([across, up, torch.zeros(size)], 1), band % 2
    return MadeUp(split_of(x[:200], y[:200]), split_of(x[200:], y[200:]))


def asked(model_class: type[Known], data: MadeUp) -> Subject:
    return Subject(model_class(data.facts), data, ASKED)


def test_neighbours_by_geodesics_follow_the_metric() -> None:
    known = torch.tensor([[0.0, 0.2], [1.0, 0.0], [9.0, 9.0]]).double()
    at = torch.zeros(1, 2).double()
    assert nearest_by_geodesics(stretched, known, at).tolist() == [1]
    assert nearest_by_geodesics(lambda z: torch.eye(2).to(z).expand(len(z), 2, 2), known, at).tolist() == [0]


def test_a_neighbour_that_only_the_metric_sees_is_a_candidate() -> None:
    """More points than candidates are nearer in straight lines."""
    clutter = torch.stack([torch.linspace(-0.1, 0.1, 50), torch.full((50,), 0.5)], 1).double()
    known = torch.cat([clutter, torch.tensor([[2.0, 0.0]]).double()])
    assert nearest_by_geodesics(stretched, known, torch.zeros(1, 2).double()).tolist() == [50]


def test_the_shortest_geodesic_counts_and_not_the_metric_at_its_start() -> None:
    """Around the groove it is nearer than across it."""
    metric = Grooved.metric
    at = torch.tensor([[2.0, 0.0]]).double()
    known = torch.tensor([[1.0, 1.5], [0.6, 0.0]]).double()
    assert (known - at).norm(dim=1).argmin() == 1
    assert nearest_by_geodesics(lambda z: metric(Grooved, z), known, at).tolist() == [0]  # type: ignore[arg-type]


def test_both_accuracies_are_those_of_the_same_points() -> None:
    data = bands()
    scores = Geometry().scores(asked(Stretched, data))
    assert scores["geodesic_1nn"] == 1.0 and scores["euclidean_1nn"] < 0.9
    assert scores["geodesic_energy"] == pytest.approx(1.0)  # the metric is the same everywhere
    alone = MadeUp(data.train, data.train)
    alone.test_is_train = True
    part = part_of(asked(Stretched, alone))
    assert len(part.known) == len(part.asked) == 100
    assert not (part.known.unsqueeze(1) == part.asked).all(2).any()


def test_energies_between_classes_are_below_those_of_straight_lines() -> None:
    angle = torch.arange(200) % 4 * 1.5 + 0.1 * torch.randn(200, generator=torch.Generator().manual_seed(0))
    x = torch.stack([2 * angle.cos(), 2 * angle.sin(), torch.zeros(200)], 1)
    subject = asked(Grooved, MadeUp(split_of(x, torch.arange(200) % 4)))
    found = between_centres(subject)
    assert len(found.energy) == 6 and (found.energy <= found.straight_energy).all()
    ratio = (found.energy / found.straight_energy).mean()
    assert Geometry().scores(subject)["geodesic_energy"] == pytest.approx(ratio.item()) and ratio < 0.5
    assert (found.points(30).norm(dim=2) - 2).abs().max() < 0.6  # they follow the groove


def test_centres_are_points_of_their_class_nearest_to_its_mean() -> None:
    x = torch.tensor([[0.0, 0, 0], [1, 0, 0], [5, 0, 0], [9, 9, 0], [8, 8, 0], [2, 2, 0]])
    subject = asked(Stretched, MadeUp(split_of(x, torch.tensor([0, 0, 0, 1, 1, 1]))))
    assert centres(subject, subject.test_latents).tolist() == [1, 4]


def test_data_without_classes_have_geodesics_between_random_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry, "ENDS", 3)
    subject = asked(Stretched, MadeUp(split_of(noisy_curve())))
    assert list(Geometry().scores(subject)) == ["geodesic_energy"] and len(between_centres(subject).energy) == 3


def test_the_map_shows_all_geodesics_of_a_plane() -> None:
    figures = dict(Geometry().figures(asked(Stretched, bands())))
    assert list(figures) == ["geodesics"]
    axes = figures["geodesics"].axes[0]
    (lines,) = [found for found in axes.collections if isinstance(found, LineCollection)]
    assert len(lines.get_segments()) == 1 and "Stretched" in axes.get_title()
    background = np.asarray(axes.images[0].get_array())
    np.testing.assert_allclose(background, 0.0, atol=1e-6)  # log10 of the root of the determinant, 1


def test_nothing_is_done_unless_it_is_asked_for() -> None:
    subject = Subject(Stretched(bands().facts), bands(), SETTINGS)
    assert Geometry().scores(subject) == {} and not list(Geometry().figures(subject))


def test_a_model_without_a_metric_is_refused_at_the_start() -> None:
    data = bands()
    assert not Geometry().fits(Known(data.facts), data)
    Geometry().check(Known(data.facts), data, SETTINGS)
    with pytest.raises(UserError, match="needs a model with latents"):
        Geometry().check(Known(data.facts), data, ASKED)


@torch.no_grad()
def test_a_kernel_without_derivatives_is_refused_at_the_start_and_leaves_no_grid() -> None:
    data = Digits(batch_size=64)
    model = built(data, "model=sas", "active_set.size=20", "kernel=matern52", "kernel.base_kernel.nu=0.5")
    with pytest.raises(UserError, match="no derivative"):
        Geometry().check(model, data, ASKED)
    arrays = LatentSpace().artifacts(Subject(model, data, SETTINGS))
    assert "grid_mean" in arrays and "grid_metric" not in arrays


@torch.no_grad()
@pytest.mark.parametrize("name", ["sas", "vae"])
def test_the_grid_of_a_real_model_has_its_metric_where_it_says(name: str) -> None:
    data = Digits(batch_size=64)
    model = built(data, f"model={name}", *(["active_set.size=20"] if name == "sas" else []))
    Geometry().check(model, data, ASKED)
    arrays = LatentSpace().artifacts(Subject(model, data, SETTINGS))
    assert arrays["grid_metric"].shape == (32, 32, 3)
    for row, column in ((0, 0), (3, 17), (31, 8)):
        at = torch.tensor([[arrays["grid_across"][column], arrays["grid_up"][row]]])
        g = model.metric(at)[0]
        np.testing.assert_allclose(arrays["grid_metric"][row, column], [g[0, 0], g[0, 1], g[1, 1]], rtol=1e-3)


def test_three_dimensions_have_scores_and_no_map(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(geometry, "ASKED", 4)
    monkeypatch.setattr(geometry, "ENDS", 3)
    data = Digits(batch_size=64)
    model = built(data, "model=sas", "active_set.size=20", "model.latent_dim=3")
    subject = Subject(model, data, ASKED)
    with torch.no_grad():
        scores = Geometry().scores(subject)
        assert not list(Geometry().figures(subject))
    assert scores["geodesic_energy"] <= 1 and 0 <= scores["geodesic_1nn"] <= 1
