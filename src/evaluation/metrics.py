"""One evaluation for every model, through `encode` and `decode` only."""

import math
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from src.data.module import DataModule, Split
from src.evaluation.evidence import Precision, evidence_scores
from src.models.base import Decoder
from src.models.gp_decoder import GPDecoder
from src.runs.randomness import stream

PREDICTIVE = ("rmse", "mae", "nlpd")
CHUNK = 2000  # images at a time: bounds the memory of prediction


@torch.no_grad()
def evaluate(
    model: Decoder,
    data: DataModule,
    z: Tensor,
    active_sets: int,
    condition_on: int,
    seed: int,
    exact_evidence: bool = False,
    evidence_points: int | None = None,
    evidence_precision: Precision = "float64",
) -> dict[str, float]:
    """Test metrics at the latent means z of the test data; errors in the data's units, densities in nats per value.

    Models that condition on training points are scored on `active_sets` random draws of their own active-set size,
    and again (keys with `_c<size>`) on draws of `condition_on` points. On request also the evidence of training points.
    """

    def scores(size: int | None) -> dict[str, float]:
        return predictive_scores(model, data.test, z, given_sets(model, data.train, size, active_sets, seed))

    metrics = scores(model.active_size)
    larger = min(condition_on, len(data.train))
    if model.active_size is not None and larger != model.active_size:
        metrics |= {name_with_size(key, larger): value for key, value in scores(larger).items()}
    if data.train.y is not None and data.test.y is not None:
        known = latent_means(model, data.train, seen=True)
        metrics["accuracy_1nn"] = accuracy_1nn(known, data.train.y, z.cpu(), data.test.y)
    if exact_evidence and isinstance(model, GPDecoder):
        metrics |= evidence_scores(model, data, evidence_points, evidence_precision, seed)
    return metrics | data.scores(model)


def accuracy_1nn(known: Tensor, labels: Tensor, z: Tensor, expected: Tensor) -> float:
    """How many of the points z have the label of the nearest known one; up to Q = 15 a tree is searched, not all."""
    from sklearn.neighbors import KNeighborsClassifier

    return float(KNeighborsClassifier(n_neighbors=1).fit(known, labels).score(z, expected))


@torch.no_grad()
def latent_means(model: Decoder, split: Split, seen: bool) -> Tensor:
    """The latent means [n, Q] of a split, on the CPU; `seen` tells whether its rows are those of the training data."""
    z = model.data_mean.new_empty(len(split), model.latent_dim, device="cpu")  # kept chunks would fragment the heap
    for chunk in tqdm(split.chunks(CHUNK), "encoding", math.ceil(len(split) / CHUNK), leave=False, disable=None):
        batch = chunk.to(model.data_mean.device)
        z[chunk.index] = model.encode(batch.x, batch.index if seen else None, batch.aux).mean.cpu()
    return z


def given_sets(model: Decoder, train: Split, size: int | None, count: int, seed: int) -> list[Any]:
    """What `decode` conditions on: `count` random active sets, or one where that makes no difference."""
    if size is None:
        return [None]
    draws = 1 if size == len(train) else count
    batches = [train.draw(size, stream(seed, size, draw)) for draw in range(draws)]
    return [model.given(batch.to(model.data_mean.device)) for batch in batches]


def predictive_scores(model: Decoder, test: Split, z: Tensor, givens: Sequence[Any]) -> dict[str, float]:
    """RMSE, MAE and NLPD: the mean and sd over what is conditioned on, and those of the mixture over it.

    The mixture predicts the mean of the means; its density of an image is the mean of the densities.
    """
    totals = torch.zeros(len(givens) + 1, 3, dtype=torch.float64)
    chunks = tqdm(test.chunks(CHUNK), "predicting", math.ceil(len(test) / CHUNK), leave=False, disable=None)
    for chunk in chunks:
        totals += chunk_totals(model, chunk.x, z[chunk.index], givens)
    totals /= test.x.numel()
    totals[:, 0].sqrt_()
    single, mixture = totals[:-1], totals[-1]
    scores = dict(zip(PREDICTIVE, single.mean(0).tolist(), strict=True))
    if len(givens) > 1:
        scores |= {f"{name}_sd": sd for name, sd in zip(PREDICTIVE, single.std(0).tolist(), strict=True)}
        scores |= {f"{name}_mixture": value for name, value in zip(PREDICTIVE, mixture.tolist(), strict=True)}
    return scores


def chunk_totals(model: Decoder, x: Tensor, z: Tensor, givens: Sequence[Any]) -> Tensor:
    """Summed squared error, absolute error and minus log density [S + 1, 3]; the last row is the mixture's."""
    device = model.data_mean.device
    x, z = model.as_float(x.to(device)), z.to(device)
    predictions = [model.decode(z, given) for given in givens]
    means = [p.mean for p in predictions]
    log_densities = [p.log_prob(x).flatten(1).sum(1, dtype=torch.float64) for p in predictions]
    means.append(torch.stack(means).mean(0))
    log_densities.append(torch.stack(log_densities).logsumexp(0) - math.log(len(givens)))
    rows = [
        torch.stack([(x - m).square().sum(dtype=torch.float64), (x - m).abs().sum(dtype=torch.float64), -d.sum()])
        for m, d in zip(means, log_densities, strict=True)
    ]
    return torch.stack(rows).cpu()


def name_with_size(key: str, size: int) -> str:
    """`rmse_sd` -> `rmse_c2000_sd`."""
    name, _, rest = key.partition("_")
    return f"{name}_c{size}" + (f"_{rest}" if rest else "")


def metrics_table(metrics: dict[str, float], published: Mapping[str, str] = MappingProxyType({})) -> str:
    """Metrics as a person reads them: predictive scores by what they condition on, then the rest, a line each.

    What is `published` for a metric stands below it in the first part, beside it in the second.
    """
    sizes = [key.removeprefix("rmse") for key in metrics if re.fullmatch(r"rmse(_c\d+)?", key)]
    lines = [f"{'test images':<20}{'rmse':>18}{'mae':>18}{'nlpd':>18}"]
    shown = set()
    for size in sizes:
        given = f"given {size[2:]} points" if size else "given an active set" if "rmse_sd" in metrics else ""
        for kind, label in (("", given), ("_mixture", "mixture over sets")):
            keys = [f"{name}{size}{kind}" for name in PREDICTIVE]
            if keys[0] in metrics:
                lines.append(f"{label:<20}" + "".join(f"{with_sd(metrics, key):>18}" for key in keys))
                shown |= {*keys, *(f"{key}_sd" for key in keys)}
            if any(key in published for key in keys):
                lines.append(f"{'published':<20}" + "".join(f"{published.get(key, ''):>18}" for key in keys))
    if "exact_evidence" in metrics:
        lines += ["", f"log p(x | z) of {metrics['evidence_points']} training points, nats per value"]
        lines += [f"{key:<20}{with_sd(metrics, key):>18}" for key in ("exact_evidence", "sas_estimate")]
        shown |= {"exact_evidence", "sas_estimate", "sas_estimate_sd", "evidence_points"}
    beside = {key: f"   published {value}" for key, value in published.items()}
    others = [f"{key:<20}{value:>18.4g}{beside.get(key, '')}" for key, value in metrics.items() if key not in shown]
    return "\n".join([*lines, "", *others])


def with_sd(metrics: dict[str, float], key: str) -> str:
    """`0.2023 ± 0.0004`, or the value alone."""
    sd = metrics.get(f"{key}_sd")
    return f"{metrics[key]:.4f}" + (f" ± {sd:.4f}" if sd is not None else "")
