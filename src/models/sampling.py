"""Where the latent points of new observations come from."""

from typing import Any

import torch
from torch import Tensor

from src.models.capabilities import CarriesPoints, Generates, Refines
from src.models.posterior import Free
from src.runs.errors import UserError

TINY = 1e-12  # added to the variances of latents, which may all be the same in an unused dimension


def latents(model: Refines, count: int, aux: Tensor | None, generator: torch.Generator) -> Tensor:
    """Latent points [n, Q]: of the prior N(0, I), of q(z | aux), or of a density of the training latents.

    A model whose latents are points has no prior. Its latents then come from a kernel density estimate (Gaussian,
    Scott's rule) of the latents of the training points that its checkpoint carries.
    """
    noise = torch.randn(count, model.latent_dim, generator=generator, dtype=torch.float64).to(model.device)
    if isinstance(model, Generates):
        if aux is None:
            raise UserError(
                f"{type(model).__name__} has no prior of single points: encode some, and decode around them"
            )
        q = model.generate(aux.to(model.device))
        return q.mean + q.stddev * noise.to(q.mean)
    known = known_points(model)
    if known is None:
        return noise
    centres = torch.randint(len(known), (count,), generator=generator).to(known.device)
    width = len(known) ** (-1 / (model.latent_dim + 4))  # Scott's rule
    covariance = torch.cov(known.T).reshape(model.latent_dim, -1)
    root = torch.linalg.cholesky(covariance + TINY * torch.eye(model.latent_dim).to(known))
    return known[centres] + width * noise @ root.T


def known_points(model: Refines) -> Tensor | None:
    """The latents [A, Q] of training points that a model with point latents has; None if it has a prior."""
    if model.latents.kind != "point":
        return None
    known = carried_points(model)
    if known is None:
        raise UserError(f"{type(model).__name__} has no prior and carries no training points: choose z, and decode it")
    return known


def carried_points(model: Any) -> Tensor | None:
    """The latent means [A, Q] of the training points that a model carries; None if it carries none."""
    latents = getattr(model, "latents", None)
    if isinstance(latents, Free):
        return latents.mean.weight.detach().double()
    if not isinstance(model, CarriesPoints):
        return None
    return model.encode(model.stored_active_set(), seen=True).mean.double()
