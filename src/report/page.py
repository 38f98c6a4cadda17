"""One HTML page with everything inside: tables, a table of runs, curves, figures and the latent explorer."""

import base64
import io
import json
import math
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

from src.evaluation.canvas import PALETTE, SCREEN, UNKNOWN
from src.evaluation.task import Arrays
from src.report.figures import MAPS
from src.report.imputation import hiding
from src.report.labels import label
from src.report.page_curves import curves
from src.report.page_runs import about, details, rounded, runs_table, title
from src.report.page_tables import Tables
from src.report.records import Records, Run
from src.runs.record import now

HERE = Path(__file__).parent
SCRIPTS = (  # in this order; the last one starts the page
    *("page_basics.js", "page_runs.js", "page_curves.js", "page_geodesics.js", "page.js"),
)
STYLES = ("page.css", "page_geodesics.css")
MAX_EXPLORERS, MAX_BYTES = 12, 10_000_000  # of all explorers' pixels, before compression to about a third
TINT = np.array([round(255 * part) for part in to_rgb(UNKNOWN)], np.uint8).reshape(3, 1, 1)  # of pixels nobody has seen
CAPTIONS = {
    "latents": "Test data in latent space, {}; grey: predictive sd, on a scale of its own in each map",
    "generation": "Unseen views, generated from object and angle alone, {}",
    "views": "Principal components of the latents of training views, {}",
    "paths": "Paths, {}",
    "inducing_points": "Test error and time by the number of inducing points{}",
    "batch_sizes": "Test error and time by the batch size{}",
    "kernel_rank": "Test error and time by the length of object vectors{}",
    "rotated_digits": "Test error and time by the number of digits{}",
    "ball_inducing": "Path error and time by the number of inducing times{}",
    "autogp_inducing": "Error rate and time by the number of inducing points{}",
    "autogp_inducing_nlp": "Negative log probability of the class, and time, by the number of inducing points{}",
    "learning": "Scores of predictions over the training, {}",
    "error_against_time": "Test error against time; numbers: inducing points, or the length of object vectors{}",
    "noise_share": "Noise variance over the training as a part of the variance of the data, {}",
    "kernel_variance": "Kernel variance over the training, {}",
    "active_dims": "Latent dimensions in use over the training, {}",
    "dimensions": "KL divergence of each latent dimension over the training, one panel per model, {}",
    "lengthscale": "Length scale over the training, {}",
    "bias": "Bias of mini-batches over the training, {}",
    "inducing_times": "Inducing times over the training, {}",
    "evidence": "SAS estimate against the exact log marginal likelihood, and the difference by number of points{}",
}


def page(outputs: Path, records: Records, shown: Sequence[Run], tables: Tables, drawn: Sequence[Path]) -> str:
    """The page, which loads nothing from a network or a server."""
    explored = [run for run in shown if "grid_mean" in run.arrays]
    points = points_each([run.arrays for run in explored[:MAX_EXPLORERS]])
    data = {
        **runs_table(records.runs),
        "details": {run.name: details(run) for run in records.runs},
        **curves(records.runs),
        "pictures": {run.name: pictures(run) for run in shown},
        "explorers": [explorer_of(run, points) for run in explored[:MAX_EXPLORERS]],
        "palette": PALETTE,
    }
    parts = {
        "css": "".join((HERE / name).read_text() for name in STYLES),
        "js": "".join((HERE / name).read_text() for name in SCRIPTS),
        "data": json.dumps(finite(data), separators=(",", ":")).replace("<", "\\u003c"),
        **tables._asdict(),
        "figures": "".join(figure(path, shown) for path in drawn if not path.stem.startswith("objective")),
        "notes": notes(records, [run.name for run in shown if not run.arrays], len(explored)),
        "subtitle": escape(f"{len(records.runs)} runs in {outputs}, {now()[:16].replace('T', ' ')} UTC"),
    }
    text = (HERE / "page.html").read_text()
    for name, part in parts.items():
        text = text.replace(f"<!--{name}-->", part)
    return text


def finite(value: Any) -> Any:
    """The same value with None for numbers that JSON cannot hold."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def pictures(run: Run) -> list[str]:
    """The figures that the tasks left in the run's folder."""
    return [picture for path in sorted((run.folder / "figures").glob("*.png")) if (picture := picture_or_none(path))]


def picture_or_none(path: Path) -> str | None:
    """A figure for the screen; None if the file is damaged."""
    try:
        return small_picture(path)
    except OSError:
        return None


def small_picture(path: Path) -> str:
    """A figure for the screen: a PNG for print has twice as many dots as a page needs."""
    from PIL import Image

    with Image.open(path) as image:
        dots = round(image.info.get("dpi", (SCREEN,))[0])
        return data_url(image.convert("RGB").reduce(max(1, dots // SCREEN)), "webp", quality=85)


def data_url(image: Any, kind: str, **options: Any) -> str:
    """A Pillow image as text, in place of a file."""
    content = io.BytesIO()
    image.save(content, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(content.getvalue()).decode()}"


def figure(path: Path, shown: Sequence[Run] = ()) -> str:
    """One figure of the report, with a link to the PDF beside the page and the names of the runs in a map."""
    from PIL import Image

    with Image.open(path) as image:
        wide = ' class="wide"' if image.width > 800 else ""
    kind, _, dataset = path.stem.partition("-")
    caption = CAPTIONS[kind].format(label("dataset", dataset) if dataset else "")
    own = [run for run in shown if run.dataset == dataset.partition("-")[0]]
    mapped = [run for run in own if MAPS.get(kind) in run.arrays]
    names = "".join(f"<br><code>{escape(run.name)}</code>, {escape(about(run))}" for run in mapped)
    link = f'<a href="figures/{escape(path.stem)}.pdf">PDF</a>'
    return (
        f'<figure{wide}><img src="{small_picture(path)}" alt="{escape(caption)}">'
        f"<figcaption>{escape(caption)} · {link}{names}</figcaption></figure>"
    )


def notes(records: Records, without: Sequence[str], explorable: int) -> str:
    """What is not in the report, and why."""
    lines = [f"<code>{escape(name)}</code>: {escape(reason)}" for name, reason in records.skipped.items()]
    lines += [f"<code>{escape(name)}</code>: no explorer.npz, which runs with latents write" for name in without]
    if explorable > MAX_EXPLORERS:
        lines.append(f"The explorer holds {MAX_EXPLORERS} of {explorable} runs; --explore RUN chooses others.")
    return f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>" if lines else "<p>Nothing was skipped.</p>"


def points_each(explored: Sequence[Arrays]) -> int:
    """How many test images each explorer shows, so that all of them and the grids fit into the page."""
    grids = sum(found[key].size for found in explored for key in ("grid_mean", "grid_sd_images") if key in found)
    pixels = sum(math.prod(found["images"].shape[1:]) * (5 if "seen" in found else 2) for found in explored)
    return max(100, (MAX_BYTES - grids) // max(1, pixels))


def explorer_of(run: Run, points: int) -> dict[str, Any]:
    """Points with their images, and the decoded grid of one run."""
    arrays = run.arrays
    grid, shape = arrays["grid_mean"], arrays["images"].shape[1:]
    n, side = min(points, len(arrays["z"])), len(grid)
    return {
        "run": run.name,
        "about": f"{run.name}: {about(run)}",
        "title": ", ".join([title(run), *filter(None, [hiding(run.levels)])]),
        "shape": as_image_shape(shape),
        "range": arrays["range"].tolist(),
        "side": side,
        "across": [rounded(t) for t in arrays["grid_across"].tolist()],
        "up": [rounded(t) for t in arrays["grid_up"].tolist()],
        "mean": sprite(grid.reshape(-1, *shape), side),
        "sd": [rounded(value, 4) for value in arrays["grid_sd"].flatten().tolist()],
        **sd_images(arrays, shape, side),
        "metric": [rounded(value) for value in arrays.get("grid_metric", np.empty(0)).flatten().tolist()] or None,
        "points": [[rounded(value, 4) for value in point] for point in arrays["z"][:n].tolist()],
        "labels": arrays["labels"][:n].tolist() if "labels" in arrays else None,
        "classes": arrays["classes"].tolist() if "classes" in arrays else None,
        "error": [rounded(value, 4) for value in arrays["error"][:n].tolist()],
        "columns": math.isqrt(n - 1) + 1,
        **test_images(arrays, n),
    }


def test_images(arrays: Arrays, n: int) -> dict[str, Any]:
    """The first n test images and their reconstructions; if pixels are missing: as seen, filled in, and the truth."""
    images, reconstructions, columns = arrays["images"][:n], arrays["reconstructions"][:n], math.isqrt(n - 1) + 1
    if "seen" not in arrays or images.ndim != 4:
        return {"images": sprite(images, columns), "reconstructions": sprite(reconstructions, columns)}
    bits = np.unpackbits(arrays["seen"][:n], axis=1, count=math.prod(images.shape[1:]))
    seen = bits.reshape(images.shape).astype(bool)
    found: dict[str, Any] = {
        "incomplete": True,
        "images": sprite(np.where(seen, images, TINT), columns),
        "reconstructions": sprite(np.where(seen, images, reconstructions), columns),
    }
    if "truth" in arrays:
        found["truth"] = sprite(arrays["truth"][:n], columns)
        found["hiddenError"] = [rounded(value, 4) for value in arrays["hidden_error"][:n].tolist()]
    return found


def sd_images(arrays: Arrays, shape: tuple[int, ...], side: int) -> dict[str, Any]:
    """The sd of every pixel of the grid, if pixels differ in it."""
    if "grid_sd_images" not in arrays:
        return {}
    images = arrays["grid_sd_images"].reshape(-1, *shape)
    return {"sdImages": sprite(images, side), "sdRange": [rounded(v) for v in arrays["grid_sd_range"].tolist()]}


def as_image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(C, H, W); a vector is one line of pixels."""
    return shape if len(shape) == 3 else (1, 1, math.prod(shape))


def sprite(images: np.ndarray, columns: int) -> str:
    """Images [n, *shape] of bytes, row by row in one PNG."""
    from PIL import Image

    channels, height, width = as_image_shape(images.shape[1:])
    rows = -(-len(images) // columns)
    sheet = np.zeros((rows * columns, channels, height, width), np.uint8)
    sheet[: len(images)] = images.reshape(-1, channels, height, width)
    picture = sheet.reshape(rows, columns, channels, height, width).transpose(0, 3, 1, 4, 2)
    picture = picture.reshape(rows * height, columns * width, channels)
    return data_url(Image.fromarray(picture[..., 0] if channels == 1 else picture), "png", optimize=True)
