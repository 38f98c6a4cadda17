"""The evidence log p(x | z) of training points, exactly, beside what stochastic active sets estimate it to be."""

import os
from copy import deepcopy
from typing import Literal

import torch
from torch import Tensor

from src.data.module import DataModule, Split
from src.gp.active_set import fixed_size
from src.gp.evidence import blocked_log_density, blocked_memory
from src.gp.linalg import NotPositiveDefiniteError
from src.models.base import Decoder
from src.models.gp_decoder import GPDecoder
from src.runs.errors import NumericalError, UserError
from src.runs.randomness import stream

Precision = Literal["float32", "float64"]
DTYPES: dict[str, torch.dtype] = {"float32": torch.float32, "float64": torch.float64}

CHUNK = 2000  # images encoded at a time
ESTIMATES = 32  # random batches that the SAS estimate is averaged over


def check_evidence(
    model: Decoder,
    data: DataModule,
    exact_evidence: bool,
    evidence_points: int | None,
    evidence_precision: Precision,
    **others: int,
) -> None:
    """Refuse, with the reason and before any work, what has no such evidence or is too large; others are welcome."""
    if not exact_evidence:
        return
    if not isinstance(model, GPDecoder):
        raise UserError(
            "evaluation.exact_evidence=true needs a GP decoder with an active set (sas, bayesian_sas or gplvm), "
            f"not {type(model).__name__}"
        )
    if evidence_precision not in DTYPES:
        raise UserError(f"evaluation.evidence_precision={evidence_precision} must be {' or '.join(DTYPES)}")
    size = len(data.train) if evidence_points is None else evidence_points
    if not model.active_size < size <= len(data.train):
        raise UserError(
            f"evaluation.evidence_points={size} must exceed the {model.active_size} active points, from which the "
            f"others are predicted, and not the {len(data.train)} training points"
        )
    needed = blocked_memory(size, model.data_mean.numel(), DTYPES[evidence_precision])
    there = installed_memory()
    if needed > there:
        raise UserError(
            f"the exact evidence of {size} points takes {needed / 1e9:.0f} GB in {evidence_precision}, more than there "
            "is: set evaluation.evidence_points to fewer, or evaluation.evidence_precision=float32"
        )


def installed_memory() -> int:
    """In bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


@torch.no_grad()
def evidence_scores(
    model: GPDecoder, data: DataModule, points: int | None, precision: Precision, seed: int
) -> dict[str, float]:
    """log p(x | z) of all training points, or of so many random ones, at their latent means, in nats per value.

    Beside it the mean and sd of Eq. 6 of the SAS paper over random batches of the same points.
    """
    x, z = observed(model, data.train, len(data.train) if points is None else points, DTYPES[precision], seed)
    kernel, noise = deepcopy(model.kernel).to(x), model.likelihood.noise.to(x)
    batch_size = max(min(data.batch_size, len(x)), model.active_size + 1)
    estimates = [
        fixed_size(x[rows], z[rows], kernel, noise, model.active_size, len(x))
        for rows in random_batches(len(x), batch_size, seed)
    ]
    sd, mean = torch.std_mean(torch.stack([e.active + e.rest for e in estimates]) / x.numel())
    try:
        exact = blocked_log_density(x, z, kernel, noise) / x.numel()
    except NotPositiveDefiniteError as error:
        raise NumericalError(f"{error}: try evaluation.evidence_precision=float64; {model.describe_gp()}") from error
    return {
        "exact_evidence": exact,
        "sas_estimate": mean.item(),
        "sas_estimate_sd": sd.item(),
        "evidence_points": len(x),
    }


def observed(model: GPDecoder, train: Split, points: int, dtype: torch.dtype, seed: int) -> tuple[Tensor, Tensor]:
    """Random training points, centred [n, D], and their latent means [n, Q], on the CPU."""
    index = train.draw(points, stream(seed, points)).index
    batches = (train[rows].to(model.data_mean.device) for rows in index.split(CHUNK))
    pairs = [(model.centred(batch.x), model.encode(batch.x, batch.index).mean) for batch in batches]
    x, z = (torch.cat(tensors).to("cpu", dtype) for tensors in zip(*pairs, strict=True))
    return x, z


def random_batches(num_data: int, batch_size: int, seed: int) -> list[Tensor]:
    """Rows of random batches, each drawn anew."""
    generator = torch.Generator().manual_seed(stream(seed, num_data, batch_size))
    return [torch.randperm(num_data, generator=generator)[:batch_size] for _ in range(ESTIMATES)]
