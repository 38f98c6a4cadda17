"""GP classification by a quadratic bound: bits and classes with one Cholesky factor for all outputs.

Böhning (1992) bounds the log probability of labels t at logits f from below by a quadratic whose curvature 1 / w is the
same everywhere: w = 4 for bits, w = 2 for P classes in the P - 1 directions orthogonal to 1. With g the gradient of
log p(t | f) at any psi,

    log p(t | f) >= log p(t | psi) + g (f - psi) - |f - psi|^2 / (2 w)
                  = log p(t | psi) + w |g|^2 / 2 - |f - y|^2 / (2 w),     y = psi + w g,

so labels act as real pseudo-targets y with noise w, and the machinery of stochastic active sets applies: one factor of
C = I + K_AA / w serves all outputs. The best psi is the posterior mean of f, which is also the mode of the exact
posterior.

Labels t [A, D] are bits, or classes as one-hot rows [A, P]. `offset` [D] or [P] is a constant logit per output, the
mean function of the GP. All vectors of logits of classes are orthogonal to 1, up to the offset.

Factors and what they solve are in float64, since a confident classifier has a large kernel variance; products over all
D outputs run in the precision of t.
"""

import math
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.nn import functional

from src.gp.kernels import covariance, variances
from src.gp.linalg import add_diagonal, solve_lower, well_conditioned_cholesky

NODES = 12  # of the Gauss-Hermite quadrature of a bit's probability, and of that of two classes
SAMPLES = 64  # of the logits of three or more classes, half of them the mirror image of the others
MAX_ITERATIONS = 2000


class Bits:
    """Each output is 1 with probability sigmoid(f)."""

    width = 4.0  # w

    @staticmethod
    def num_functions(num_outputs: int) -> int:
        """Of the independent GPs behind the outputs: one each."""
        return num_outputs

    @staticmethod
    def mean(f: Tensor) -> Tensor:
        """E[t | f]."""
        return f.sigmoid()

    @staticmethod
    def log_prob(t: Tensor, f: Tensor) -> Tensor:
        """log p(t | f), summed over points and outputs."""
        return (t * f - functional.softplus(f)).sum()

    @staticmethod
    def predictive(mean: Tensor, variance: Tensor) -> Tensor:
        """log p(t_nd = 1) [R, D] if f_nd ~ N(mean_nd, variance_n), by Gauss-Hermite quadrature."""
        nodes, log_weights = quadrature(mean)
        logits = mean.unsqueeze(-1) + variance.sqrt()[:, None, None] * nodes
        return (functional.logsigmoid(logits) + log_weights).logsumexp(-1)

    @classmethod
    def log_predictive(cls, t: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """sum_n log p(t_n), over points and outputs: sigmoid(-f) is the probability of 0."""
        return cls.predictive((2 * t - 1) * mean, variance).sum()


class Classes:
    """One of the P outputs is 1, with probabilities softmax(f)."""

    width = 2.0

    @staticmethod
    def num_functions(num_outputs: int) -> int:
        """P - 1, since softmax does not see what all logits share."""
        return num_outputs - 1

    @staticmethod
    def mean(f: Tensor) -> Tensor:
        """E[t | f]."""
        return f.softmax(-1)

    @staticmethod
    def log_prob(t: Tensor, f: Tensor) -> Tensor:
        """log p(t | f), summed over points."""
        return (t * f.log_softmax(-1)).sum()

    @staticmethod
    def predictive(mean: Tensor, variance: Tensor) -> Tensor:
        """log p(t_np = 1) [R, P] if f_n ~ N(mean_n, variance_n I), from a fixed set of points of a standard normal."""
        logits, log_weights = sampled(mean, variance)
        return (logits.log_softmax(-1) + log_weights.unsqueeze(-1)).logsumexp(-2)

    @staticmethod
    def log_predictive(t: Tensor, mean: Tensor, variance: Tensor) -> Tensor:
        """sum_n log p(t_n), over points; half the work if only one class counts."""
        logits, log_weights = sampled(mean, variance)
        chosen = torch.einsum("rsp,rp->rs", logits, t)
        return (chosen - logits.logsumexp(-1) + log_weights).logsumexp(-1).sum()


Labels = type[Bits] | type[Classes]


def quadrature(like: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes and log weights [NODES] for expectations under a standard normal."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(NODES)
    return like.new_tensor(nodes), like.new_tensor(np.log(weights / weights.sum()))


def sampled(mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Logits [R, S, P] of classes and their log weights [S], for expectations under N(mean_n, variance_n I)."""
    points, log_weights = normal_points(mean)
    return mean.unsqueeze(-2) + variance.sqrt()[:, None, None] * points, log_weights


def normal_points(like: Tensor) -> tuple[Tensor, Tensor]:
    """Points [S, P] orthogonal to 1 and log weights [S] for expectations under a standard normal, for `like` [..., P].

    Two classes have one direction, whose quadrature is as good as exact. More classes have a fixed set of low
    discrepancy with the moments of a normal up to the third: the same points in every call, so that nothing is random.
    """
    num_classes = like.shape[-1]
    if num_classes == 2:
        nodes, log_weights = quadrature(like)
        return nodes.unsqueeze(-1) * like.new_tensor([1, -1]) / math.sqrt(2), log_weights
    points = fixed_points(num_classes).to(like)
    return points, points.new_full((len(points),), -math.log(len(points)))


@cache
def fixed_points(num_classes: int) -> Tensor:
    """Sobol points in the P - 1 directions orthogonal to 1, mirrored and scaled to covariance 1 in each, [S, P]."""
    size = max(SAMPLES, 4 * num_classes)  # half of them determine the covariance
    uniform = torch.quasirandom.SobolEngine(num_classes - 1, scramble=True, seed=0).draw(size // 2, dtype=torch.float64)
    half = torch.special.ndtri(uniform)
    points = torch.cat([half, -half])
    points = solve_lower(torch.linalg.cholesky(points.mT @ points / size), points.mT).mT
    directions = torch.linalg.svd(torch.eye(num_classes, dtype=torch.float64) - 1 / num_classes).U[:, :-1]
    return points @ directions.mT


@dataclass(frozen=True)
class Conditioned:
    """The GP conditioned on labels of A points through their pseudo-targets: everything that prediction needs."""

    z: Tensor  # [A, Q]
    chol: Tensor  # [A, A], of C = I + K_AA / w
    whitened: Tensor  # [A, D], chol^-1 y
    kernel: Kernel
    labels: Labels
    offset: Tensor | float

    def predict(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [R, D] and variance [R] of the logits at z [R, Q]; all outputs share the variance. O(A^2 R + A R D)."""
        return self.logits(covariance(self.kernel, self.z, z), variances(self.kernel, z))

    def logits(self, k_ar: Tensor, k_rr: Tensor) -> tuple[Tensor, Tensor]:
        """The same from the covariances K_AR [A, R] and k_rr [R]: K_RA (K_AA + w I)^-1 y, and so on."""
        projection = solve_lower(self.chol, k_ar.double())
        variance = (k_rr - projection.square().sum(0) / self.labels.width).to(k_rr)
        smallest = torch.finfo(variance.dtype).eps  # a rounded variance may be 0, where the root has no slope
        mean = projection.to(self.whitened).mT @ self.whitened / self.labels.width
        return mean + self.offset, variance.clamp_min(smallest)


class Estimate(NamedTuple):
    """A bound on log p(t_A | z_A), and sum_{n in rest} log p(t_n | t_A, z) given the bound's posterior, in nats."""

    active: Tensor
    rest: Tensor


def log_densities(
    t: Tensor,
    z: Tensor,
    kernel: Kernel,
    labels: Labels,
    active_size: int,
    iterations: int,
    offset: Tensor | float = 0.0,
) -> Estimate:
    """The two terms of Eq. 6 of the SAS paper for labels t [B, D], if the first A points are active.

    psi has a gradient through the rest only: at the fixed point the bound has none in psi, and for fewer iterations the
    bound with a constant psi is a bound too. The rest is differentiated through all iterations, which is exact for any
    number of them; implicit differentiation would be exact only at the fixed point, which takes many more.

    O(A^3 + A^2 B + A R D + iterations A^2 D), value and gradient.
    """
    t_active, t_rest = t.tensor_split([active_size])
    z_active, z_rest = z.tensor_split([active_size])
    k_aa, k_ra = covariance(kernel, z, z_active).tensor_split([active_size])
    chol = factor(k_aa, labels)
    psi = posterior_mean(chol, t_active, labels, offset, iterations)
    given = conditioned(z_active, chol, psi, t_active, kernel, labels, offset)
    active = bound(chol, psi.detach(), t_active, labels, offset)
    rest = labels.log_predictive(t_rest, *given.logits(k_ra.mT, variances(kernel, z_rest)))
    return Estimate(active, rest)


def condition(
    t: Tensor, z: Tensor, kernel: Kernel, labels: Labels, offset: Tensor | float = 0.0, tolerance: float = 1e-3
) -> Conditioned:
    """The GP given labels t [A, D] at z [A, Q], with the best psi. O(A^3 + iterations A^2 D)."""
    chol = factor(covariance(kernel, z, z), labels)
    psi = converged_mean(chol, t, labels, offset, tolerance)
    return conditioned(z, chol, psi, t, kernel, labels, offset)


def conditioned(
    z: Tensor, chol: Tensor, psi: Tensor, t: Tensor, kernel: Kernel, labels: Labels, offset: Tensor | float
) -> Conditioned:
    """The GP given the pseudo-targets at psi."""
    y = psi + labels.width * gradient(psi, t, labels, offset)
    return Conditioned(z, chol, solve_lower(chol, y.double()).to(y), kernel, labels, offset)


def factor(k_aa: Tensor, labels: Labels) -> Tensor:
    """The Cholesky factor of C = I + K_AA / w, whose eigenvalues are at least 1, in float64. O(A^3)."""
    return well_conditioned_cholesky(add_diagonal(k_aa.double() / labels.width, 1.0))


def gradient(psi: Tensor, t: Tensor, labels: Labels, offset: Tensor | float) -> Tensor:
    """g [A, D], the gradient of log p(t | psi) in psi: the label less its mean."""
    return t - labels.mean(psi + offset)


def bound(chol: Tensor, psi: Tensor, t: Tensor, labels: Labels, offset: Tensor | float = 0.0) -> Tensor:
    """A lower bound on log p(t | z) for any psi [A, D], in nats; the best psi is the posterior mean.

    log N(y | 0, K + w I) - log N(0 | 0, w I) + w |g|^2 / 2 + log p(t | psi), where the first is summed over the
    functions behind the outputs.
    """
    g = gradient(psi, t, labels, offset)
    y = psi + labels.width * g
    squares = solve_lower(chol, y.double()).square().sum() / labels.width - labels.width * g.square().sum()
    log_det = 2 * labels.num_functions(t.shape[-1]) * chol.diagonal().log().sum()
    return labels.log_prob(t, psi + offset) - (0.5 * (log_det + squares)).to(t)


def improved(psi: Tensor, inverse: Tensor, t: Tensor, labels: Labels, offset: Tensor | float) -> Tensor:
    """The posterior mean K (K + w I)^-1 y = y - C^-1 y given the pseudo-targets at psi; raises the bound."""
    y = psi + labels.width * gradient(psi, t, labels, offset)
    return y - inverse @ y


def posterior_mean(chol: Tensor, t: Tensor, labels: Labels, offset: Tensor | float, iterations: int) -> Tensor:
    """psi [A, D] after some iterations from 0, with a gradient through all of them."""
    inverse = torch.cholesky_inverse(chol).to(t)  # once, so that an iteration is one product
    psi = torch.zeros_like(t)
    for _ in range(iterations):
        psi = improved(psi, inverse, t, labels, offset)
    return psi


@torch.no_grad()
def converged_mean(chol: Tensor, t: Tensor, labels: Labels, offset: Tensor | float, tolerance: float) -> Tensor:
    """psi [A, D] at the fixed point, to a tolerance in logits, without a gradient.

    The plain iteration takes steps of the size of the error in the probabilities, which are small for confident
    predictions. Nesterov's momentum takes about the root of the number; it restarts when it points the wrong way
    (O'Donoghue & Candès, 2015).
    """
    inverse = torch.cholesky_inverse(chol).to(t)
    psi = ahead = torch.zeros_like(t)
    age = 0
    for _ in range(MAX_ITERATIONS):
        new = improved(ahead, inverse, t, labels, offset)
        step = new - psi
        age = 0 if ((new - ahead) * step).sum() < 0 else age + 1
        psi, ahead = new, new + age / (age + 3) * step
        if step.abs().max() < tolerance:
            break
    return psi
