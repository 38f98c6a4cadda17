"""The figures of test points show what was observed and what was predicted of it."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from src.evaluation import point_figures as figures
from src.evaluation.shown import Limits
from tests.evaluation.test_latent_figures import COLOUR, GREY, panel


@pytest.mark.parametrize("shape", [GREY, COLOUR], ids=["grey", "colour"])
def test_reconstructions_are_three_named_rows(shape: tuple[int, ...]) -> None:
    x = torch.rand(12, *shape)
    mean, sd = x * 3 - 1, x + 0.5
    figure = figures.reconstructions(x[:10], mean[:10], sd[:10], range(10))
    assert [axes.get_ylabel() for axes in figure.axes] == ["image", "reconstruction", "predictive sd"]
    width = shape[2] + 1  # a white column between images
    for i, images in enumerate([x, mean.clamp(0, 1), sd.mean(1, keepdim=True)]):
        row = np.atleast_3d(panel(figure, i).images[0].get_array())
        assert row.shape == (shape[1], 10 * width, images.shape[1])
        np.testing.assert_allclose(row[:, 9 * width : -1], images[9].permute(1, 2, 0))
    assert panel(figure, 2).images[0].get_clim() == (0, pytest.approx(sd[:10].mean(1).max().item()))


def test_pixels_that_nobody_has_seen_have_a_colour_of_their_own() -> None:
    """In place of the black that bytes have there, or of NaN."""
    x, mask = torch.rand(3, *GREY), torch.rand(3, *GREY) < 0.5
    figure = figures.reconstructions(x.masked_fill(~mask, math.nan), x, x, range(3), mask=mask)
    shown = np.asarray(figure.axes[0].images[0].get_array())[:, : GREY[2]]
    seen = mask[0, 0].numpy()
    np.testing.assert_allclose(shown[seen], np.repeat(x[0, 0].numpy()[seen][:, None], 3, 1))
    assert len(np.unique(shown[~seen], axis=0)) == 1 and np.ptp(shown[~seen][0]) > 0.2


@pytest.mark.parametrize("n", [1, 7, 10])
def test_reconstructions_of_vectors_are_curves_with_a_band(n: int) -> None:
    x, mean, sd = torch.randn(3, 12, 9)
    figure = figures.reconstructions(x[:n], mean[:n], sd[:n].abs(), range(n))
    panels: list[Any] = [axes for axes in figure.axes if axes.axison]
    assert len(panels) == n
    observation, reconstruction = panels[-1].lines
    np.testing.assert_allclose(observation.get_ydata(), x[n - 1])
    np.testing.assert_allclose(reconstruction.get_ydata(), mean[n - 1])
    band = panels[-1].collections[0].get_paths()[0].vertices
    np.testing.assert_allclose(band[:, 1].max(), (mean + 2 * sd.abs())[n - 1].max(), rtol=1e-6)
    np.testing.assert_allclose(band[:, 1].min(), (mean - 2 * sd.abs())[n - 1].min(), rtol=1e-6)


def test_columns_with_names_are_shown_by_name() -> None:
    x, mean, sd = torch.randn(3, 12, 9)
    names = [f"column {i}" for i in range(8)] + ["a name that is much too long to be shown"]
    columns = figures.Columns(names, "standardised value")
    figure = figures.reconstructions(x, mean, sd.abs(), range(7, 19), columns)
    assert len(figure.axes) == 5
    axes = panel(figure, 3)
    bars, (cross,) = axes.containers[0], axes.lines[1:]
    np.testing.assert_allclose(cross.get_xydata(), np.c_[x[3], np.arange(9)])
    np.testing.assert_allclose(bars.lines[0].get_xydata(), np.c_[mean[3], np.arange(9)])
    ends = np.array(bars.lines[2][0].get_segments())[:, :, 0]
    np.testing.assert_allclose(ends, np.c_[mean[3] - 2 * sd[3].abs(), mean[3] + 2 * sd[3].abs()], rtol=1e-5)
    shown = [text.get_text() for text in panel(figure).get_yticklabels()]
    assert shown[:8] == names[:8] and shown[8] == "a name that is much too…"
    assert [axes.get_title() for axes in figure.axes] == [f"test point {row + 1}" for row in range(7, 12)]
    assert panel(figure).get_ylim() == (8.5, -0.5) and axes.get_xlabel() == "standardised value"
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["observation", "reconstruction ± 2 sd"]


def test_more_than_thirty_columns_are_curves() -> None:
    x = torch.randn(2, 31)
    figure = figures.reconstructions(x, x, x.abs(), range(2), figures.Columns([str(i) for i in range(31)]))
    assert len(panel(figure).lines) == 2 and panel(figure).lines[0].get_xydata().shape == (31, 2)


@pytest.mark.parametrize(("size", "title"), [(4, "all columns"), (33, "the worst 30 of 33 columns")])
def test_the_worst_columns_come_first(size: int, title: str) -> None:
    rmse = torch.randperm(size, generator=torch.Generator().manual_seed(0)).float()
    figure = figures.column_errors(rmse, [f"c{value:g}" for value in rmse], "value")
    axes = panel(figure)
    worst = sorted(range(size), reverse=True)[:30]
    assert [bar.get_width() for bar in axes.patches] == worst
    assert [text.get_text() for text in axes.get_yticklabels()] == [f"c{value}" for value in worst]
    assert axes.get_title() == f"Test RMSE, {title}" and axes.get_ylim()[0] > axes.get_ylim()[1]


def test_an_sd_that_is_one_number_per_image_is_written_and_another_is_drawn() -> None:
    x, same = torch.rand(4, *GREY), torch.tensor([0.1, 0.2, 0.3, 0.4]).view(4, 1, 1, 1).expand(4, *GREY)
    written = figures.reconstructions(x, x, same, range(4))
    assert [axes.get_ylabel() for axes in written.axes] == ["image", "reconstruction"]
    assert [tick.get_text() for tick in written.axes[-1].get_xticklabels()] == ["0.100", "0.200", "0.300", "0.400"]
    drawn = figures.reconstructions(x, x, torch.rand(4, *GREY), range(4))
    assert "predictive sd" in [axes.get_ylabel() for axes in drawn.axes]


def test_black_and_white_are_the_limits_of_the_data() -> None:
    """Standardised pixels keep their greys instead of turning black and white, and the figure says between what."""
    x, mask = torch.randn(4, *GREY), torch.rand(4, *GREY) < 0.5
    limits = Limits(-3.0, 5.0)
    greys, width = ((x + 3) / 8).clamp(0, 1), GREY[2]
    figure = figures.reconstructions(x, x, torch.rand(4, *GREY), range(4), limits=limits)
    assert [axes.get_ylabel() for axes in figure.axes[:2]] == ["image\n-3 to 5", "reconstruction"]
    for i in range(2):
        np.testing.assert_allclose(panel(figure, i).images[0].get_array()[:, :width], greys[0, 0], rtol=1e-6)
    filled = figures.imputations(x, mask, ~mask, x, torch.rand(4, *GREY), limits)
    assert filled.axes[0].get_ylabel() == "seen\n-3 to 5"
    np.testing.assert_allclose(panel(filled, 1).images[0].get_array()[:, :width], greys[0, 0], rtol=1e-6)
