"""The exact evidence log p(x | z) of training points, and its estimate by stochastic active sets."""

import math
import os
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from src.data.batch import Split
from src.evaluation.reconstruction import with_sd
from src.evaluation.task import CHUNK, Metric, Scores, Settings, Subject, Task
from src.gp.active_set import fixed_size
from src.gp.evidence import blocked_log_density, blocked_memory
from src.gp.linalg import NotPositiveDefiniteError
from src.models.capabilities import HasEvidence
from src.models.likelihoods import Gaussian
from src.runs.errors import NumericalError, UserError
from src.runs.randomness import stream

DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}
ESTIMATES = 32  # random batches that the SAS estimate is averaged over


class Evidence(Task):
    """log p(x | z) of training points at their latent means, in nats per value; only on request, as it is O(N^3).

    `sas_estimate` is the mean of Eq. 6 of the SAS paper over random batches of the same points, with its sd.
    """

    name = "evidence"
    order = 60
    metrics = {  # noqa: RUF012
        "exact_evidence": Metric("exact evidence", "higher"),
        "sas_estimate": Metric("SAS estimate", "higher"),
        "sas_estimate_sd": Metric("sd of the SAS estimate", "neither"),
        "evidence_points": Metric("points of the evidence", "neither", 0),
    }

    def fits(self, model: Any, data: Any) -> bool:
        """Models with one GP as decoder and Gaussian noise, and complete training data."""
        gaussian = isinstance(model, HasEvidence) and isinstance(model.likelihood, Gaussian)
        return gaussian and bool(data.facts.complete)

    def check(self, model: Any, data: Any, settings: Settings) -> None:
        """Raise a UserError if the model has no evidence or the covariance does not fit into memory."""
        if not settings["exact_evidence"]:
            return
        if not data.facts.complete:
            raise UserError(
                "evaluation.exact_evidence=true needs complete training data: each pattern of missing values has a "
                "covariance of its own, of all points; leave the option out"
            )
        if not self.fits(model, data):
            raise UserError(
                "evaluation.exact_evidence=true needs a GP decoder with an active set (sas, bayesian_sas or gplvm) and "
                f"Gaussian noise, not {type(model).__name__}"
            )
        precision = settings["evidence_precision"]
        if precision not in DTYPES:
            raise UserError(f"evaluation.evidence_precision={precision} must be {' or '.join(DTYPES)}")
        check_size(model, len(data.train), num_points(settings, data.train), precision)

    def scores(self, subject: Subject) -> Scores:
        """The exact value and the estimate."""
        if not subject.settings["exact_evidence"]:
            return {}
        model, train, settings = subject.model, subject.data.train, subject.settings
        dtype = DTYPES[settings["evidence_precision"]]
        x, z = observed(model, train, num_points(settings, train), dtype, subject.seed)
        kernel, noise = deepcopy(model.kernel).to(x), model.likelihood.noise.to(x)
        batch_size = max(min(subject.data.batch_size, len(x)), model.active_size + 1)
        estimates = [
            fixed_size(x[rows], z[rows], kernel, noise, model.active_size, len(x))
            for rows in random_batches(len(x), batch_size, subject.seed)
        ]
        slope = slope_per_value(model, x)
        sd, mean = torch.std_mean(torch.stack([e.active + e.rest for e in estimates]) / x.numel())
        try:
            exact = blocked_log_density(x, z, kernel, noise) / x.numel()
        except NotPositiveDefiniteError as error:
            advice = "try evaluation.evidence_precision=float64"
            raise NumericalError(f"{error}: {advice}; {model.describe_gp()}") from error
        return {
            "exact_evidence": exact + slope,
            "sas_estimate": mean.item() + slope,
            "sas_estimate_sd": sd.item(),
            "evidence_points": len(x),
        }

    def summary(self, metrics: Scores, published: Mapping[str, str]) -> list[str]:
        """A title and one line per value."""
        if "exact_evidence" not in metrics:
            return []
        title = f"log p(x | z) of {metrics['evidence_points']} training points, nats per value"
        return ["", title, *(f"{key:<20}{with_sd(metrics, key):>18}" for key in ("exact_evidence", "sas_estimate")), ""]


def slope_per_value(model: HasEvidence, x: Tensor) -> float:
    """What a warp adds to the log density of each value of centred rows x [n, D]; 0 if there is none."""
    terms = model.slope_term(x.to(model.device), None)
    return sum(float(term) for term in terms.values()) / (model.facts.num_train * x.shape[1])


def num_points(settings: Settings, train: Split) -> int:
    """The number of training points that the evidence is computed for."""
    points = settings["evidence_points"]
    return len(train) if points is None else int(points)


def check_size(model: HasEvidence, num_data: int, size: int, precision: str) -> None:
    """Raise a UserError if there are too few or too many points, or if their covariance exceeds the memory."""
    if not model.active_size < size <= num_data:
        raise UserError(
            f"evaluation.evidence_points={size} must exceed the {model.active_size} active points (the rest is "
            f"predicted from them) and must not exceed the {num_data} training points"
        )
    needed = blocked_memory(size, math.prod(model.facts.shape), DTYPES[precision])
    if needed > installed_memory():
        raise UserError(
            f"the exact evidence of {size} points takes {needed / 1e9:.0f} GB in {precision}, more than this machine "
            "has: reduce evaluation.evidence_points or set evaluation.evidence_precision=float32"
        )


def installed_memory() -> int:
    """The memory of this machine in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def observed(model: HasEvidence, train: Split, points: int, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    """Random training points, centred [n, D], and their latent means [n, Q], on the CPU."""
    index = train.draw(points, stream(seed, points)).index
    batches = (train[rows].to(model.device) for rows in index.split(CHUNK))
    pairs = [(model.centred(batch.x), model.encode(batch, seen=True).mean) for batch in batches]
    x, z = (torch.cat(tensors).to("cpu", dtype) for tensors in zip(*pairs, strict=True))
    return x, z


def random_batches(num_data: int, batch_size: int, seed: int) -> list[Tensor]:
    """The rows of `ESTIMATES` independent random batches."""
    generator = torch.Generator().manual_seed(stream(seed, num_data, batch_size))
    return [torch.randperm(num_data, generator=generator)[:batch_size] for _ in range(ESTIMATES)]
