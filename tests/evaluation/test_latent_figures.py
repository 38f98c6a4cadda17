"""The figures show what was decoded, where it was decoded."""

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgba_array
from matplotlib.figure import Figure
from torch import Tensor
from torch.distributions import Normal

from src.evaluation import latent_figures as figures
from src.evaluation.canvas import PALETTE, save
from src.evaluation.point_figures import reconstructions
from src.evaluation.shown import Limits

GREY, COLOUR, VECTOR = (1, 4, 6), (3, 4, 6), (12,)
SHAPES = pytest.mark.parametrize("shape", [GREY, COLOUR, VECTOR], ids=["grey", "colour", "vector"])
LATENT_DIMS = pytest.mark.parametrize("latent_dim", [1, 2, 3])


def latents(n: int, latent_dim: int) -> Tensor:
    """Spread most along the last coordinates, so that of three the second and third are drawn."""
    z = torch.randn(n, latent_dim, generator=torch.Generator().manual_seed(0))
    return z * torch.arange(1, latent_dim + 1) + 0.5


def decoder(shape: tuple[int, ...]) -> figures.Decode:
    """A mean within [0, 1] and an sd that are different for every latent point and pixel."""
    pixels = torch.linspace(0, 1, int(np.prod(shape))).reshape(shape)

    def decode(z: Tensor) -> Normal:
        assert not torch.is_grad_enabled()
        weights = torch.arange(1.0, z.shape[1] + 1)
        level = (z @ weights).reshape(-1, *[1] * len(shape))
        return Normal((level + 3 * pixels).sin() / 2 + 0.5, 0.1 + (level / 9 + pixels).square())

    return decode


def panel(figure: Figure, i: int = 0) -> Any:
    """The i-th axes; Any, since matplotlib's types do not say what was drawn."""
    return figure.axes[i]


@pytest.mark.parametrize(
    ("latent_dim", "names"), [(1, ["$z_{1}$"]), (2, ["$z_{1}$", "$z_{2}$"]), (3, ["$z_{2}$", "$z_{3}$"])]
)
def test_the_widest_coordinates_are_drawn_and_named(latent_dim: int, names: list[str]) -> None:
    z = latents(200, latent_dim)
    for figure in (figures.latent_map(z, None, decoder(GREY), "title"), figures.decoded_grid(z, decoder(GREY), GREY)):
        axes = panel(figure)
        assert [name for name in (axes.get_xlabel(), axes.get_ylabel()) if name] == names


@LATENT_DIMS
@SHAPES
def test_the_background_is_the_sd_decoded_there(latent_dim: int, shape: tuple[int, ...]) -> None:
    z, decode = latents(200, latent_dim), decoder(shape)
    (image,) = panel(figures.latent_map(z, None, decode, "title")).images
    background, (left, right, bottom, top) = image.get_array(), image.get_extent()
    rows, columns = background.shape
    assert image.origin == "lower"
    for row, column in product({0, rows // 3, rows - 1}, {0, columns // 3, columns - 1}):
        point = z.mean(0, keepdim=True)
        point[0, -1 if latent_dim == 1 else -2] = left + (column + 0.5) / columns * (right - left)
        if latent_dim > 1:
            point[0, -1] = bottom + (row + 0.5) / rows * (top - bottom)
        with torch.no_grad():
            expected = decode(point).stddev.mean().item()
        assert background[row, column] == pytest.approx(expected, rel=1e-4)


@LATENT_DIMS
def test_points_lie_where_they_are_within_the_axes(latent_dim: int) -> None:
    z = latents(300, latent_dim)
    axes = panel(figures.latent_map(z, None, decoder(GREY), "title"))
    offsets = np.asarray(axes.collections[0].get_offsets())
    drawn = z[:, -2:].numpy()
    np.testing.assert_allclose(np.sort(offsets[:, : drawn.shape[1]], 0), np.sort(drawn, 0), rtol=1e-6)
    low, high = np.transpose([axes.get_xlim(), axes.get_ylim()])
    assert (low < offsets).all() and (offsets < high).all()


@pytest.mark.parametrize(("n", "expected"), [(300, 300), (7000, 5000)])
def test_at_most_5000_points_are_drawn_and_rasterised(n: int, expected: int) -> None:
    (points,) = panel(figures.latent_map(latents(n, 2), torch.arange(n) % 10, decoder(GREY), "title")).collections
    assert len(points.get_offsets()) == expected
    assert points.get_rasterized()


@LATENT_DIMS
def test_each_class_has_a_colour_of_its_own_and_a_name(latent_dim: int) -> None:
    z, y = latents(200, latent_dim), torch.arange(200) % 10
    figure = figures.latent_map(z, y, decoder(GREY), "title")
    (points,) = panel(figure).collections
    colour_of = dict(
        zip(np.asarray(points.get_offsets())[:, 0], map(tuple, points.get_facecolor()[:, :3]), strict=True)
    )
    across = z[:, max(0, latent_dim - 2)].numpy()
    palette = to_rgba_array(PALETTE)[:, :3]
    assert all(colour_of[u] == tuple(palette[label]) for u, label in zip(across, y, strict=True))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [str(i) for i in range(10)]


@LATENT_DIMS
def test_every_class_is_named_even_without_a_point(latent_dim: int) -> None:
    """Colours belong to class ids, so that they are the same in the maps of all runs."""
    names = ["zygote", "2 cells", "4 cells"]
    figure = figures.latent_map(latents(50, latent_dim), torch.full((50,), 2), decoder(VECTOR), "title", names)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == names
    (points,) = panel(figure).collections
    assert (points.get_facecolor()[:, :3] == to_rgba_array(PALETTE)[2, :3]).all()


def test_one_latent_dimension_gives_each_class_a_row() -> None:
    z, y = latents(200, 1), torch.arange(200) % 4
    (points,) = panel(figures.latent_map(z, y, decoder(GREY), "title")).collections
    height_of = dict(points.get_offsets())
    rows = [int(4 * (height_of[u] + 0.5)) for u in z[:, 0].numpy()]
    assert rows == y.tolist()


@LATENT_DIMS
def test_many_labels_are_a_continuous_map_and_none_one_colour(latent_dim: int) -> None:
    z = latents(200, latent_dim)
    continuous = figures.latent_map(z, z[:, 0], decoder(GREY), "title")
    assert [axes.get_ylabel() or axes.get_xlabel() for axes in continuous.axes[1:]] == ["predictive sd", "label"]
    np.testing.assert_allclose(np.sort(panel(continuous).collections[0].get_array()), z[:, 0].sort().values)
    plain = figures.latent_map(z, None, decoder(GREY), "title")
    assert len(np.unique(panel(plain).collections[0].get_facecolor(), axis=0)) == 1
    assert not plain.legends


@LATENT_DIMS
@pytest.mark.parametrize("shape", [GREY, COLOUR], ids=["grey", "colour"])
def test_each_tile_is_the_image_decoded_there(latent_dim: int, shape: tuple[int, ...]) -> None:
    z, decode, side = latents(500, latent_dim), decoder(shape), 5
    axes = panel(figures.decoded_grid(z, decode, shape, side))
    picture = np.atleast_3d(axes.images[0].get_array())
    _, height, width = shape
    rows = side if latent_dim > 1 else 1
    assert picture.shape == (rows * height, side * width, shape[0])
    ticks = [torch.linspace(v.quantile(0.01).item(), v.quantile(0.99).item(), side) for v in z[:, -2:].T]
    for row, column in product(range(rows), range(side)):  # rows upwards
        point = z.mean(0, keepdim=True)
        point[0, -2:] = torch.stack([ticks[0][column], *(t[row] for t in ticks[1:])])
        with torch.no_grad():
            expected = decode(point).mean[0].permute(1, 2, 0).numpy()
        top = (rows - 1 - row) * height
        found = picture[top : top + height, column * width : (column + 1) * width]
        np.testing.assert_allclose(found, expected, atol=1e-5)
    assert axes.images[0].origin == "upper"
    left, right, bottom, top_edge = axes.images[0].get_extent()
    cell = (right - left) / side
    assert left + cell / 2 == pytest.approx(ticks[0][0].item())
    assert axes.get_aspect() * (top_edge - bottom) / (right - left) == pytest.approx(rows * height / (side * width))


def test_what_is_black_and_white_in_a_grid_can_be_chosen() -> None:
    z, decode = latents(50, 2), decoder(GREY)
    plain = panel(figures.decoded_grid(z, decode, GREY, 4)).images[0].get_array()
    wide = panel(figures.decoded_grid(z, decode, GREY, 4, Limits(-2, 3))).images[0].get_array()
    np.testing.assert_allclose(wide, (plain + 2) / 5, rtol=1e-6)


@LATENT_DIMS
def test_vectors_are_curves_in_their_cells(latent_dim: int) -> None:
    z, decode, side = latents(500, latent_dim), decoder(VECTOR), 4
    figure = figures.decoded_grid(z, decode, VECTOR, side)
    grid = figures.latent_grid(z, side, tail=0.01)
    curves = np.array(panel(figure).collections[0].get_segments())
    with torch.no_grad():
        mean = decode(grid.points).mean.numpy()
    assert curves.shape == (*mean.shape, 2)
    left, right, bottom, top = grid.extent
    rows = len(mean) // side
    within = (curves[..., 1] - bottom) / (top - bottom) * rows - np.arange(len(mean))[:, None] // side
    np.testing.assert_allclose(within, 0.1 + 0.8 * (mean - mean.min()) / np.ptp(mean), atol=1e-5)
    cells = np.floor((curves[..., 0] - left) / (right - left) * side)
    assert (cells == np.arange(len(mean))[:, None] % side).all()


def test_collapsed_latents_and_a_constant_sd_can_be_drawn(tmp_path: Path) -> None:
    """What a posterior collapse looks like: all points in one place, everything decoded alike."""
    z = torch.zeros(20, 2)

    def decode(z: Tensor) -> Normal:
        return Normal(torch.full((len(z), *GREY), 0.5), 0.1)

    save(figures.latent_map(z, torch.arange(20) % 2, decode, "title"), tmp_path / "map.png")
    save(figures.decoded_grid(z, decode, GREY, 3), tmp_path / "grid.png")
    x = torch.zeros(2, *GREY)
    save(reconstructions(x, x, x, range(2)), tmp_path / "reconstructions.png")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["grid.png", "map.png", "reconstructions.png"]


def test_a_map_of_many_dimensions_says_which_it_shows_and_why() -> None:
    z = torch.randn(30, 5) * torch.tensor([1.0, 3.0, 1.0, 1.0, 5.0])
    title = figures.latent_map(z, None, decoder(GREY), "VAE").axes[0].get_title()
    assert title == "VAE\n$z_{2}$ and $z_{5}$, which vary most of 5 dimensions"
    assert figures.latent_map(z[:, :2], None, decoder(GREY), "VAE").axes[0].get_title() == "VAE"
