"""The page in a real browser: `make test-browser`."""

import io
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from src.report.__main__ import main
from src.training import experiment
from tests.configs import composed
from tests.report.handmade import write_explorer, write_run

pytestmark = pytest.mark.browser

MODELS = ("sas", "vae")
LABELS = {"sas": "SAS-GP, digits", "vae": "VAE, digits"}
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
PIXELS = "id => [...document.getElementById(id).getContext('2d').getImageData(0, 0, 8, 8).data]"


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two small real runs, some made by hand, and their report."""
    outputs = tmp_path_factory.mktemp("outputs")
    for model in MODELS:
        options = ["trainer.max_epochs=3", "active_set.size=50", "evaluation.active_sets=1", f"paths.outputs={outputs}"]
        experiment.run(composed(f"model={model}", "dataset=digits", *options), model, "digits")
    for seed in range(3):
        write_run(outputs, seed=seed, metrics={"rmse": 0.3 - 0.05 * seed}, loss=[1.0, 0.5])
    write_run(outputs, seed=3, status="failed", command='python -m src.train "</script><b>"')
    (outputs / "<i>foreign").mkdir()
    main([str(outputs)])
    return outputs


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    path = next((found for name in NAMES if (found := shutil.which(name))), None)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


class Opened:
    """A page, with what it complained of and what it asked for."""

    def __init__(self, browser: Any, outputs: Path, **options: Any) -> None:
        self.context = browser.new_context(**options)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto((outputs / "report" / "index.html").as_uri())
        self.wait_for("explorer.data !== null")

    def wait_for(self, expression: str, arg: Any = None) -> None:
        """Ask again and again from outside: the page's own policy forbids the code that Playwright would wait with."""
        end = time.monotonic() + 30
        while not self.page.evaluate(expression, arg):
            assert time.monotonic() < end, expression
            self.page.wait_for_timeout(20)

    def choose(self, label: str) -> None:
        self.page.select_option("#which", label=label)
        self.wait_for("label => explorer.data.title === label", label)

    def names(self) -> list[str]:
        names: list[str] = self.page.eval_on_selector_all(
            "tr.run:not([hidden])", "rows => rows.map(row => row.dataset.run)"
        )
        return names

    def image(self, canvas: str) -> np.ndarray:
        return np.array(self.page.evaluate(PIXELS, canvas), np.uint8).reshape(8, 8, 4)


@pytest.fixture(params=["desktop", "phone"])
def opened(request: pytest.FixtureRequest, browser: Any, trained: Path) -> Iterator[Opened]:
    """The page on a screen; whatever a test did, nothing was complained of and no request left the page."""
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True, "color_scheme": "dark"}
    page = Opened(browser, trained, **(phone if request.param == "phone" else {}))
    yield page
    assert page.complaints == []
    assert [url for url in page.requests if not url.startswith("data:")] == page.requests[:1]
    page.context.close()


def decoded(trained: Path, model: str, z: tuple[float, float]) -> np.ndarray:
    """What the run's own checkpoint decodes, [8, 8]."""
    (folder,) = trained.glob(f"{model}-digits-*")
    loaded: Any = experiment.load_model(folder)
    with torch.no_grad():
        image: np.ndarray = loaded.decode(torch.tensor([z]), loaded.given(), None).mean[0, 0].clamp(0, 1).numpy()
    return image


def grid_point(opened: Opened) -> tuple[float, float]:
    """Where the explorer says that it is."""
    z = opened.page.evaluate("[explorer.data.across[explorer.column], explorer.data.up[explorer.row]]")
    return z[0], z[1]


def assert_shows(opened: Opened, trained: Path, model: str) -> None:
    """The image on the screen is the model's own, to half a level of a byte; the page rounds z to five figures."""
    image = opened.image("decoded")
    assert (image[..., 0] == image[..., 1]).all() and (image[..., 3] == 255).all()
    difference = np.abs(image[..., 0] - 255 * decoded(trained, model, grid_point(opened)))
    assert difference.max() <= 0.55
    assert image[..., 0].std() > 5  # not a blank


@pytest.mark.parametrize("model", MODELS)
def test_the_image_under_the_pointer_is_the_models_own(model: str, opened: Opened, trained: Path) -> None:
    opened.choose(LABELS[model])
    plane = opened.page.locator("#plane")
    plane.scroll_into_view_if_needed()
    box = plane.bounding_box()
    seen = []
    for x, y in ((0.1, 0.2), (0.5, 0.5), (0.83, 0.31), (0.98, 0.02)):
        opened.page.mouse.move(box["x"] + x * box["width"], box["y"] + y * box["height"])
        across, up = opened.page.evaluate("[explorer.data.across, explorer.data.up]")
        step = across[1] - across[0], up[1] - up[0]
        pointed = across[0] + (x * len(across) - 0.5) * step[0], up[-1] - (y * len(up) - 0.5) * step[1]
        assert np.abs((np.array(grid_point(opened)) - pointed) / step).max() <= 0.55  # the nearest point of the grid
        assert_shows(opened, trained, model)
        assert f"{abs(grid_point(opened)[0]):.2f}, " in opened.page.inner_text("#here")
        seen.append(opened.image("decoded"))
    assert not np.array_equal(seen[0], seen[1])


def test_arrows_move_and_enter_picks_the_nearest_point(opened: Opened, trained: Path) -> None:
    opened.choose(LABELS["sas"])
    opened.page.focus("#plane")
    before = opened.page.evaluate("[explorer.column, explorer.row]")
    for key in ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowLeft", "ArrowDown", "ArrowDown"):
        opened.page.keyboard.press(key)
    after = opened.page.evaluate("[explorer.column, explorer.row]")
    assert after == [before[0] + 1, before[1] - 1]
    assert_shows(opened, trained, "sas")
    opened.page.keyboard.press("Enter")
    points = np.array(opened.page.evaluate("explorer.data.points"))
    scale = np.array(opened.page.evaluate("[explorer.data.across, explorer.data.up]"))
    distance = ((points - grid_point(opened)) / (scale[:, -1] - scale[:, 0])) ** 2
    assert opened.page.evaluate("explorer.picked") == distance.sum(1).argmin()
    for _ in range(60):
        opened.page.keyboard.press("ArrowRight")
    assert opened.page.evaluate("explorer.column") == scale.shape[1] - 1  # stops at the edge


def point_on_screen(opened: Opened, i: int) -> tuple[float, float]:
    box = opened.page.locator("#plane").bounding_box()
    code = "i => ['across', 'up'].map((axis, k) => place(explorer.data.points[i][k], explorer.data[axis], 1))"
    across, up = opened.page.evaluate(code, i)
    return box["x"] + across * box["width"], box["y"] + (1 - up) * box["height"]


def test_a_click_or_a_touch_on_a_point_shows_its_image_and_reconstruction(opened: Opened, trained: Path) -> None:
    opened.choose(LABELS["vae"])
    opened.page.locator("#plane").scroll_into_view_if_needed()
    (folder,) = trained.glob("vae-digits-*")
    arrays = np.load(io.BytesIO((folder / "explorer.npz").read_bytes()))
    touch = opened.page.evaluate("navigator.maxTouchPoints > 0")
    for i in (5, 17):
        x, y = point_on_screen(opened, i)
        opened.page.touchscreen.tap(x, y) if touch else opened.page.mouse.click(x, y)
        picked = opened.page.evaluate("explorer.picked")
        assert np.allclose(arrays["z"][picked], arrays["z"][i], atol=0.2)  # there may be a nearer one
        np.testing.assert_array_equal(opened.image("image")[..., 0], arrays["images"][picked, 0])
        np.testing.assert_array_equal(opened.image("reconstruction")[..., 0], arrays["reconstructions"][picked, 0])
        assert f"label {arrays['labels'][picked]}" in opened.page.inner_text("#picked")
        assert_shows(opened, trained, "vae")  # a tap moves there, too


def test_a_finger_that_moves_over_the_plane_shows_what_is_there(browser: Any, trained: Path) -> None:
    opened = Opened(browser, trained, viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    opened.choose(LABELS["vae"])
    plane = opened.page.locator("#plane")
    plane.scroll_into_view_if_needed()
    box, top = plane.bounding_box(), opened.page.evaluate("scrollY")
    finger = opened.context.new_cdp_session(opened.page)
    seen = []
    for kind, part in (("touchStart", 0.2), ("touchMove", 0.5), ("touchMove", 0.8), ("touchEnd", None)):
        at = [] if part is None else [{"x": box["x"] + part * box["width"], "y": box["y"] + part * box["height"]}]
        finger.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": at})
        opened.page.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        assert_shows(opened, trained, "vae")
        seen.append(grid_point(opened))
    assert len(set(seen)) == 3 and opened.page.evaluate("scrollY") == top and opened.complaints == []


def test_points_are_coloured_by_label_or_error(opened: Opened) -> None:
    by_label = opened.page.evaluate("pointColours().colours")
    assert len(set(by_label)) == 10 and opened.page.locator("#legend .dot").count() == 10
    opened.page.check("[name=colour][value=error]")
    by_error = opened.page.evaluate("pointColours().colours")
    assert len(set(by_error)) > 20 and opened.page.locator("#legend .bar").count() == 1


def test_sorting_changes_the_order_of_rows(opened: Opened) -> None:
    def column() -> list[str]:
        i = opened.page.eval_on_selector_all("#table th", "cells => cells.findIndex(c => c.textContent === 'RMSE')")
        texts: list[str] = opened.page.eval_on_selector_all(
            "tr.run", f"rows => rows.map(r => r.cells[{i}].textContent)"
        )
        return texts

    unsorted = opened.names()
    opened.page.click("#table th >> text=RMSE")
    rising = [float(text) for text in column() if text]
    assert rising == sorted(rising) and len(rising) == 5 and column()[-1] == ""  # what has no value is last
    opened.page.click("#table th >> text=RMSE")
    assert [float(text) for text in column() if text] == rising[::-1] and column()[-1] == ""
    assert opened.page.get_attribute("#table th[aria-sort]", "aria-sort") == "descending"
    assert sorted(opened.names()) == sorted(unsorted) and opened.names() != unsorted


def test_filtering_changes_rows_and_curves(opened: Opened) -> None:
    curves = opened.page.locator("#panels path").count()
    opened.page.fill("#filter", "mnist done")
    assert len(opened.names()) == 3 and opened.page.inner_text("#count") == "3 of 6 runs"
    assert opened.page.locator("#panels path").count() == 3 < curves
    opened.page.fill("#filter", "nothing like it")
    assert opened.names() == [] and opened.page.locator("#panels path").count() == 0
    opened.page.fill("#filter", "")
    assert len(opened.names()) == 6


def test_a_row_opens_with_the_command_to_repeat_the_run(opened: Opened) -> None:
    opened.page.fill("#filter", "failed")
    opened.page.focus("tr.run:not([hidden]) button")
    opened.page.keyboard.press("Enter")
    assert opened.page.inner_text("tr.details dd code >> nth=0") == 'python -m src.train "</script><b>"'
    opened.page.keyboard.press("Enter")
    assert opened.page.locator("tr.details").count() == 0


def test_a_row_says_what_its_run_noted_about_itself(opened: Opened, trained: Path) -> None:
    """After three epochs the noise is still where it started; the runs that were made by hand noted nothing."""
    for name, expected in (("digits", True), ("failed", False)):
        opened.page.fill("#filter", name)
        opened.page.focus("tr.run:not([hidden]) button")
        opened.page.keyboard.press("Enter")
        assert ("the noise variance is 1." in opened.page.inner_text("tr.details")) == expected
        opened.page.keyboard.press("Enter")


def test_curves_go_against_epoch_or_time(opened: Opened) -> None:
    shapes = "paths => paths.map(path => path.getAttribute('d'))"
    by_epoch = opened.page.eval_on_selector_all("#panels path", shapes)
    opened.page.check("[name=against][value=seconds]")
    by_time = opened.page.eval_on_selector_all("#panels path", shapes)
    assert len(by_epoch) == len(by_time) == 5 and by_epoch != by_time


def test_the_page_is_as_wide_as_the_screen_and_lists_what_it_skipped(opened: Opened) -> None:
    assert opened.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert "<i>foreign: not the folder of a run" in opened.page.inner_text("#notes")
    assert opened.page.locator("figure.table table").count() >= 2 and opened.page.locator(".gallery img").count() >= 1
    sizes = opened.page.eval_on_selector_all("img", "images => images.map(image => image.naturalWidth)")
    assert all(size > 0 for size in sizes)


@pytest.fixture(scope="module")
def incomplete(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with hidden pixels and one without, made by hand, and their report."""
    outputs, rng = tmp_path_factory.mktemp("incomplete"), np.random.default_rng(1)
    folder = write_run(outputs, "sas", missing={"fraction": 0.5, "kind": "block", "split": None})
    seen = rng.uniform(size=(120, 64)) < 0.5
    truth = rng.integers(0, 256, (120, 1, 8, 8), np.uint8)
    error = rng.uniform(size=120).astype(np.float32)
    write_explorer(folder, (1, 8, 8), seen=np.packbits(seen, axis=1), truth=truth, hidden_error=error)
    write_explorer(write_run(outputs, "vae", active_set=None), (1, 8, 8))
    main([str(outputs)])
    return outputs


def test_an_incomplete_image_is_shown_as_seen_filled_in_and_beside_the_truth(browser: Any, incomplete: Path) -> None:
    opened = Opened(browser, incomplete)
    opened.choose("SAS-GP, MNIST, 50 % hidden in a block")
    (folder,) = incomplete.glob("sas-*")
    arrays = np.load(io.BytesIO((folder / "explorer.npz").read_bytes()))
    seen = np.unpackbits(arrays["seen"], axis=1, count=64).reshape(-1, 8, 8).astype(bool)
    for i in (3, 40):
        opened.page.evaluate("i => pick(i)", i)
        image, filled, truth = (opened.image(name)[..., :3] for name in ("image", "reconstruction", "truth"))
        known = arrays["images"][i, 0]
        assert (image[seen[i]] == known[seen[i]][:, None]).all()
        assert len(np.unique(image[~seen[i]], axis=0)) == 1 and np.ptp(image[~seen[i]][0]) > 50  # a colour
        np.testing.assert_array_equal(filled[..., 0], np.where(seen[i], known, arrays["reconstructions"][i, 0]))
        np.testing.assert_array_equal(truth[..., 0], arrays["truth"][i, 0])
        assert "of hidden pixels" in opened.page.inner_text("#picked")
    assert opened.page.inner_text("#image-name") == "test image, as seen" and opened.page.is_visible("#truth")
    opened.choose("VAE, MNIST")
    assert opened.page.inner_text("#image-name") == "test image" and not opened.page.is_visible("#truth")
    assert "hidden" not in opened.page.inner_text("#picked") and opened.complaints == []
    opened.context.close()
