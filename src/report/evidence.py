"""The SAS estimate beside the exact log marginal likelihood of the same points, as later evaluations left them."""

from collections.abc import Sequence
from typing import Any

from src.report.records import Run
from src.report.tables import Row, Table, minus, named

COLUMNS: list[tuple[str, ...]] = [("exact",), ("SAS estimate",), ("estimate less exact",)]


def evidence_table(runs: Sequence[Run]) -> Table | None:
    """A line for every run and number of points; None where there is none."""
    found = [(run, metrics) for run in runs for metrics in run.evaluations if "exact_evidence" in metrics]
    if not found:
        return None
    found.sort(key=lambda pair: (pair[0].dataset, pair[0].model, str(pair[0].active_set).zfill(9), size(pair[1])))
    rows = [Row(label(run, metrics), "ours", texts(metrics), [""] * len(COLUMNS)) for run, metrics in found]
    title = "The SAS estimate and the exact evidence, log p(x | z) in nats per observed value"
    note = "Random training points at their latent means; the sd is the estimate's, over random batches."
    return Table("evidence", title, note, "", COLUMNS, rows, [], [])


def size(metrics: dict[str, Any]) -> int:
    """How many points it is the evidence of."""
    return int(metrics["evidence_points"])


def label(run: Run, metrics: dict[str, Any]) -> str:
    """`SAS-GP, MNIST, A = 100, N = 10,000`."""
    what = (named("model", run.model), named("dataset", run.dataset), named("active_set", run.active_set))
    return ", ".join([*what, f"N = {size(metrics):,}"])


def texts(metrics: dict[str, Any]) -> list[str]:
    """The estimate with its sd over random batches."""
    exact, estimate, sd = (metrics[key] for key in ("exact_evidence", "sas_estimate", "sas_estimate_sd"))
    return [minus(text) for text in (f"{exact:.4f}", f"{estimate:.4f} ± {sd:.4f}", f"{estimate - exact:+.4f}")]
