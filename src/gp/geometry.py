"""The geometry of a latent space: the expected metric of a GP decoder, and the metric that any function pulls back.

A decoder f: R^Q -> R^D measures a small step dz by |J dz|^2, so its metric at z is G = J^T J. The Jacobian of a GP is
Gaussian, and G has the expectation (Tosi, Hauberg, Vellido & Lawrence, "Metrics for Probabilistic Geometries", 2014)

    G(z) = E[J]^T E[J] + sum_d Cov(J_d)

where J_d [Q] is the row of output d: steps are long where the mean changes and where f is uncertain. `src.gp.geodesics`
has the shortest curves.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.func import jvp

from src.gp.kernel_derivatives import derivatives

NUMBERS_AT_ONCE = 2**22  # of one array

Metric = Callable[[Tensor], Tensor]  # z [n, Q] to G [n, Q, Q]


class JacobianMoments(NamedTuple):
    """What E[J^T J] of a conditioned GP needs.

    Output d has mean k(z) a_d and covariance k(z, z') - k(z) W_d k(z'), with k(z) [A] the kernel to the known points.
    Hence, with F functions, dk the derivatives of k(z) in z and ddk the covariance of the derivatives of a function,

        G(z) = F ddk + dk^T B dk,   B = sum_d (a_d a_d^T - W_d)
    """

    known: Tensor  # [A, Q]
    kernel: Kernel
    inner: Tensor  # [A, A] in float64, B
    functions: int  # F; less than D for categories, whose logits sum to 0

    def metric(self, z: Tensor) -> Tensor:
        """G [n, Q, Q] in float64. O(n Q A^2)."""
        cross, prior = derivatives(self.kernel, self.known.double(), z)
        product = (cross.mT.flatten(0, 1) @ self.inner).view_as(cross.mT)  # one large product, B is symmetric
        return self.functions * prior + product @ cross


def expected_metric(parts: Sequence[JacobianMoments], z: Tensor) -> Tensor:
    """G [n, Q, Q] at z [n, Q], the sum over parts with outputs of their own; computed in float64."""
    size = max(len(part.known) for part in parts)
    rows = max(1, NUMBERS_AT_ONCE // (size * z.shape[1]))
    chunks = [sum_of_metrics(parts, chunk) for chunk in z.double().split(rows)]
    return torch.cat(chunks).to(z)


def sum_of_metrics(parts: Sequence[JacobianMoments], z: Tensor) -> Tensor:
    """The metrics of all parts together."""
    return torch.stack([part.metric(z) for part in parts]).sum(0)


def whitened_moments(
    known: Tensor, kernel: Kernel, chol: Tensor, whitened: Tensor, functions: int, spread: Tensor | float = 0.0
) -> JacobianMoments:
    """The moments if a_d = L^-T w_d and sum_d W_d = L^-T (F I - spread) L^-1, from L [A, A] and w [A, D].

    O(A^3 + A^2 D). The spread [A, A] is what q(u) adds to the covariances of all functions; 0 for known values.
    """
    chol, whitened = chol.detach().double(), whitened.detach().double()
    identity = torch.eye(len(chol), dtype=chol.dtype, device=chol.device)
    root = torch.linalg.solve_triangular(chol, identity, upper=False)
    inner = root.mT @ (whitened @ whitened.mT - functions * identity + spread) @ root
    return JacobianMoments(known.detach(), kernel, inner, functions)


def pulled_back(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    """J^T J [n, Q, Q] of a function that maps each row of z [n, Q] to a row of its answer [n, ...].

    By forward differentiation along each coordinate, which costs about 2 Q evaluations. All coordinates at once would
    cost Q + 1, but torch's vmap cannot set the memory layout that convolutions ask for.
    """
    units = torch.eye(z.shape[1], dtype=z.dtype, device=z.device).unsqueeze(1).expand(-1, *z.shape)  # [Q, n, Q]
    jacobian = torch.stack([jvp(function, (z,), (unit,))[1].flatten(1) for unit in units], 1)  # [n, Q, D]
    return jacobian @ jacobian.mT


def magnification(metric: Tensor) -> Tensor:
    """sqrt(det G) [n]: how much area in the space of observations a unit of latent area has."""
    return metric.det().clamp_min(0).sqrt()
