"""A training step of SAS and Bayesian SAS beside its floor: the matrix products that it cannot do without, alone."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from torch import Tensor

from benchmarks.examples import BATCH, example, training_step
from benchmarks.rows import Row, seconds, slower
from src.gp.labels import NODES
from src.gp.linalg import solve_lower, solve_upper
from src.gp.quadratic_bound import ITERATIONS

ACTIVE = (100, 200, 400, 800)


def sas() -> Iterator[Row]:
    """The point model: one encoder."""
    yield from steps("sas", num_nets=1)


def bayesian_sas() -> Iterator[Row]:
    """The Bayesian model: one encoder for the means and one for the variances."""
    yield from steps("bayesian_sas", num_nets=2)


def steps(name: str, num_nets: int) -> Iterator[Row]:
    """All sizes, at 28 x 28 and at 3 x 32 x 32 pixels."""
    for num_outputs in (784, 3072):
        for size in ACTIVE:
            model, batch = example(f"model={name}", f"active_set.size={size}", num_outputs=num_outputs)
            step = training_step(model, lambda batch=batch: batch)  # type: ignore[misc]
            ours, floor = seconds(step, floor_of(model.centred(batch.x), size, num_nets), repeats=31)
            yield slower(f"{name} step, A={size}, D={num_outputs}", "its matrix products", ours, floor, 1.3)


def bits() -> Iterator[Row]:
    """SAS with a Bernoulli likelihood beside SAS with a Gaussian one, and beside what it cannot do without."""
    size = 200
    model, batch = example("model=sas", f"active_set.size={size}", "model.likelihood=bernoulli")
    batch = replace(batch, x=(batch.x > 127).byte() * 255)
    plain, _ = example("model=sas", f"active_set.size={size}")
    steps = [training_step(each, lambda: batch) for each in (model, plain)]
    x = model.as_float(batch.x).flatten(1)
    ours, gaussian, floor = seconds(*steps, bits_floor(x, size), repeats=31)
    yield slower(f"sas step of bits, A={size}, D=784", "the same with Gaussian noise", ours, gaussian, 2.5)
    yield slower(f"sas step of bits, A={size}, D=784", "its products and sigmoids", ours, floor, 2.0)


def bits_floor(x: Tensor, size: int) -> Callable[[], None]:
    """The floor of Gaussian noise, three products for each step to psi (one forward), and a sigmoid at each node."""
    gaussian, inverse = floor_of(x, size, num_nets=1), torch.randn(size, size)
    x_active, logits = x[:size], torch.randn_like(x[size:])

    def floor() -> None:
        gaussian()
        for _ in range(ITERATIONS):
            product = inverse @ x_active
            _ = inverse.mT @ product, product @ x_active.mT
        for _ in range(NODES):
            logits.sigmoid()

    return floor


def floor_of(x: Tensor, size: int, num_nets: int) -> Callable[[], None]:
    """The products of `num_nets` encoders and of the GP, on random matrices of the right shapes."""
    encoders, gp = [encoder_products(x) for _ in range(num_nets)], gp_products(x, size)

    def floor() -> None:
        for encoder in encoders:
            encoder()
        gp()

    return floor


def encoder_products(x: Tensor) -> Callable[[], None]:
    """D-512-256-2 forward, and backward without the gradient of x, which nobody needs."""
    first, second, third = (0.01 * torch.randn(*s) for s in ((512, x.shape[1]), (256, 512), (2, 256)))
    grad = torch.randn(len(x), 2)

    def products() -> None:
        hidden1 = x @ first.mT
        hidden2 = hidden1 @ second.mT
        _ = hidden2 @ third.mT
        grad2 = grad @ third
        grad1 = grad2 @ second
        _ = grad.mT @ hidden2, grad2.mT @ hidden1, grad1.mT @ x

    return products


def gp_products(x: Tensor, size: int) -> Callable[[], None]:
    """The Cholesky factor of K_AA, L^-1 x_A and L^-1 K_AR; the predicted means and, for the gradient, the product of
    each with x; and the gradients in K_AA and K_AR, by the formulas of `src.gp.active_set.LogDensities`."""
    x_active, x_rest = x[:size], x[size:]
    z = torch.randn(BATCH, 2)
    k_ar = (-torch.cdist(z[:size], z[size:]).square()).exp()
    k_aa = (-torch.cdist(z[:size], z[:size]).square()).exp() + 0.1 * torch.eye(size)

    def products() -> None:
        chol = torch.linalg.cholesky(k_aa)
        whitened, projection = solve_lower(chol, x_active), solve_lower(chol, k_ar)
        error = torch.addmm(x_rest, projection.mT, whitened, alpha=-1)
        gram, errors = whitened @ whitened.mT, whitened @ error.mT
        gram.addmm_(projection, errors.mT)
        solve_upper(chol.mT, errors)
        solve_upper(chol.mT, torch.linalg.solve_triangular(chol, gram, upper=False, left=False))

    return products
