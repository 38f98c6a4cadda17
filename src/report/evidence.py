"""The SAS estimate beside the exact log marginal likelihood of the same points."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from src.report.cells import Cell
from src.report.labels import label, minus
from src.report.records import Run
from src.report.tables import Row, Table

COLUMNS: list[tuple[str, ...]] = [("exact",), ("SAS estimate",), ("estimate minus exact",)]


class Evidence(NamedTuple):
    """log p(x | z) of N training points of a run, in nats per observed value."""

    run: Run
    points: int
    exact: float
    estimate: float
    sd: float  # of the estimate, over random batches


def evidence_of(runs: Iterable[Run]) -> list[Evidence]:
    """By active set and number of points. If a run has the same points in several precisions, the last one counts."""
    scored = [(run, metrics) for run in runs for metrics in (run.metrics, *run.evaluations)]
    found = [evidence(run, metrics) for run, metrics in scored if "exact_evidence" in metrics]
    last = {(id(e.run), e.points): e for e in found}
    return sorted(
        last.values(), key=lambda e: (e.run.dataset, e.run.model, str(e.run.active_set).zfill(9), e.run.seed, e.points)
    )


def evidence(run: Run, metrics: dict[str, Any]) -> Evidence:
    """The evidence of one evaluation."""
    exact, estimate, sd = (metrics[key] for key in ("exact_evidence", "sas_estimate", "sas_estimate_sd"))
    return Evidence(run, int(metrics["evidence_points"]), exact, estimate, sd)


def evidence_table(runs: Sequence[Run]) -> Table | None:
    """One line per run and number of points; None if there is no evidence."""
    found = evidence_of(runs)
    if not found:
        return None
    rows = [Row(row_label(e), "ours", texts(e), [""] * len(COLUMNS)) for e in found]
    cells = [
        cell for e in found for cell in (cell_of(e, "exact_evidence", e.exact), cell_of(e, "sas_estimate", e.estimate))
    ]
    title = "The SAS estimate and the exact evidence, log p(x | z) in nats per observed value"
    note = "Random training points at their latent means; the sd is that of the estimate over random batches."
    return Table("evidence", title, note, "", COLUMNS, rows, [], cells)


def row_label(e: Evidence) -> str:
    """`SAS-GP, MNIST, A = 100, seed 0, N = 10,000`."""
    what = (label(level, e.run.levels[level]) for level in ("model", "dataset", "active_set"))
    return ", ".join([*what, f"seed {e.run.seed}", f"N = {e.points:,}"])


def texts(e: Evidence) -> list[str]:
    """The exact value, the estimate with its sd, and the difference."""
    return [
        minus(text) for text in (f"{e.exact:.4f}", f"{e.estimate:.4f} ± {e.sd:.4f}", f"{e.estimate - e.exact:+.4f}")
    ]


def cell_of(e: Evidence, metric: str, value: float) -> Cell:
    """One of the values with its place."""
    run = {level: e.run.levels[level] for level in ("model", "dataset", "active_set")}
    return Cell({**run, "seed": e.run.seed, "evidence_points": e.points, "metric": metric}, (value,), runs=(e.run,))
