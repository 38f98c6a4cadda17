"""The expected metric of a GP: that of its samples, in closed form, and what must hold for any metric."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, RQKernel, ScaleKernel
from torch import Tensor

from src.gp import active_set, quadratic_bound
from src.gp.geometry import expected_metric, magnification, pulled_back
from src.gp.labels import Bits, OneHot
from src.gp.quadratic_bound import Logits
from src.gp.sparse import Whitened, make_sparse_gp

A, D, Q = 12, 6, 2
NOISE = torch.tensor([0.05], dtype=torch.float64)
STEP = 1e-4
Posterior = Callable[[Tensor], tuple[Tensor, Tensor]]  # points [p, Q] to means [p, D] and covariances [D, p, p]


def seeded(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def kernel_of(kind: type[Kernel] = RBFKernel, **options: Any) -> Kernel:
    kernel = ScaleKernel(kind(**options)).double()
    kernel.outputscale, kernel.base_kernel.lengthscale = 1.3, 0.8
    return kernel.requires_grad_(False)


KERNELS = {
    "rbf": kernel_of(),
    "rbf ard": kernel_of(ard_num_dims=Q),
    "matern 5/2": kernel_of(MaternKernel, nu=2.5),
    "rational quadratic": kernel_of(RQKernel),
}
KERNELS["rbf ard"].base_kernel.lengthscale = torch.tensor([[0.6, 1.4]])
Z_A, X_A, AT = seeded(A, Q), seeded(A, D, seed=1), seeded(5, Q, seed=2)


def dense(kernel: Kernel, a: Tensor, b: Tensor) -> Tensor:
    matrix: Tensor = kernel(a, b).to_dense()
    return matrix


def exact(kernel: Kernel, x: Tensor, mask: Tensor, noise: Tensor) -> Posterior:
    """The GP given values x [A, D] where a mask says so, one output at a time, by plain solves."""

    def posterior(points: Tensor) -> tuple[Tensor, Tensor]:
        means, covariances = [], []
        for d in range(x.shape[1]):
            seen = Z_A[mask[:, d]]
            k = dense(kernel, seen, seen) + noise * torch.eye(len(seen)).double()
            cross = dense(kernel, points, seen)
            means.append(cross @ torch.linalg.solve(k, x[mask[:, d], d]))
            covariances.append(dense(kernel, points, points) - cross @ torch.linalg.solve(k, cross.mT))
        return torch.stack(means, 1), torch.stack(covariances)

    return posterior


def given_points(kernel: Kernel) -> tuple[Any, Posterior]:
    given = active_set.condition(X_A, Z_A, kernel, NOISE)
    return given, exact(kernel, X_A, torch.ones(A, D, dtype=torch.bool), NOISE)


def given_some_values(kernel: Kernel) -> tuple[Any, Posterior]:
    mask = torch.rand(A, D, generator=torch.Generator().manual_seed(5)) > 0.4
    mask[:, 0] = mask[:, 1]  # two outputs with one pattern
    return active_set.condition(X_A, Z_A, kernel, NOISE, mask), exact(kernel, X_A, mask, NOISE)


def given_bits(kernel: Kernel, mask: Tensor | None = None) -> tuple[Any, Posterior]:
    """The posterior is that given real pseudo-targets, which are known once the mean is."""
    t, offset = (X_A > 0).double(), seeded(D, seed=7)
    given = quadratic_bound.condition(t, Z_A, kernel, Logits(Bits(), offset), mask, tolerance=1e-10)
    f = given.predict(Z_A)[0] - offset
    y = f + 4 * (t - (f + offset).sigmoid())
    return given, exact(kernel, y, torch.ones(A, D, dtype=torch.bool) if mask is None else mask, torch.tensor(4.0))


def given_some_bits(kernel: Kernel) -> tuple[Any, Posterior]:
    return given_bits(kernel, torch.rand(A, D, generator=torch.Generator().manual_seed(5)) > 0.4)


def given_inducing(kernel: Kernel, covariances: int = 1, spread: float = 0.3) -> tuple[Any, Posterior]:
    """q(u) = N(m, S): the mean K m, the covariance of f | u and that of u carried along."""
    inducing = Z_A[:7]
    scale = spread * (torch.eye(7).double() + 0.3 * seeded(covariances, 7, 7, seed=3)).tril()
    q = Whitened(seeded(7, D, seed=4), scale)
    given = make_sparse_gp(inducing, kernel, NOISE, q)

    def posterior(points: Tensor) -> tuple[Tensor, Tensor]:
        mean, covariance = q.values(given.chol)
        k = given.chol @ given.chol.mT
        projection = torch.linalg.solve(k, dense(kernel, inducing, points)).mT
        unexplained = dense(kernel, points, points) - projection @ k @ projection.mT
        return projection @ mean, (unexplained + projection @ covariance @ projection.mT).expand(D, -1, -1)

    return given, posterior


def given_inducing_of_each(kernel: Kernel) -> tuple[Any, Posterior]:
    return given_inducing(kernel, covariances=D)


def given_inducing_values(kernel: Kernel) -> tuple[Any, Posterior]:
    return given_inducing(kernel, spread=0.0)


GIVEN = {
    "points": given_points,
    "some values": given_some_values,
    "bits": given_bits,
    "some bits": given_some_bits,
    "inducing": given_inducing,
    "inducing of each": given_inducing_of_each,
    "inducing values": given_inducing_values,
}


def around(z: Tensor) -> Tensor:
    """z plus and minus a step along each coordinate, [2 Q, Q]."""
    steps = STEP * torch.eye(Q, dtype=z.dtype)
    return torch.cat([z + steps, z - steps])


def differences(values: Tensor) -> Tensor:
    """The Jacobian [Q, ...] from values [2 Q, ...] around a point."""
    return (values[:Q] - values[Q:]) / (2 * STEP)


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("kernel", KERNELS)
def test_it_has_the_moments_of_differences(kind: str, kernel: str) -> None:
    """E[J]^T E[J] + sum_d Cov(J_d) of the finite differences of f, whose mean and covariance are known."""
    given, posterior = GIVEN[kind](KERNELS[kernel])
    for z, metric in zip(AT, expected_metric(given.jacobian_moments, AT), strict=True):
        mean, covariance = posterior(around(z))
        jacobian = differences(mean)
        spread = differences(differences(covariance.sum(0)).mT)
        torch.testing.assert_close(metric, jacobian @ jacobian.mT + spread, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["points", "inducing"])
@pytest.mark.parametrize("kernel", ["rbf", "rbf ard", "matern 5/2"])
def test_it_is_the_mean_of_the_metrics_of_samples(kind: str, kernel: str) -> None:
    """J^T J of 60,000 drawn functions with D outputs each; the error of their mean is about .003."""
    given, posterior = GIVEN[kind](KERNELS[kernel])
    z = AT[0]
    mean, covariance = posterior(around(z))
    values, vectors = torch.linalg.eigh(covariance)  # [D, 2 Q]
    root = vectors * values.clamp_min(0).sqrt().unsqueeze(1)
    samples = mean.mT + (root @ seeded(60_000, D, 2 * Q, 1, seed=9)).squeeze(-1)  # [S, D, 2 Q]
    jacobian = (samples[..., :Q] - samples[..., Q:]) / (2 * STEP)
    sampled = (jacobian.mT @ jacobian).mean(0)
    metric = expected_metric(given.jacobian_moments, z.unsqueeze(0))[0]
    assert (sampled - metric).norm() / metric.norm() < 1e-2


@pytest.mark.parametrize("kind", GIVEN)
@pytest.mark.parametrize("kernel", KERNELS)
def test_it_is_positive_definite(kind: str, kernel: str) -> None:
    given, _ = GIVEN[kind](KERNELS[kernel])
    metric = expected_metric(given.jacobian_moments, torch.cat([3 * seeded(200, Q, seed=11), Z_A]))
    torch.testing.assert_close(metric, metric.mT)
    assert torch.linalg.eigvalsh(metric).min() > 1e-3


@pytest.mark.parametrize("kind", ["points", "inducing values"])
@pytest.mark.parametrize(("name", "slopes"), [("rbf", 1.0), ("matern 5/2", 5 / 3)])
def test_it_grows_with_the_uncertainty_far_from_data(kind: str, name: str, slopes: float) -> None:
    """With values 0 only the uncertainty is left; it grows along a ray from the data to that of the prior."""
    kernel = KERNELS[name]
    given, _ = GIVEN[kind](kernel)
    silent = (
        replace(given, whitened=torch.zeros_like(given.whitened))
        if kind == "points"
        else replace(given, q=Whitened(torch.zeros_like(given.q.mean), given.q.scale))
    )
    ray = given.z.mean(0) + torch.linspace(1.5, 8, 20).double().unsqueeze(1) * torch.tensor([0.6, 0.8]).double()
    size = magnification(expected_metric(silent.jacobian_moments, ray))
    _, variance = silent.predict(ray)
    assert (size.diff() > -1e-9).all() and (variance.diff() > -1e-9).all() and size[0] < 0.9 * size[-1]
    prior = slopes * D * 1.3 / 0.8**2
    torch.testing.assert_close(size[-1].item(), prior, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(
        magnification(expected_metric(given.jacobian_moments, ray))[-1].item(), prior, rtol=1e-6, atol=0.0
    )


def test_it_turns_with_the_latent_space() -> None:
    """z -> R z leaves distances alone, so G -> R G R^T."""
    kernel, angle = KERNELS["matern 5/2"], torch.tensor(0.7).double()
    turn = torch.stack([torch.stack([angle.cos(), -angle.sin()]), torch.stack([angle.sin(), angle.cos()])])
    metric = expected_metric(active_set.condition(X_A, Z_A, kernel, NOISE).jacobian_moments, AT)
    turned = active_set.condition(X_A, Z_A @ turn.mT, kernel, NOISE)
    torch.testing.assert_close(expected_metric(turned.jacobian_moments, AT @ turn.mT), turn @ metric @ turn.mT)


def test_it_does_not_see_the_order_of_points_and_outputs_and_scales_with_them() -> None:
    kernel = kernel_of()
    metric = expected_metric(active_set.condition(X_A, Z_A, kernel, NOISE).jacobian_moments, AT)
    points, outputs = torch.randperm(A), torch.randperm(D)
    mixed = active_set.condition(X_A[points][:, outputs], Z_A[points], kernel, NOISE)
    torch.testing.assert_close(expected_metric(mixed.jacobian_moments, AT), metric)
    kernel.outputscale = 9 * kernel.outputscale
    larger = active_set.condition(3 * X_A, Z_A, kernel, 9 * NOISE)
    torch.testing.assert_close(expected_metric(larger.jacobian_moments, AT), 9 * metric)


def test_latents_in_other_units_have_the_metric_of_these_units() -> None:
    """z = S u with length scales to match: G_u = S G_z S."""
    kernel, scale = KERNELS["rbf ard"], torch.tensor([2.0, 0.5]).double()
    metric = expected_metric(active_set.condition(X_A, Z_A, kernel, NOISE).jacobian_moments, AT)
    other = kernel_of(ard_num_dims=Q)
    other.base_kernel.lengthscale = kernel.base_kernel.lengthscale / scale
    given = active_set.condition(X_A, Z_A / scale, other, NOISE)
    expected = scale.diag() @ metric @ scale.diag()
    torch.testing.assert_close(expected_metric(given.jacobian_moments, AT / scale), expected)


def test_the_logits_of_a_category_sum_to_zero_and_vary_in_one_direction_less() -> None:
    """Far from data, P logits vary as P - 1 functions do."""
    t = torch.nn.functional.one_hot(torch.arange(A) % 3, 3).double()
    kind = Logits(OneHot([3]), torch.zeros(3).double())
    given: Any = quadratic_bound.condition(t, Z_A, KERNELS["rbf"], kind)
    far = expected_metric(given.jacobian_moments, torch.full((1, Q), 40.0).double())[0]
    torch.testing.assert_close(far, 2 * 1.3 / 0.8**2 * torch.eye(Q).double(), rtol=1e-6, atol=1e-9)


def test_chunks_and_precisions_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    given, _ = given_points(KERNELS["rbf"])
    metric = expected_metric(given.jacobian_moments, AT)
    assert expected_metric(given.jacobian_moments, AT.float()).dtype == torch.float32
    monkeypatch.setattr("src.gp.geometry.NUMBERS_AT_ONCE", 2 * A * Q)
    torch.testing.assert_close(expected_metric(given.jacobian_moments, AT), metric)


def test_a_function_pulls_back_the_metric_of_its_jacobian() -> None:
    """f = (z_1^2, z_1 z_2, sin z_2) has a Jacobian by hand; under no_grad too."""

    def function(z: Tensor) -> Tensor:
        return torch.stack([z[:, 0].square(), z.prod(1), z[:, 1].sin()], 1).view(-1, 3, 1)

    with torch.no_grad():
        metric = pulled_back(function, AT)
    for (first, second), found in zip(AT.tolist(), metric, strict=True):
        jacobian = torch.tensor([[2 * first, 0], [second, first], [0, torch.tensor(second).cos().item()]]).double()
        torch.testing.assert_close(found, jacobian.mT @ jacobian, rtol=1e-6, atol=1e-7)


def test_both_metrics_have_gradients() -> None:
    """Geodesics on the metric itself follow them."""
    given, _ = given_points(KERNELS["rbf"])
    z = AT.clone().requires_grad_()
    net = torch.nn.Sequential(torch.nn.Linear(Q, 4), torch.nn.Tanh(), torch.nn.Linear(4, 3)).double()
    for metric in (lambda at: expected_metric(given.jacobian_moments, at), lambda at: pulled_back(net, at)):
        assert torch.autograd.gradcheck(lambda at, metric=metric: metric(at).sum((1, 2)), z)


def test_the_magnification_is_the_root_of_the_determinant() -> None:
    matrix = torch.tensor([[[4.0, 1.0], [1.0, 2.5]], [[1.0, 1.0], [1.0, 1.0]]])
    torch.testing.assert_close(magnification(matrix), torch.tensor([3.0, 0.0]))
