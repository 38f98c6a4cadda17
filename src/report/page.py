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

from src.evaluation.canvas import PALETTE
from src.report import formats
from src.report.figures import Arrays, arrays_of
from src.report.records import Records, Run, differing
from src.report.settings import METRICS
from src.report.tables import Table, facts, named, short
from src.runs.record import now

HERE = Path(__file__).parent
MAX_EXPLORERS, MAX_BYTES = 12, 10_000_000  # of all explorers' pixels, before compression to about a third
CURVE_POINTS = 150
CAPTIONS = {
    "latents": "Test images in latent space, {}; grey: predictive sd, each map to its own scale",
    "generation": "Unseen views made from object and angle alone, {}",
    "paths": "Paths, {}",
    "evidence": "SAS estimate against the exact log marginal likelihood, and the difference by number of points{}",
}


def page(outputs: Path, records: Records, shown: Sequence[Run], tables: Sequence[Table], drawn: Sequence[Path]) -> str:
    """The page, which asks nothing of a network or a server."""
    arrays = {run.name: found for run in shown if (found := arrays_of(run))}
    explored = [run for run in shown if "grid_mean" in arrays.get(run.name, {})]
    points = points_each([arrays[run.name] for run in explored[:MAX_EXPLORERS]])
    data = {
        **runs_table(records.runs),
        "details": {run.name: details(run) for run in records.runs},
        "curves": [curve for run in records.runs if (curve := curve_of(run))],
        "pictures": {run.name: pictures(run) for run in shown},
        "explorers": [explorer_of(run, arrays[run.name], points) for run in explored[:MAX_EXPLORERS]],
        "palette": PALETTE,
    }
    parts = {
        "css": (HERE / "page.css").read_text(),
        "js": (HERE / "page.js").read_text(),
        "data": json.dumps(finite(data), separators=(",", ":")).replace("<", "\\u003c"),
        "tables": formats.html(tables),
        "figures": "".join(figure(path) for path in drawn if not path.stem.startswith("objective")),
        "notes": notes(records, [run.name for run in shown if run.name not in arrays], len(explored)),
        "subtitle": escape(f"{len(records.runs)} runs in {outputs}, {now()[:16].replace('T', ' ')} UTC"),
    }
    text = (HERE / "page.html").read_text()
    for name, part in parts.items():
        text = text.replace(f"<!--{name}-->", part)
    return text


def finite(value: Any) -> Any:
    """The same with None for what JSON has no number for."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def rounded(value: float, figures: int = 5) -> float:
    """A number with so many significant figures: fewer letters in the page."""
    return float(f"{value:.{figures}g}")


def runs_table(runs: Sequence[Run]) -> dict[str, Any]:
    """Columns and rows of the table of runs: what it is, the settings that differ, the metrics."""
    keys = differing(runs)
    metrics = [metric for metric in METRICS if any(metric in run.metrics for run in runs)]
    columns = [{"label": label, "title": label} for label in ("model", "dataset", "A", "seed", "status")]
    columns += [{"label": named("metric", m), "title": f"{facts()['metrics'][m]['better']} is better"} for m in metrics]
    columns += [{"label": short(key), "title": key} for key in keys]
    rows = [
        [named("model", run.model), named("dataset", run.dataset), run.active_set, run.seed, run.status]
        + [rounded(run.metrics[m]) if m in run.metrics else None for m in metrics]
        + [run.settings.get(key) for key in keys]
        for run in runs
    ]
    return {"columns": columns, "rows": rows, "names": [run.name for run in runs]}


def details(run: Run) -> dict[str, Any]:
    """What the page tells of a single run."""
    record = run.record
    error = "" if run.status != "failed" else last_line(run.folder / "log.txt")
    return {
        "command": record.get("command", ""),
        "started": record.get("started", ""),
        "ended": record.get("ended", ""),
        "host": record.get("host", ""),
        "git": str(record.get("git") or "")[:12],
        "versions": ", ".join(f"{name} {version}" for name, version in (record.get("versions") or {}).items()),
        "error": error,
        "metrics": {key: rounded(value) for key, value in run.metrics.items()},
    }


def last_line(path: Path) -> str:
    """The last line of a log, which names the error."""
    try:
        return (path.read_text().strip().splitlines() or [""])[-1]
    except OSError:
        return ""


def curve_of(run: Run) -> dict[str, Any] | None:
    """The objective of a run against epoch and time, thinned to what a small picture can show."""
    history = run.history
    if len(history) < 2:
        return None
    kept = np.unique(np.linspace(0, len(history) - 1, CURVE_POINTS).round().astype(int))
    seconds = np.cumsum([row["seconds"] for row in history])
    return {
        "run": run.name,
        "panel": f"{named('model', run.model)}, {named('dataset', run.dataset)}",
        "size": run.active_set,
        "epoch": [int(i) + 1 for i in kept],
        "seconds": [rounded(seconds[i]) for i in kept],
        "value": [rounded(-history[i]["loss"]) for i in kept],
    }


def pictures(run: Run) -> list[str]:
    """The run's own figures."""
    paths = [run.folder / "figures" / f"{name}.png" for name in ("latent_map", "reconstructions")]
    return [small_picture(path) for path in paths if path.exists()]


def small_picture(path: Path) -> str:
    """A figure for the screen, a fifth of its PNG."""
    from PIL import Image

    with Image.open(path) as image:
        return data_url(image.convert("RGB"), "webp", quality=85)


def data_url(image: Any, kind: str, **options: Any) -> str:
    """A Pillow image as text that stands for a file."""
    content = io.BytesIO()
    image.save(content, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(content.getvalue()).decode()}"


def figure(path: Path) -> str:
    """One of the report's figures, with a link to the file for print beside the page."""
    from PIL import Image

    with Image.open(path) as image:
        wide = ' class="wide"' if image.width > 800 else ""
    kind, _, dataset = path.stem.partition("-")
    caption = CAPTIONS[kind].format(named("dataset", dataset) if dataset else "")
    link = f'<a href="figures/{escape(path.stem)}.pdf">PDF</a>'
    return (
        f'<figure{wide}><img src="{small_picture(path)}" alt="{escape(caption)}">'
        f"<figcaption>{escape(caption)} · {link}</figcaption></figure>"
    )


def notes(records: Records, without: Sequence[str], explorable: int) -> str:
    """What is not in the report, and why."""
    lines = [f"<code>{escape(name)}</code>: {escape(reason)}" for name, reason in records.passed_over.items()]
    lines += [f"<code>{escape(name)}</code>: has no explorer.npz, which newer runs leave for maps" for name in without]
    if explorable > MAX_EXPLORERS:
        lines.append(f"The explorer holds {MAX_EXPLORERS} of {explorable} runs; --explore RUN chooses others.")
    return f"<ul>{''.join(f'<li>{line}</li>' for line in lines)}</ul>" if lines else "<p>Nothing was passed over.</p>"


def points_each(explored: Sequence[Arrays]) -> int:
    """How many test images every explorer shows, so that all fit into the page's bytes beside the grids."""
    grids = sum(found[key].size for found in explored for key in ("grid_mean", "grid_sd_images") if key in found)
    pixels = 2 * sum(math.prod(found["images"].shape[1:]) for found in explored)
    return max(100, (MAX_BYTES - grids) // max(1, pixels))


def explorer_of(run: Run, arrays: Arrays, points: int) -> dict[str, Any]:
    """Some of the points with their images, and the decoded grid of one run."""
    grid, shape = arrays["grid_mean"], arrays["images"].shape[1:]
    n, side = min(points, len(arrays["z"])), len(grid)
    return {
        "run": run.name,
        "title": f"{named('model', run.model)}, {named('dataset', run.dataset)}",
        "shape": as_image_shape(shape),
        "range": arrays["range"].tolist(),
        "side": side,
        "across": [rounded(t) for t in arrays["grid_across"].tolist()],
        "up": [rounded(t) for t in arrays["grid_up"].tolist()],
        "mean": sprite(grid.reshape(-1, *shape), side),
        "sd": [rounded(value, 4) for value in arrays["grid_sd"].flatten().tolist()],
        **sd_images(arrays, shape, side),
        "points": [[rounded(value, 4) for value in point] for point in arrays["z"][:n].tolist()],
        "labels": arrays["labels"][:n].tolist() if "labels" in arrays else None,
        "error": [rounded(value, 4) for value in arrays["error"][:n].tolist()],
        "columns": math.isqrt(n - 1) + 1,
        "images": sprite(arrays["images"][:n], math.isqrt(n - 1) + 1),
        "reconstructions": sprite(arrays["reconstructions"][:n], math.isqrt(n - 1) + 1),
    }


def sd_images(arrays: Arrays, shape: tuple[int, ...], side: int) -> dict[str, Any]:
    """The sd of every pixel of the grid, where pixels differ in it."""
    if "grid_sd_images" not in arrays:
        return {}
    images = arrays["grid_sd_images"].reshape(-1, *shape)
    return {"sdImages": sprite(images, side), "sdRange": [rounded(v) for v in arrays["grid_sd_range"].tolist()]}


def as_image_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """(C, H, W); a vector is a line of pixels."""
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
