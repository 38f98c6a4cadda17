"""Reconstruction of test data from their latent means: errors, and the density of the observed values."""

import logging
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from src.data.batch import Batch, Split
from src.evaluation.task import CHUNK, Metric, Scores, Subject, Task, decoded
from src.models.capabilities import ConditionsOnPoints, HasLatents, MayWarp, PredictsFromPoints
from src.models.likelihoods import masked, masked_log_prob
from src.runs.bars import bar
from src.runs.randomness import stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from src.data.module import DataModule

SHOWN = 10  # test points in the figure
MOST_NUMBERS = 2 * 10**8  # of the inverses of an active set of incomplete points: 0.8 GB in float32

log = logging.getLogger(__name__)


class Reconstruction(Task):
    """Errors in the units of the data, minus log densities in nats per observed value; lower is better for all.

    Models that condition on training points are scored with `active_sets` random active sets of their own size, and
    again with sets of `condition_on` points (metrics with `_c<size>` in their names).
    """

    name = "reconstruction"
    order = 0
    validated = True
    metrics = {  # noqa: RUF012
        "rmse": Metric("RMSE"),
        "mae": Metric("MAE"),
        "nlpd": Metric("NLPD", digits=3),  # of reals, which have a density
        "bpd": Metric("bits per dimension", digits=3),  # of bytes, through a warp
        "nlp": Metric("NLP", digits=4),  # of bits and classes, which have a probability
        "nlp_bits": Metric("NLP in bits", digits=4),
        "nlp_point": Metric("NLP per point", digits=2),
    }

    def fits(self, model: Any, data: Any) -> bool:
        """All models with latents."""
        return isinstance(model, HasLatents)

    def scores(self, subject: Subject) -> Scores:
        """Scores with active sets of the model's own size, and of a larger one."""
        model, test = subject.model, subject.data.test
        return over_active_sets(subject, lambda sets: predictive_scores(model, test, subject.test_latents, sets))

    def figures(self, subject: Subject) -> "Iterator[tuple[str, Figure]]":
        """Some test points, their reconstructions and predictive sd; for a table also the error by column."""
        from src.evaluation import point_figures

        model, rows, facts = subject.model, subject.varied(SHOWN), subject.data.facts
        test = subject.data.test[rows]
        columns = point_figures.Columns(facts.columns, "standardised value" if facts.centre else "value")
        prediction = decoded(model, subject.test_latents[rows], subject.given, test.aux)
        x = model.as_float(test.x.to(model.device)).cpu()
        drawn = point_figures.reconstructions(x, *prediction, rows.tolist(), columns, test.mask, subject.limits)
        yield "reconstructions", drawn
        if facts.columns:
            yield "columns", point_figures.column_errors(column_rmse(subject), facts.columns, columns.unit)

    def summary(self, metrics: Scores, published: Mapping[str, str]) -> list[str]:
        """One line per kind of active set, with the published values below it."""
        lines = score_lines("test data", {name: name for name in self.metrics if name in metrics}, metrics, published)
        return [*lines, ""] if lines else []


def column_rmse(subject: Subject) -> Tensor:
    """The root mean squared error of the observed test values of each column [D]; 0 for a column without any."""
    totals = torch.zeros(2, *subject.data.facts.shape, dtype=torch.float64)
    for chunk in subject.data.test.chunks(CHUNK):
        mean = decoded(subject.model, subject.test_latents[chunk.index], subject.given, chunk.aux).mean
        error = masked(subject.model.as_float(chunk.x) - mean, chunk.mask)
        seen = torch.ones_like(error) if chunk.mask is None else chunk.mask
        totals += torch.stack([error.square().sum(0), seen.sum(0)])
    return (totals[0] / totals[1].clamp_min(1)).sqrt()


def over_active_sets(subject: Subject, score: Callable[[Sequence[Any]], Scores]) -> Scores:
    """Scores given active sets of the model's own size, and of a larger one; others are scored once, given nothing."""
    model, train = subject.model, subject.data.train
    if not isinstance(model, ConditionsOnPoints | PredictsFromPoints):
        return score([model.given()])
    found: Scores = {}
    larger = min(subject.settings["condition_on"], len(train))
    sizes = (model.active_size, larger) if is_affordable(subject.data, larger) else (model.active_size,)
    for size in dict.fromkeys(sizes):
        scores = score(active_sets(model, train, size, subject.settings["active_sets"], subject.seed))
        found |= scores if size == model.active_size else with_size(scores, size)
    return found


def is_affordable(data: "DataModule", size: int) -> bool:
    """Whether an active set of this size fits into memory; incomplete points have an inverse per pattern of holes."""
    mask, patterns = data.train.mask, data.facts.patterns
    if mask is None or int(mask.flatten(1).all(1).sum()) >= size or patterns * size**2 <= MOST_NUMBERS:
        return True
    log.info(
        "no scores given %d points: they are incomplete, with up to %d patterns of missing values, whose inverses "
        "would take %.0f GB; set a smaller evaluation.condition_on",
        *(size, patterns, 4 * patterns * size**2 / 1e9),
    )
    return False


def active_sets(
    model: ConditionsOnPoints | PredictsFromPoints, train: Split, size: int, count: int, seed: int
) -> list[Any]:
    """What predictions condition on: `count` random active sets, or one if it holds all training data."""
    draws = 1 if size == len(train) else count
    batches = [train.draw(size, stream(seed, size, draw)) for draw in range(draws)]
    return [model.given(batch.to(model.device)) for batch in batches]


def predictive_scores(model: HasLatents, test: Split, z: Tensor, givens: Sequence[Any]) -> Scores:
    """RMSE, MAE and minus log density: mean and sd over the active sets, and the scores of their mixture.

    The mixture predicts the mean of the means; its density of a point is the mean of the densities.
    """
    totals = torch.zeros(len(givens) + 1, 3, dtype=torch.float64)
    values = 0
    chunks = bar(test.chunks(CHUNK), "predicting", math.ceil(len(test) / CHUNK))
    for chunk in chunks:
        totals += chunk_totals(model, chunk.to(model.device), z[chunk.index], givens)
        values += chunk.x.numel() if chunk.mask is None else int(chunk.mask.sum())
    totals /= values
    totals[:, 0].sqrt_()
    derived = other_units(model, totals[:, 2], values / len(test))
    columns = torch.cat([totals, *(column.unsqueeze(1) for column in derived.values())], 1)
    return named_scores(("rmse", "mae", model.likelihood.score, *derived), columns)


def other_units(model: HasLatents, nats: Tensor, size: float) -> dict[str, Tensor]:
    """Minus log densities in other units than nats per value, for points of `size` observed values.

    The probability of a point is that of its values together, unless points belong together, as frames of a video do.
    """
    if model.likelihood.score == "nlp" and model.facts.group is None:
        return {"nlp_bits": nats / math.log(2), "nlp_point": size * nats}
    if isinstance(model, MayWarp) and model.warp is not None and model.warp.levels:
        return {"bpd": math.log2(model.warp.levels) + nats / math.log(2)}
    return {}


def named_scores(names: Sequence[str], values: Tensor) -> Scores:
    """Mean and sd over S active sets of values [S + 1, scores], and those of the mixture, which is the last row."""
    single, mixture = values[:-1], values[-1]
    scores = dict(zip(names, single.mean(0).tolist(), strict=True))
    if len(single) > 1:
        scores |= {f"{name}_sd": sd for name, sd in zip(names, single.std(0).tolist(), strict=True)}
        scores |= {f"{name}_mixture": value for name, value in zip(names, mixture.tolist(), strict=True)}
    return scores


def chunk_totals(model: HasLatents, chunk: Batch, z: Tensor, givens: Sequence[Any]) -> Tensor:
    """Sums of squared errors, absolute errors and minus log densities [S + 1, 3]; the last row is the mixture."""
    x, z = model.as_float(chunk.x), z.to(model.device)
    predictions = [model.decode(z, given, chunk.aux) for given in givens]
    means = [p.mean for p in predictions]
    log_densities = [masked_log_prob(p, x, chunk.mask).flatten(1).sum(1, dtype=torch.float64) for p in predictions]
    means.append(torch.stack(means).mean(0))
    log_densities.append(torch.stack(log_densities).logsumexp(0) - math.log(len(givens)))
    errors = [masked(x - mean, chunk.mask) for mean in means]
    rows = [
        torch.stack([e.square().sum(dtype=torch.float64), e.abs().sum(dtype=torch.float64), -d.sum()])
        for e, d in zip(errors, log_densities, strict=True)
    ]
    return torch.stack(rows).cpu()


def with_size(scores: Scores, size: int) -> Scores:
    """The same scores with the size in their names: `rmse_sd` -> `rmse_c2000_sd`."""
    return {re.sub(r"((_mixture)?(_sd)?)$", rf"_c{size}\1", key, count=1): value for key, value in scores.items()}


def score_lines(
    title: str, names: Mapping[str, str], metrics: Scores, published: Mapping[str, str], single: str = ""
) -> list[str]:
    """A table of scores by the heads of their columns: one line per kind of active set, or one labelled `single`."""
    if not names:
        return []
    first = next(iter(names.values()))
    sizes = [key.removeprefix(first) for key in metrics if re.fullmatch(rf"{first}(_c\d+)?", key)]
    lines = [f"{title:<20}" + "".join(f"{head:>18}" for head in names)]
    for size in sizes:
        given = f"given {size[2:]} points" if size else "given an active set" if f"{first}_sd" in metrics else single
        for kind, label in (("", given), ("_mixture", "mixture over sets")):
            keys = [f"{name}{size}{kind}" for name in names.values()]
            if keys[0] in metrics:
                lines.append(f"{label:<20}" + "".join(f"{with_sd(metrics, key):>18}" for key in keys))
            if any(key in published for key in keys):
                lines.append(f"{'published':<20}" + "".join(f"{published.get(key, ''):>18}" for key in keys))
    return lines


def with_sd(metrics: Scores, key: str) -> str:
    """`0.2023 ± 0.0004`, or the value alone; nothing if there is none."""
    if key not in metrics:
        return ""
    sd = metrics.get(f"{key}_sd")
    return f"{metrics[key]:.4f}" + (f" ± {sd:.4f}" if sd is not None else "")
