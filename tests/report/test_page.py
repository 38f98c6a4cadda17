"""The page holds all it needs, and nothing in a record can break it."""

import base64
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from src.report import page, records
from src.report.curves import CURVES, TRACES
from src.report.page_tables import tables_of_page
from tests.report.handmade import write_explorer, write_run


def made(outputs: Path) -> str:
    found = records.read(outputs)
    return page.page(outputs, found, records.representatives(found.runs), tables_of_page(found.runs), [])


def data_of(text: str) -> Any:
    return json.loads(text.split('type="application/json">')[1].split("</script>")[0])


def test_nothing_is_fetched_from_anywhere(tmp_path: Path) -> None:
    write_explorer(write_run(tmp_path, loss=[1.0, 0.5]))
    text = made(tmp_path)
    assert "default-src 'none'" in text and "<!--" not in text
    assert set(re.findall(r"https?://[^\"'\s]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert not re.findall(r"<(?:script|link|img)[^>]+(?:src|href)=\"(?!data:)", text)
    assert not re.findall(r"@import|url\(|fetch\(|XMLHttpRequest|WebSocket", text)


def test_records_cannot_break_out_of_the_page(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!--"
    write_run(tmp_path, command=evil, metrics={"rmse": math.nan, "mae": math.inf}, note=evil)
    (tmp_path / "<b>x").mkdir()
    text = made(tmp_path)
    assert "<script>alert" not in text and "<b>x" not in text
    (details,) = data_of(text)["details"].values()
    assert details["command"] == evil and details["metrics"] == {"rmse": None, "mae": None}


def test_explorers_share_the_bytes_of_the_page(tmp_path: Path) -> None:
    for model in ("sas", "vae", "gplvm", "bayesian_sas", "bayesian_gplvm"):
        for dataset in ("mnist", "fmnist", "cifar10"):
            write_explorer(write_run(tmp_path, model, dataset), (3, 32, 32))
    text = made(tmp_path)
    assert len(data_of(text)["explorers"]) == page.MAX_EXPLORERS
    assert "The explorer holds 12 of 15 runs" in text
    many = page.points_each([{"grid_mean": np.zeros((25, 25, 1, 28, 28)), "images": np.zeros((1000, 1, 28, 28))}])
    few = page.points_each([{"grid_mean": np.zeros((25, 25, 1, 28, 28)), "images": np.zeros((1000, 1, 28, 28))}] * 8)
    assert many > 1000 > few > 400


def test_vectors_are_lines_of_pixels(tmp_path: Path) -> None:
    write_explorer(write_run(tmp_path), shape=(12,))
    (explorer,) = data_of(made(tmp_path))["explorers"]
    assert explorer["shape"] == [1, 1, 12]


def test_an_explorer_knows_the_names_of_its_classes(tmp_path: Path) -> None:
    write_explorer(write_run(tmp_path, "sas"))
    write_explorer(write_run(tmp_path, "vae"), classes=np.array(["<b>cat", "dog"]))
    found = {explorer["title"]: explorer["classes"] for explorer in data_of(made(tmp_path))["explorers"]}
    assert found == {"SAS-GP, MNIST": None, "VAE, MNIST": ["<b>cat", "dog"]}


def pixels(sprite: str) -> np.ndarray:
    """The first image of a sprite of 4 x 4 images."""
    with Image.open(io.BytesIO(base64.b64decode(sprite.partition(",")[2]))) as image:
        return np.asarray(image)[:4, :4]


def test_incomplete_images_are_shown_as_seen_and_filled_in_beside_the_truth(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    seen = rng.uniform(size=(120, 1, 4, 4)) < 0.5
    truth = rng.integers(0, 256, (120, 1, 4, 4), np.uint8)
    bits = np.packbits(seen.reshape(120, -1), axis=1)
    folder = write_run(tmp_path, missing={"fraction": 0.5, "kind": "block", "split": None})
    write_explorer(folder, seen=bits, truth=truth, hidden_error=np.full(120, 0.125, np.float32))
    (explorer,) = data_of(made(tmp_path))["explorers"]
    assert explorer["title"] == "Bayesian SAS-GP, MNIST, 50 % hidden in a block"
    arrays = records.read(tmp_path).runs[0].arrays
    where, image = seen[0, 0], arrays["images"][0, 0]
    shown = pixels(explorer["images"])
    assert (shown[where] == image[where][:, None]).all() and (shown[~where] == page.TINT.ravel()).all()
    filled = pixels(explorer["reconstructions"])
    assert (filled == np.where(where, image, arrays["reconstructions"][0, 0])).all()
    assert (pixels(explorer["truth"]) == truth[0, 0]).all() and explorer["hiddenError"][0] == 0.125
    assert explorer["incomplete"] is True


def test_complete_images_have_no_truth_beside_them(tmp_path: Path) -> None:
    write_explorer(write_run(tmp_path))
    (explorer,) = data_of(made(tmp_path))["explorers"]
    assert not {"truth", "hiddenError", "incomplete"} & explorer.keys()


def test_missing_values_of_vectors_are_not_coloured(tmp_path: Path) -> None:
    write_explorer(write_run(tmp_path), shape=(12,), seen=np.zeros((120, 2), np.uint8))
    (explorer,) = data_of(made(tmp_path))["explorers"]
    assert "incomplete" not in explorer


def test_explorers_and_maps_name_their_runs(tmp_path: Path) -> None:
    write_explorer(write_run(tmp_path, "sas", epochs=3))
    folder = write_run(tmp_path, "sas", seed=1, epochs=30)
    write_explorer(folder)
    other = write_run(tmp_path, "sas_classifier")  # has no latents
    (explorer,) = data_of(made(tmp_path))["explorers"]
    assert explorer["about"] == f"{folder.name}: A = 400, 30 epochs, seed 1"
    Image.new("RGB", (4, 4)).save(tmp_path / "latents-mnist.png")
    caption = page.figure(tmp_path / "latents-mnist.png", records.representatives(records.read(tmp_path).runs))
    assert f"<code>{folder.name}</code>, A = 400, 30 epochs, seed 1" in caption and other.name not in caption


def test_a_dataset_of_no_paper_has_its_own_name(tmp_path: Path) -> None:
    write_run(tmp_path, "mine", "array", active_set=None)
    assert data_of(made(tmp_path))["rows"][0][:2] == ["mine", "array"]


def test_every_figure_has_a_caption(tmp_path: Path) -> None:
    """The names of the curves, and those of traces, which end with a dataset."""
    curves = [curve.name for curve in CURVES]
    traces = [f"{name}-moving_ball" for name in (*TRACES, "views", "inducing_times", "dimensions", "learning")]
    for name in (*curves, *traces, "error_against_time"):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{name}.png")
        assert "<figcaption>" in page.figure(tmp_path / f"{name}.png")
