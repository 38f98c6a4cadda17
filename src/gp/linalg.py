"""Linear algebra that does not give up at the first negative eigenvalue."""

import torch
from torch import Tensor

JITTER_LADDER = (0.0, 1e-6, 1e-5, 1e-4, 1e-3)  # relative to the mean of the diagonal


class NotPositiveDefiniteError(ArithmeticError):
    """A covariance matrix that has no Cholesky factor even with the largest jitter."""


def cholesky(k: Tensor) -> tuple[Tensor, float]:
    """The Cholesky factor of k [..., A, A], and the relative jitter it took (0 when none). O(A^3)."""
    scale = k.diagonal(dim1=-2, dim2=-1).mean(-1, keepdim=True)  # [..., 1]
    for jitter in JITTER_LADDER:
        try:
            return torch.linalg.cholesky(add_diagonal(k, jitter * scale) if jitter else k), jitter
        except torch.linalg.LinAlgError:
            continue
    raise NotPositiveDefiniteError(
        f"a {k.shape[-1]} x {k.shape[-1]} covariance matrix with mean diagonal {scale.mean().item():.3g} has no "
        f"Cholesky factor, even with a jitter of {JITTER_LADDER[-1]:g} of it"
    )


def add_diagonal(k: Tensor, value: Tensor | float) -> Tensor:
    """K + value I; of a stack of matrices [..., A, A] with values [..., 1]."""
    result = k.clone()
    result.diagonal(dim1=-2, dim2=-1).add_(value)
    return result


def solve_lower(chol: Tensor, b: Tensor) -> Tensor:
    """L^-1 b."""
    return torch.linalg.solve_triangular(chol, b, upper=False)


def solve_upper(upper: Tensor, b: Tensor) -> Tensor:
    """U^-1 b."""
    return torch.linalg.solve_triangular(upper, b, upper=True)


def well_conditioned_cholesky(k: Tensor) -> Tensor:
    """The Cholesky factor of identity plus a covariance, which cannot fail: nothing to check, nothing to wait for."""
    chol: Tensor = torch.linalg.cholesky_ex(k).L
    return chol


def strict_cholesky(k: Tensor) -> Tensor:
    """The Cholesky factor of k itself, with no jitter."""
    try:
        return torch.linalg.cholesky(k)
    except torch.linalg.LinAlgError as error:
        raise NotPositiveDefiniteError(f"the covariance is not positive definite in {k.dtype}") from error
