"""Two runs side by side: the settings that differ, and all metrics."""

from src.report.records import Run


def text(first: Run, second: Run) -> str:
    """A plain table for a terminal."""
    rows: list[tuple[str, ...]] = [
        ("", "A", "B"),
        ("run", first.name, second.name),
        ("status", first.status, second.status),
    ]
    rows += settings_that_differ(first, second)
    parts = [columns(rows), "", columns(metrics(first, second))]
    if first.group == second.group:
        parts.insert(1, "\nThe settings are the same" + (" but for the seed." if first.seed != second.seed else "."))
    return "\n".join(parts)


def settings_that_differ(first: Run, second: Run) -> list[tuple[str, str, str]]:
    """Model, dataset, seed and every setting that can change the numbers and differs; `-` if a run lacks it."""
    a, b = (whole_settings(run) for run in (first, second))
    keys = sorted(a.keys() | b.keys())
    return [(key, a.get(key, "-"), b.get(key, "-")) for key in keys if a.get(key) != b.get(key)]


def whole_settings(run: Run) -> dict[str, str]:
    """All settings and the seed, as text."""
    values = {"model": run.model, "dataset": run.dataset, "seed": run.seed, **run.settings}
    return {key: str(value) for key, value in values.items()}


def metrics(first: Run, second: Run) -> list[tuple[str, ...]]:
    """All metrics of both, and B minus A."""
    rows: list[tuple[str, ...]] = [("", "A", "B", "B - A")]
    for key in {**first.metrics, **second.metrics}:
        a, b = first.metrics.get(key), second.metrics.get(key)
        difference = "" if a is None or b is None else f"{b - a:+.4g}"
        rows.append((key, "-" if a is None else f"{a:.4g}", "-" if b is None else f"{b:.4g}", difference))
    return rows


def columns(rows: list[tuple[str, ...]]) -> str:
    """Texts in aligned columns."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(t.ljust(w) for t, w in zip(row, widths, strict=True)).rstrip() for row in rows)
