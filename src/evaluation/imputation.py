"""Imputation: how well a model predicts the values of test points that were hidden on purpose from the others."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from src.data.batch import Batch, Split
from src.evaluation.reconstruction import named_scores, over_active_sets, score_lines
from src.evaluation.task import CHUNK, Decoded, Latents, Metric, Scores, Subject, Task
from src.models.capabilities import HasLatents
from src.models.likelihoods import masked, masked_log_prob
from src.runs.bars import bar
from src.runs.randomness import stream

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DRAWS = 16  # samples of q(z): hidden values are uncertain because z is
MAX_NEAREST = 60_000  # training images that are searched: 10,000 test images of MNIST take a minute
SHOWN = 10  # test points in the figure

LABELS = {"rmse": Metric("RMSE"), "mae": Metric("MAE"), "nlpd": Metric("NLPD", digits=3), "nlp": Metric("NLP")}
MIDDLES = {"": "", "_median": ", median over points"}
BASELINES = {"mean": "mean imputation", "nearest": "nearest image"}  # RMSE and MAE only: they have no density


class Imputation(Task):
    """Errors in the units of the data, minus log densities in nats per hidden value; lower is better for all.

    A prediction is the mixture over samples of q(z); the density is that of each value by itself. Scores are means over
    all hidden values and, with `_median` in their names, medians over test points of a point's own score. The baselines
    predict the mean of the training data or, for images, the nearest training image.
    """

    name = "imputation"
    order = 3
    metrics = {
        f"imputation_{score}{middle}": metric._replace(label=f"{metric.label} of hidden values{text}")
        for middle, text in MIDDLES.items()
        for score, metric in LABELS.items()
    } | {
        f"{baseline}_imputation_{score}{middle}": Metric(f"{LABELS[score].label} of {name}{text}", "neither")
        for baseline, name in BASELINES.items()
        for middle, text in MIDDLES.items()
        for score in ("rmse", "mae")
    }

    def fits(self, model: Any, data: Any) -> bool:
        """Models with latents, and test data with hidden values."""
        return isinstance(model, HasLatents) and data.test.hidden is not None and bool(data.test.hidden.any())

    def scores(self, subject: Subject) -> Scores:
        """The model's scores as in the reconstruction, and those of the baselines."""
        model, test = subject.model, subject.data.test
        z = draws(subject.test_posterior, subject.seed)
        return over_active_sets(subject, lambda sets: imputation_scores(model, test, z, sets)) | baselines(subject)

    def figures(self, subject: Subject) -> "Iterator[tuple[str, Figure]]":
        """Some test points as they were seen and filled in, the predictive sd, and the truth."""
        from src.evaluation import point_figures

        rows = subject.varied(SHOWN)
        seen, truth, hidden = values_at(subject.model, subject.data.test, rows)
        assert seen.mask is not None
        shown = imputed(subject, rows)
        known, hidden = seen.mask.cpu(), hidden.cpu()
        yield "imputation", point_figures.imputations(truth.cpu(), known, hidden, *shown, limits=subject.limits)

    def summary(self, metrics: Scores, published: Mapping[str, str]) -> list[str]:
        """The scores of the model, then those of the baselines."""
        lines = []
        for middle, title in zip(MIDDLES, ("hidden values", "their medians"), strict=True):
            lines += score_lines(title, columns(metrics, "imputation", middle), metrics, published, "model")
            for baseline, name in BASELINES.items():
                keys = columns(metrics, f"{baseline}_imputation", middle).values()
                lines += [f"{name:<20}" + "".join(f"{metrics[key]:>18.4f}" for key in keys)] if keys else []
        return [*lines, ""] if lines else []


class HiddenValues(NamedTuple):
    """A part of the test split as models see it, and the truth for scoring, on the model's device."""

    seen: Batch
    truth: Tensor  # [B, *shape]
    hidden: Tensor  # [B, *shape], True if a value is hidden on purpose


def columns(metrics: Scores, start: str, middle: str) -> dict[str, str]:
    """The names of those scores that exist, by the heads of their columns."""
    return {name: key for name in LABELS if (key := f"{start}_{name}{middle}") in metrics}


def draws(q: Latents, seed: int) -> Tensor:
    """Samples [K, n, Q] of q(z), the same in every evaluation."""
    return q.draws(DRAWS, stream(seed, DRAWS))


def values_at(model: HasLatents, test: Split, rows: Tensor) -> HiddenValues:
    """These rows of the test split."""
    assert test.hidden is not None
    truth, hidden = test.truth(rows).to(model.device), test.hidden[rows].to(model.device)
    return HiddenValues(test[rows].to(model.device), model.as_float(truth), hidden)


def hidden_values(model: HasLatents, test: Split) -> Iterator[tuple[Tensor, HiddenValues]]:
    """The test split in chunks, with their rows."""
    chunks = torch.arange(len(test)).split(CHUNK)
    for rows in bar(chunks, "imputing"):
        yield rows, values_at(model, test, rows)


def imputation_scores(model: HasLatents, test: Split, z: Tensor, givens: Sequence[Any]) -> Scores:
    """RMSE, MAE and minus log density of the hidden values, given each active set and their mixture."""
    names = [f"imputation_{score}{middle}" for middle in MIDDLES for score in ("rmse", "mae", model.likelihood.score)]
    totals = torch.zeros(len(givens) + 1, len(test), 3, dtype=torch.float64)
    for rows, part in hidden_values(model, test):
        totals[:, rows] = point_totals(model, part, z[:, rows], givens).cpu()
    return named_scores(names, means_and_medians(totals, counts(test)))


def point_totals(model: HasLatents, part: HiddenValues, z: Tensor, givens: Sequence[Any]) -> Tensor:
    """Sums over each point's hidden values [S + 1, B, 3]: squared and absolute errors, minus log densities.

    The last row is the mixture over the active sets: the mean of their means and of their densities of each value.
    """
    predictions = [mixture(model, part, z.to(model.device), given) for given in givens]
    means, log_densities = map(torch.stack, zip(*predictions, strict=True))
    means = torch.cat([means, means.mean(0, keepdim=True)])
    pooled = log_densities.logsumexp(0, keepdim=True) - math.log(len(givens))
    errors = masked(part.truth - means, part.hidden)
    values = torch.stack([errors.square(), errors.abs(), -torch.cat([log_densities, pooled])], -1)
    return values.flatten(2, -2).sum(2, dtype=torch.float64)


def mixture(model: HasLatents, part: HiddenValues, z: Tensor, given: Any) -> tuple[Tensor, Tensor]:
    """The mean and the log density of each hidden value under (1 / K) sum_k p(x | z_k), for z [K, B, Q]."""
    mean, log_density = torch.zeros_like(part.truth), torch.full_like(part.truth, -math.inf)
    for each in z:
        p = model.decode(each, given, part.seen.aux)
        mean += p.mean / len(z)
        log_density = log_density.logaddexp(masked_log_prob(p, part.truth, part.hidden) - math.log(len(z)))
    return mean, log_density


def counts(test: Split) -> Tensor:
    """The number of hidden values of each point [n]."""
    assert test.hidden is not None
    return test.hidden.flatten(1).sum(1)


def means_and_medians(totals: Tensor, values: Tensor) -> Tensor:
    """Sums [S, n, k] over `values` [n] hidden values each as k means over all of them, then k medians over points.

    The first of the k sums is of squares: its root is taken last. Points without hidden values do not count.
    """
    totals, values = totals[:, values > 0], values[values > 0]
    overall, points = totals.sum(1) / values.sum(), totals / values.unsqueeze(1)
    overall[:, 0].sqrt_()
    points[:, :, 0].sqrt_()
    return torch.cat([overall, points.quantile(0.5, dim=1)], 1)


def baselines(subject: Subject) -> Scores:
    """The scores of the mean of the training data and, for images, of the nearest training image."""
    model, data = subject.model, subject.data
    mean = training_mean(model, data.train)
    found = baseline_scores("mean", model, data.test, lambda seen: mean)
    if data.facts.scale != "image":
        return found
    known = data.train.draw(MAX_NEAREST, stream(subject.seed, MAX_NEAREST))
    return found | baseline_scores("nearest", model, data.test, lambda seen: nearest_image(model, seen, known, mean))


def baseline_scores(name: str, model: HasLatents, test: Split, predict: Callable[[Batch], Tensor]) -> Scores:
    """RMSE and MAE of the hidden values, for a prediction [B, *shape] from what was seen."""
    totals = torch.zeros(1, len(test), 2, dtype=torch.float64)
    for rows, part in hidden_values(model, test):
        errors = masked(part.truth - predict(part.seen), part.hidden).flatten(1).double()
        totals[0, rows] = torch.stack([errors.square().sum(1), errors.abs().sum(1)], 1).cpu()
    names = [f"{name}_imputation_{score}{middle}" for middle in MIDDLES for score in ("rmse", "mae")]
    return dict(zip(names, means_and_medians(totals, counts(test))[0].tolist(), strict=True))


def training_mean(model: HasLatents, train: Split) -> Tensor:
    """The mean [*shape] of the observed training values; 0 for what was never observed."""
    total = torch.zeros(train.storage.shape, dtype=torch.float64, device=model.device)
    count = torch.zeros_like(total)
    for chunk in train.chunks(CHUNK):
        batch = chunk.to(model.device)
        x = masked(model.as_float(batch.x), batch.mask)
        total += x.sum(0, dtype=torch.float64)
        count += len(x) if batch.mask is None else batch.mask.sum(0)
    return (total / count.clamp_min(1)).to(model.dtype)


def nearest_image(model: HasLatents, seen: Batch, known: Batch, mean: Tensor) -> Tensor:
    """For each point the known image nearest by observed pixels; the mean where that image was not observed."""
    rows = nearest_rows(model, seen, known)
    image, observed = flat(model, known, rows)
    return torch.where(observed > 0, image, mean.flatten()).unflatten(1, mean.shape)


def nearest_rows(model: HasLatents, seen: Batch, known: Batch, size: int = 4096) -> Tensor:
    """The row [B] of the known image with the least mean squared distance over pixels that both were observed in."""
    x, seen_x = flat(model, seen, torch.arange(len(seen)))
    best, rows = x.new_full((len(x),), math.inf), torch.zeros(len(x), dtype=torch.long)
    for chunk in torch.arange(len(known)).split(size):
        y, seen_y = flat(model, known, chunk)
        distance = seen_x @ y.square().mT - 2 * x @ y.mT  # less |x|^2, the same for all complete images
        if known.mask is not None:
            shared = seen_x @ seen_y.mT
            distance = torch.where(shared > 0, (distance + x.square() @ seen_y.mT) / shared, math.inf)
        least, place = distance.min(1)
        rows = torch.where((least < best).cpu(), chunk[place.cpu()], rows)
        best = torch.minimum(least, best)
    return rows


def flat(model: HasLatents, batch: Batch, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Some observations [B, D], 0 if missing, and weights [B, D], 1 if observed; on the model's device."""
    rows = rows.to(batch.x.device)
    mask = None if batch.mask is None else batch.mask[rows].to(model.device)
    x = masked(model.as_float(batch.x[rows].to(model.device)), mask).flatten(1)
    return x, torch.ones_like(x) if mask is None else mask.flatten(1).to(x)


def imputed(subject: Subject, rows: Tensor) -> Decoded:
    """Mean and sd [B, *shape] of the prediction of these test points, given what the checkpoint conditions on."""
    model, aux = subject.model, subject.data.test[rows].aux
    z = draws(subject.test_posterior, subject.seed)[:, rows].to(model.device)
    filled = moments(model, z, subject.given, None if aux is None else aux.to(model.device))
    return Decoded(filled.mean.cpu(), filled.sd.cpu())


def moments(model: HasLatents, z: Tensor, given: Any, aux: Tensor | None) -> Decoded:
    """Mean and sd [B, *shape] of the mixture (1 / K) sum_k p(x | z_k), for z [K, B, Q]: hidden values and z vary."""
    parts = [model.decode(each, given, aux) for each in z]
    means = torch.stack([p.mean for p in parts])
    noise = torch.stack([p.variance.expand_as(p.mean) for p in parts]).mean(0)
    return Decoded(means.mean(0), (means.var(0, correction=0) + noise).sqrt())
