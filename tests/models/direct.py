"""Densities computed directly, with dense matrices in float64: what the objectives of the models are compared with.

Nothing here is made of `src.gp`: covariances are sums over explicit differences, densities are those of torch.
"""

import math
from itertools import product
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.distributions import MultivariateNormal, Normal, kl_divergence

from src.data.batch import Batch


def set_hyperparameters(model: Any, noise: float | None = 0.3) -> Any:
    """A model whose kernel and noise have values that no slip leaves as they are."""
    base = getattr(model.kernel, "base_kernel", model.kernel)
    base.lengthscale = 0.8
    if base is not model.kernel:
        model.kernel.outputscale = 1.7
    if noise is not None:
        model.likelihood.learned.noise = noise
    return model


def rbf(kernel: Any, a: Tensor, b: Tensor) -> Tensor:
    """s exp(-sum_q (a_q - b_q)^2 / (2 l_q^2)) of every pair."""
    base = getattr(kernel, "base_kernel", kernel)
    scale = kernel.outputscale.detach() if base is not kernel else 1.0
    differences = (a[:, None, :] - b[None, :, :]) / base.lengthscale.detach()
    return scale * torch.exp(-0.5 * (differences**2).sum(-1))


def object_angle(kernel: Any, a: Tensor, b: Tensor) -> Tensor:
    """s o.o' exp(-2 sin^2((t - t') / 2) / l^2) of every pair of (o, t)."""
    scale, length = kernel.outputscale.item(), kernel.base_kernel.lengthscale.item()
    left, right = a.detach().numpy(), b.detach().numpy()
    turns = left[:, None, -1] - right[None, :, -1]
    similar = (left[:, None, :-1] * right[None, :, :-1]).sum(-1)
    return torch.from_numpy(scale * similar * np.exp(-2 * np.sin(np.abs(turns) / 2) ** 2 / length**2))


def log_density(x: Tensor, k: Tensor) -> Tensor:
    """sum_d log N(x_d | 0, K) of the columns of x [N, D]."""
    return MultivariateNormal(torch.zeros(len(x), dtype=x.dtype), k).log_prob(x.mT).sum()


def log_density_of_rest(x: Tensor, k: Tensor, active: int) -> Tensor:
    """sum_n log p(x_n | x_A) of the points behind the first A, each as a ratio of two joint densities."""
    known = list(range(active))
    below = log_density(x[known], k[known][:, known]) if active else torch.zeros((), dtype=x.dtype)
    joint = [log_density(x[[*known, n]], k[[*known, n]][:, [*known, n]]) for n in range(active, len(x))]
    return torch.stack(joint).sum() - len(joint) * below


def regression(k_aa: Tensor, k_ax: Tensor, k_xx: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [X, D] and covariance [X, X] of a GP at X points given y [A, D] with covariance k_aa, noise included."""
    gain = torch.linalg.solve(k_aa, k_ax).mT
    return gain @ y, k_xx - gain @ k_ax


def normal_kl(mean: Tensor, variance: Tensor) -> Tensor:
    """The sum of KL[N(mean, variance) || N(0, 1)] over all entries."""
    return kl_divergence(Normal(mean, variance.sqrt()), Normal(torch.zeros_like(mean), 1.0)).sum()


def quadrature(size: int, dimensions: int) -> tuple[Tensor, Tensor]:
    """Nodes [S, Q] and weights [S] of an expectation under N(0, I)."""
    nodes, weights = np.polynomial.hermite_e.hermegauss(size)
    places = np.array(list(product(nodes, repeat=dimensions)))
    products = np.array([np.prod(w) for w in product(weights / weights.sum(), repeat=dimensions)])
    return torch.from_numpy(places), torch.from_numpy(products)


def pseudo_observations(model: Any, x: Tensor, condition: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Mean and variance that the encoder of a GP-VAE or a CVAE gives, with the variance in its limits."""
    answer = model.latents.net(x) if condition is None else model.latents.net(x, condition)
    half = answer.shape[1] // 2
    low, high = (math.exp(limit) for limit in model.latents.limits)
    return answer[:, :half], answer[:, half:].exp().clamp(low, high)


def posterior_of_channel(k: Tensor, y: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """Mean [T] and covariance [T, T] of the GP with covariance k given y [T], each with its own noise variance."""
    gain = torch.linalg.solve(k + variance.diag(), k).mT
    covariance = k - gain @ k
    return gain @ y, (covariance + covariance.mT) / 2


def sparse_posterior(
    k_mm: Tensor, k_bm: Tensor, k_bb: Tensor, y: Tensor, variance: Tensor, repeats: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance [B] of q_S at the points, and KL[q(f_m) || p(f_m)], as Jazbec et al. write them (Eq. 3, 9)."""
    sigma = k_mm + repeats * k_bm.mT @ (k_bm / variance[:, None])
    mu = repeats * k_mm @ torch.linalg.solve(sigma, k_bm.mT @ (y / variance))
    a = k_mm @ torch.linalg.solve(sigma, k_mm)
    mean = k_bm @ torch.linalg.solve(k_mm, mu)
    explained = (k_bm * torch.linalg.solve(k_mm, k_bm.mT).mT).sum(1)
    spread = k_bb - explained + (k_bm * torch.linalg.solve(sigma, k_bm.mT).mT).sum(1)
    prior = MultivariateNormal(torch.zeros_like(mu), k_mm)
    return mean, spread, kl_divergence(MultivariateNormal(mu, (a + a.mT) / 2), prior)


def with_jitter(k: Tensor, relative: float = 1e-7) -> Tensor:
    """The covariance of inducing values, with the jitter that the models document."""
    return k + relative * k.diagonal().mean() * torch.eye(len(k))


def slopes(model: Any, batch: Batch, step: float = 1e-6) -> tuple[float, float]:
    """The slope of the loss in a random direction of all parameters, by the gradient and by two values of the loss."""
    parameters = [p for p in model.parameters() if p.requires_grad]
    generator = torch.Generator().manual_seed(0)
    direction = [torch.randn(p.shape, generator=generator, dtype=p.dtype) for p in parameters]

    def loss_at(distance: float) -> Tensor:
        with torch.no_grad():
            for parameter, towards in zip(parameters, direction, strict=True):
                parameter.add_(distance * towards)
        torch.manual_seed(0)
        loss: Tensor = model.objective(batch).loss
        return loss

    loss_at(0).backward()
    by_gradient = sum(
        (p.grad.to_dense() * d).sum().item() for p, d in zip(parameters, direction, strict=True) if p.grad is not None
    )
    above, below = loss_at(step).item(), loss_at(-2 * step).item()
    loss_at(step)
    return by_gradient, (above - below) / (2 * step)


def bits_posterior(t: Tensor, k: Tensor, offset: Tensor, iterations: int) -> tuple[Tensor, Tensor]:
    """psi [A, D] after some iterations of the quadratic bound, and the pseudo-targets there, with noise 4."""
    noisy, psi = k + 4 * torch.eye(len(k)), torch.zeros_like(t)
    for _ in range(iterations):
        psi = k @ torch.linalg.solve(noisy, psi + 4 * (t - torch.sigmoid(psi + offset)))
    return psi, psi + 4 * (t - torch.sigmoid(psi + offset))


def bits_bound(t: Tensor, k: Tensor, offset: Tensor, iterations: int) -> Tensor:
    """log N(y | 0, K + 4 I) + sum(log(8 pi) / 2 + 2 g^2 + log p(t | psi))."""
    psi, y = bits_posterior(t, k, offset, iterations)
    p = torch.sigmoid(psi + offset)
    constant = 0.5 * math.log(8 * math.pi) + 2 * (t - p) ** 2 + t * p.log() + (1 - t) * (1 - p).log()
    return log_density(y, k + 4 * torch.eye(len(k))) + constant.sum()


def bits_predicted(t: Tensor, k: Tensor, offset: Tensor, iterations: int) -> Tensor:
    """p(t_n = 1 | t_A) [R, D] of the points of k [N, N] behind the first A, by a fine quadrature."""
    active = len(t)
    _, y = bits_posterior(t, k[:active, :active], offset, iterations)
    noisy = k[:active, :active] + 4 * torch.eye(active)
    mean, covariance = regression(noisy, k[:active, active:], k[active:, active:], y)
    nodes, weights = quadrature(60, 1)
    f = mean[..., None] + offset[:, None] + covariance.diagonal().sqrt()[:, None, None] * nodes[:, 0]
    return torch.sigmoid(f) @ weights
