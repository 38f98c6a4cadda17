"""Paths between two points of the latent explorer, in a real browser: `make test-browser`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from src.gp.geodesics import geodesics
from src.report.__main__ import main
from tests.report.handmade import write_explorer, write_run
from tests.report.test_browser import Opened, browser

__all__ = ["browser"]
pytestmark = pytest.mark.browser

SIDE = 24
AXIS = np.linspace(-3, 3, SIDE, dtype=np.float32)
LABELS = ("SAS-GP, MNIST", "VAE, MNIST", "GP-LVM, MNIST")


def hill(z: Tensor) -> Tensor:
    """A metric with a hill in the middle, and a preferred direction."""
    height = 1 + 20 * (-(z.square().sum(1)) / 0.8).exp()
    base = torch.tensor([[1.0, 0.3], [0.3, 0.8]]).to(z)
    return height.view(-1, 1, 1) * base


def grid_metric() -> np.ndarray:
    up, across = np.meshgrid(AXIS, AXIS, indexing="ij")
    g = hill(torch.from_numpy(np.stack([across.ravel(), up.ravel()], 1)).double())
    return g[:, [0, 0, 1], [0, 1, 1]].float().numpy().reshape(SIDE, SIDE, 3)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with a metric that is known everywhere, one of vectors, and one without a metric."""
    outputs, rng = tmp_path_factory.mktemp("geodesics"), np.random.default_rng(0)
    for model, shape in (("sas", (1, 8, 8)), ("vae", (6,)), ("gplvm", (1, 8, 8))):
        arrays: dict[str, np.ndarray] = {
            "grid_across": AXIS,
            "grid_up": AXIS,
            "grid_mean": rng.integers(0, 256, (SIDE, SIDE, *shape), np.uint8),
            "grid_sd": rng.uniform(0.1, 0.2, (SIDE, SIDE)).astype(np.float32),
        }
        arrays |= {} if model == "gplvm" else {"grid_metric": grid_metric()}
        write_explorer(write_run(outputs, model, active_set=None), shape, 2, **arrays)
    main([str(outputs)])
    return outputs


@pytest.fixture(params=["desktop", "phone"])
def opened(request: pytest.FixtureRequest, browser: Any, made: Path) -> Iterator[Opened]:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "color_scheme": "dark"}
    page = Opened(browser, made, **(phone if request.param == "phone" else {}))
    page.choose(LABELS[0])
    yield page
    assert page.complaints == []
    page.context.close()


def press_at(opened: Opened, across: float, up: float) -> None:
    """A click or a touch at a part of the plane."""
    plane = opened.page.locator("#plane")
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    at = box["x"] + across * box["width"], box["y"] + (1 - up) * box["height"]
    touch = opened.page.evaluate("navigator.maxTouchPoints > 0")
    opened.page.touchscreen.tap(*at) if touch else opened.page.mouse.click(*at)


def found(opened: Opened, which: str) -> np.ndarray:
    path: np.ndarray = np.array(opened.page.evaluate(f"paths.found.{which}"))
    return path


def test_two_presses_show_both_paths_and_what_is_decoded_along_them(opened: Opened, made: Path) -> None:
    page = opened.page
    assert not page.is_visible("#strips")
    page.check("#path-on")
    assert "Choose the start" in page.inner_text("#path-note")
    press_at(opened, 0.15, 0.48)
    assert "Choose the end" in page.inner_text("#path-note")
    press_at(opened, 0.86, 0.5)
    line, curve = found(opened, "line"), found(opened, "curve")
    ends = np.array(page.evaluate("paths.ends.map(([c, r]) => [explorer.data.across[c], explorer.data.up[r]])"))
    np.testing.assert_allclose([line[0], line[-1]], ends)
    np.testing.assert_allclose([curve[0], curve[-1]], ends)
    np.testing.assert_allclose(line, np.linspace(ends[0], ends[1], len(line)), atol=1e-9)
    assert np.abs(curve[:, 1]).max() > 0.7  # around the hill
    (folder,) = made.glob("sas-*")
    with np.load(folder / "explorer.npz") as arrays:
        mean = arrays["grid_mean"]
    for strip, path in (("straight-strip", line), ("geodesic-strip", curve)):
        for i in (0, 2, 8):
            column, row = np.abs(path[4 * i][:, None] - AXIS).argmin(1)
            np.testing.assert_array_equal(opened.image(f"{strip}-{i}")[..., 0], mean[row, column, 0])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("ends", [((3, 11), (20, 12)), ((2, 2), (21, 20)), ((12, 3), (11, 20)), ((1, 20), (5, 22))])
def test_the_geodesic_is_that_of_the_library(browser: Any, made: Path, ends: Any) -> None:
    """Of the same metric; the page has a coarse grid, and 32 straight pieces."""
    opened = Opened(browser, made)
    opened.choose(LABELS[0])
    opened.page.evaluate("ends => { paths.on = true; paths.ends = ends; findPaths(); }", ends)
    a, b = (torch.from_numpy(AXIS[list(end)]).double().unsqueeze(0) for end in ends)
    truth = geodesics(hill, a, b, torch.from_numpy(np.stack([AXIS, AXIS], 1)))
    length, straight = opened.page.evaluate("[lengthOf(paths.found.curve), lengthOf(paths.found.line)]")
    energies = opened.page.evaluate("[energyOf(paths.found.curve), energyOf(paths.found.line)]")
    assert length == pytest.approx(truth.length.item(), rel=0.02)
    assert straight == pytest.approx(truth.straight_length.item(), rel=0.02)
    assert energies[0] <= energies[1] * (1 + 1e-9)
    curve = truth.points(33)[0].numpy()
    assert np.abs(found(opened, "curve") - curve).max() < 0.35
    opened.context.close()


def test_no_geodesic_has_more_energy_than_the_straight_line(browser: Any, made: Path) -> None:
    opened = Opened(browser, made)
    opened.choose(LABELS[0])
    rng = np.random.default_rng(1)
    for ends in rng.integers(0, SIDE, (40, 2, 2)).tolist():
        opened.page.evaluate("ends => { paths.ends = ends; findPaths(); }", ends)
        curve, line = opened.page.evaluate("[energyOf(paths.found.curve), energyOf(paths.found.line)]")
        assert curve <= line * (1 + 1e-9)
    opened.context.close()


def test_keys_choose_the_ends_and_escape_forgets_them(opened: Opened) -> None:
    page = opened.page
    page.check("#path-on")
    page.focus("#plane")
    page.keyboard.press("Enter")
    start = page.evaluate("[explorer.column, explorer.row]")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    page.keyboard.press(" ")
    assert page.evaluate("paths.ends") == [start, [start[0] + 6, start[1]]] and page.is_visible("#strips")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    assert page.evaluate("paths.ends.length") == 1 and not page.is_visible("#strips")  # a third one starts anew
    page.keyboard.press("Escape")
    assert page.evaluate("paths.ends.length") == 0 and "Choose the start" in page.inner_text("#path-note")


def test_nothing_changes_unless_it_is_asked_for(opened: Opened) -> None:
    press_at(opened, 0.2, 0.2)
    press_at(opened, 0.8, 0.8)
    assert opened.page.evaluate("[paths.ends.length, paths.found]") == [0, None]
    assert opened.page.inner_text("#path-note") == "" and not opened.page.is_visible("#strips")


def test_vectors_have_paths_too_and_a_run_without_a_metric_has_no_choice(opened: Opened) -> None:
    page = opened.page
    page.check("#path-on")
    press_at(opened, 0.2, 0.2)
    opened.choose(LABELS[1])
    assert page.evaluate("paths.ends.length") == 0 and not page.is_checked("#path-on")
    page.check("#path-on")
    press_at(opened, 0.2, 0.2)
    press_at(opened, 0.8, 0.7)
    assert (
        page.is_visible("#geodesic-strip-0")
        and page.evaluate("document.getElementById('geodesic-strip-0').width") == 320
    )
    opened.choose(LABELS[2])
    assert not page.is_visible("#path-on") and page.is_visible("#plane")
