"""One cell of a table: what our runs say, and what was published."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from src.report.labels import label, metric_of, number
from src.report.records import Run, differing
from src.runs.published import Place, numbers

WITHOUT = "without it"  # the status of a finished run that lacks a metric
TRAINING = tuple(
    f"dataset.{name}"
    for name in ("batch_size", "batch_videos", "steps_per_epoch", "fresh", "max_train", "validation", "name")
)  # settings of a dataset that leave its test part as it is


@dataclass(frozen=True)
class Cell:
    """Our values in one place of a table, and the published value."""

    place: Place
    values: tuple[float, ...] = ()  # one per seed
    others: tuple[tuple[str, int], ...] = ()  # number of unfinished runs by status
    published: str | None = None  # mean ± sd, as printed
    caveat: str | None = None  # why the published value is another quantity
    remarks: tuple[str, ...] = ()
    asked_for: bool = True  # False: not part of the sweep
    data: str = ""  # the test data; the same for cells that can be compared
    runs: tuple[Run, ...] = ()  # those of the values

    @property
    def metric(self) -> str:
        """The metric of the values."""
        return str(self.place["metric"])

    @property
    def is_filled(self) -> bool:
        """Whether there is any run behind the cell, finished or not."""
        return bool(self.values or self.others)

    @property
    def mean(self) -> float | None:
        """Mean over seeds."""
        return fmean(self.values) if self.values else None

    @property
    def sd(self) -> float | None:
        """Sample standard deviation over seeds; None for a single seed."""
        if len(self.values) < 2:
            return None
        return stdev(self.values) if all(map(math.isfinite, self.values)) else math.nan

    @property
    def difference(self) -> float | None:
        """Our mean minus the published mean; None if one is missing or they are different quantities."""
        if self.mean is None or self.published is None or self.caveat:
            return None
        return self.mean - numbers(self.published)[0]

    @property
    def verdict(self) -> str:
        """`better` or `worse` by more than the published sd, or `within sd`; empty if there is no difference."""
        better = metric_of(self.metric).better
        if self.difference is None or self.published is None or math.isnan(self.difference) or better == "neither":
            return ""
        if abs(self.difference) <= (numbers(self.published)[1] or 0.0):
            return "within sd"
        return "better" if (self.difference < 0) == (better == "lower") else "worse"


def ours_at(place: Place, runs: Sequence[Run]) -> Cell:
    """The seeds of one configuration; if several configurations match a place, a remark names all of them."""
    groups = by_precedence(runs)
    if not groups:
        return Cell(place)
    ours = of_group(place, groups[0])
    remark = () if len(groups) == 1 else (competition(place, groups),)
    return replace(ours, remarks=(*ours.remarks, *remark))


def by_precedence(runs: Sequence[Run]) -> list[list[Run]]:
    """Runs by their configuration; a table shows the first."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.group, []).append(run)
    return sorted(groups.values(), key=precedence, reverse=True)


def precedence(group: Sequence[Run]) -> tuple[int, float, float, str]:
    """Which configuration a table shows: most finished runs, most epochs, most active points, newest; never a score."""
    first = group[0]
    size = first.active_set if isinstance(first.active_set, int) else 0
    done = sum(run.status == "done" for run in group)
    return done, first.epochs, size, max(started(run) for run in group)


def started(run: Run) -> str:
    """When a run started, as text that sorts; empty if it never did."""
    return str(run.record.get("started", ""))


def of_group(place: Place, group: Sequence[Run]) -> Cell:
    """The seeds of runs with the same settings; if runs share a seed, the newest finished one counts."""
    by_seed: dict[int, list[Run]] = {}
    for run in group:
        by_seed.setdefault(run.seed, []).append(run)
    kept = [max(same, key=lambda run: (run.status == "done", started(run))) for _, same in sorted(by_seed.items())]
    metric = str(place["metric"])
    scored = tuple(run for run in kept if metric in run.metrics)
    values = tuple(run.metrics[metric] for run in scored)
    statuses = Counter(status(run, metric) for run in kept)
    others = tuple((name, count) for name, count in sorted(statuses.items()) if name != "done")
    remarks = tuple(repetition(same) for _, same in sorted(by_seed.items()) if len(same) > 1)
    return Cell(place, values, others, remarks=remarks, data=data_of(group[0]), runs=scored)


def data_of(run: Run) -> str:
    """The dataset and its settings, without those that only training depends on."""
    own = {key: run.settings[key] for key in sorted(run.settings) if key.startswith("dataset.") and key not in TRAINING}
    return f"{run.dataset} {own}"


def repetition(same: Sequence[Run]) -> str:
    """That several runs have the same settings and seed."""
    run = same[0]
    what = f"{label('model', run.model)}, {label('dataset', run.dataset)}"
    return f"{what}: {len(same)} runs have the same settings and seed {run.seed}; the newest counts."


def status(run: Run, metric: str) -> str:
    """A run's status; a finished run may lack a metric."""
    return WITHOUT if run.status == "done" and metric not in run.metrics else run.status


def competition(place: Place, groups: Sequence[Sequence[Run]]) -> str:
    """Which configurations match a place, and their values; the one that is shown comes first."""
    runs = [group[0] for group in groups]
    keys = [key for key in ("model", "dataset", "active_set") if len({run.levels[key] for run in runs}) > 1]
    keys = [key for key in (*keys, *differing(runs)) if key not in place]
    described = [
        f"{', '.join(label(key, run.levels.get(key)) for key in keys)}: {ours_text(of_group(place, group))}"
        for run, group in zip(runs, groups, strict=True)
    ]
    return f"Several configurations match; the first is shown: {'; '.join(described)}."


def ours_text(cell: Cell) -> str:
    """`0.2023 ± 0.0004 (3; 1 failed)` with the number of runs and the status of others, or why there is no number."""
    if cell.mean is None:
        return others_text(cell) or ("missing" if cell.asked_for else "")
    return f"{mean_text(cell)} ({'; '.join([str(len(cell.values)), *filter(None, [others_text(cell)])])})"


def mean_text(cell: Cell) -> str:
    """`0.2023 ± 0.0004`, or nothing."""
    if cell.mean is None:
        return ""
    sd = "" if cell.sd is None else f" ± {number(cell.metric, cell.sd)}"
    return f"{number(cell.metric, cell.mean)}{sd}"


def others_text(cell: Cell) -> str:
    """`1 failed, 2 missing`."""
    return ", ".join(f"{count} {status}" for status, count in cell.others)


def difference_text(cell: Cell) -> str:
    """`−0.0383 better`, or nothing."""
    return "" if cell.difference is None else f"{number(cell.metric, cell.difference, '+')} {cell.verdict}".rstrip()
