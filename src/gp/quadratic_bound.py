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

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import torch
from gpytorch.kernels import Kernel
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from src.gp import active_set
from src.gp.geometry import JacobianMoments, whitened_moments
from src.gp.kernels import covariance, variances
from src.gp.labels import Labels
from src.gp.linalg import add_diagonal, solve_lower, well_conditioned_cholesky
from src.gp.patterns import patterns_by_rows

ITERATIONS = 4  # of the fixed point in a training step of a decoder, whose logits are seldom as certain as classes
MAX_ITERATIONS = 2000


class Logits(NamedTuple):
    """What is between a GP and its labels: their kind, and the constant mean [D] of their logits."""

    labels: Labels
    offset: Tensor | float = 0.0


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
        z = z.double()  # the variance of a logit may be a millionth of that of its prior
        return self.logits(covariance(self.kernel, self.z.double(), z), variances(self.kernel, z))

    def logits(self, k_ar: Tensor, k_rr: Tensor) -> tuple[Tensor, Tensor]:
        """The same from the covariances K_AR [A, R] and k_rr [R]: K_RA (K_AA + w I)^-1 y, and so on."""
        projection = solve_lower(self.chol, k_ar.double())
        variance = (k_rr - projection.square().sum(0) / self.labels.width).to(self.whitened)
        smallest = torch.finfo(variance.dtype).eps  # a rounded variance may be 0, where the root has no slope
        mean = projection.to(self.whitened).mT @ self.whitened / self.labels.width
        return mean + self.offset, variance.clamp_min(smallest)

    @cached_property
    def jacobian_moments(self) -> list[JacobianMoments]:
        """What the expected metric of the logits needs, made once."""
        root = self.labels.width**0.5
        functions = self.labels.num_functions(self.whitened.shape[1])
        return [whitened_moments(self.z, self.kernel, root * self.chol, self.whitened / root, functions)]


@dataclass(frozen=True)
class PatternedConditioned:
    """The GP conditioned on incomplete points: one for the outputs of each pattern of missing labels."""

    parts: list[Conditioned]
    order: Tensor  # [D], the place of each output among those of all parts

    def predict(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance [R, D] of the logits at z [R, Q]. O(G A^2 R + A R D)."""
        predictions = [part.predict(z) for part in self.parts]
        means = [mean for mean, _ in predictions]
        spreads = [variance.unsqueeze(1).expand_as(mean) for mean, variance in predictions]
        return torch.cat(means, 1)[:, self.order], torch.cat(spreads, 1)[:, self.order]

    @cached_property
    def jacobian_moments(self) -> list[JacobianMoments]:
        """Those of all parts."""
        return [moments for part in self.parts for moments in part.jacobian_moments]


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
    mask: Tensor | None = None,
) -> Estimate:
    """The two terms of Eq. 6 of the SAS paper for labels t [B, D], if the first A points are active.

    psi has a gradient through the rest only: at the fixed point the bound has none in psi, and for fewer iterations the
    bound with a constant psi is a bound too. The rest is differentiated through all iterations, which is exact for any
    number of them; implicit differentiation would be exact only at the fixed point, which takes many more.

    O(A^3 + A^2 B + A R D + iterations A^2 D), value and gradient. With a mask [B, D] only the labels count that it
    calls observed; outputs that were seen at the same active points share a factor, so that G patterns cost G times
    the A^3 + A^2 B, and their gradients are made from anew computed values, since G sets of them would fill the memory.
    """
    z_active, z_rest = z.tensor_split([active_size])
    k_aa, k_ra = covariance(kernel, z, z_active).tensor_split([active_size])
    k_rr = variances(kernel, z_rest)
    if mask is None or mask.all():
        t_active, t_rest = t.tensor_split([active_size])
        points = Points(z_active, kernel, t_active, t_rest, None)
        return Estimate(*densities(points, k_aa, k_ra, k_rr, labels, iterations, offset))
    assert isinstance(offset, Tensor)
    parts = []
    for rows, outputs in patterns_by_rows(mask[:active_size], unseen=True):
        t_active, t_rest = t[:, outputs].tensor_split([active_size])
        points = Points(z_active[rows], kernel, t_active[rows], t_rest, mask[active_size:, outputs])
        k = k_aa[rows][:, rows], k_ra[:, rows], k_rr
        kind, own = labels.part(outputs), offset[outputs]
        parts.append(checkpoint(densities, points, *k, kind, iterations, own, use_reentrant=False))
    active, rest = zip(*parts, strict=True)
    return Estimate(torch.stack(active).sum(), torch.stack(rest).sum())


def fixed_size(
    t: Tensor,
    z: Tensor,
    kernel: Kernel,
    logits: Logits,
    active_size: int,
    num_data: int,
    mask: Tensor | None = None,
) -> active_set.Estimate:
    """Eq. 6 for labels, from a batch in random order whose first A points are active.

    bound on log p(t_A | z_A) + (N - A) / (B - A) sum_{n in rest} log p(t_n | t_A, z)
    """
    active, rest = log_densities(t, z, kernel, logits.labels, active_size, ITERATIONS, logits.offset, mask)
    return active_set.Estimate(active, (num_data - active_size) / (len(t) - active_size) * rest, 0.0)


def random_size(
    t: Tensor, z: Tensor, kernel: Kernel, logits: Logits, rest_size: int, mask: Tensor | None = None
) -> active_set.Estimate:
    """Eq. 4 as `active_set.random_size` has it: N / r times the log probability of r points, given all others."""
    _, rest = log_densities(t, z, kernel, logits.labels, len(t) - rest_size, ITERATIONS, logits.offset, mask)
    return active_set.Estimate(torch.zeros_like(rest), len(t) / rest_size * rest, 0.0)


def log_evidence(t: Tensor, z: Tensor, kernel: Kernel, logits: Logits, mask: Tensor | None = None) -> Tensor:
    """A bound on log p(t | z) of all points. O(B^3 + iterations B^2 D)."""
    return log_densities(t, z, kernel, logits.labels, len(t), ITERATIONS, logits.offset, mask).active


class Points(NamedTuple):
    """The active points with their labels, and the labels of the rest."""

    z: Tensor  # [A, Q]
    kernel: Kernel
    active: Tensor  # [A, D]
    rest: Tensor  # [R, D]
    seen: Tensor | None  # [R, D], which labels of the rest were observed; None: all


def densities(
    points: Points,
    k_aa: Tensor,
    k_ra: Tensor,
    k_rr: Tensor,
    labels: Labels,
    iterations: int,
    offset: Tensor | float,
) -> tuple[Tensor, Tensor]:
    """The two terms from the covariances, if all active labels were seen."""
    chol = factor(k_aa, labels)
    psi = posterior_mean(chol, points.active, labels, offset, iterations)
    given = conditioned(points.z, chol, psi, points.active, points.kernel, labels, offset)
    active = bound(chol, psi.detach(), points.active, labels, offset)
    return active, labels.log_predictive(points.rest, *given.logits(k_ra.mT, k_rr), points.seen)


def condition(
    t: Tensor,
    z: Tensor,
    kernel: Kernel,
    logits: Logits,
    mask: Tensor | None = None,
    tolerance: float = 1e-3,
) -> Conditioned | PatternedConditioned:
    """The GP given labels t [A, D] at z [A, Q], or those that the mask calls observed, with the best psi.

    O(A^3 + iterations A^2 D), for G patterns of missing labels O(G A^3 + ...).
    """
    labels, offset = logits
    if mask is not None and not mask.all():
        assert isinstance(offset, Tensor)
        patterns = list(patterns_by_rows(mask, unseen=True))
        parts = [
            complete(t[rows][:, outputs], z[rows], kernel, labels.part(outputs), offset[outputs], tolerance)
            for rows, outputs in patterns
        ]
        return PatternedConditioned(parts, torch.cat([outputs for _, outputs in patterns]).argsort())
    return complete(t, z, kernel, labels, offset, tolerance)


def complete(
    t: Tensor, z: Tensor, kernel: Kernel, labels: Labels, offset: Tensor | float, tolerance: float
) -> Conditioned:
    """The GP given labels that are all known."""
    chol = factor(covariance(kernel, z.double(), z.double()), labels)
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
        if bool((step.abs() < tolerance).all()):
            break
    return psi
