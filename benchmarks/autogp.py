"""AutoGP as published on MNIST, ten GPs with kernels and inducing inputs of their own, beside GPyTorch's SVGP."""

from collections.abc import Callable, Iterator

import gpytorch
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import SoftmaxLikelihood
from gpytorch.mlls import VariationalELBO
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    IndependentMultitaskVariationalStrategy,
    VariationalStrategy,
)
from torch import Tensor

from benchmarks.examples import NUM_DATA, composed, training_step
from benchmarks.growth import peak_bytes
from benchmarks.rows import Row, faster, seconds
from src.data.batch import Batch
from src.data.facts import Facts, Target
from src.models.autogp import AutoGP
from src.models.base import build

CLASSES, INDUCING, INPUTS, BATCH = 10, 200, 784, 1000
MEMORY = 1.5 * 2**30  # bytes that a step may take


def autogp() -> Iterator[Row]:
    """One step of each on the same batch, and what a step of ours allocates at most."""
    model, batch = example()
    step = training_step(model, lambda: batch)
    x, y = model.standardised(batch.x), batch.y
    assert y is not None
    ours, other = seconds(step, gpytorch_step(model.inducing.detach(), x, y, model.likelihood.samples), repeats=7)
    name = f"autogp step, P={CLASSES}, M={INDUCING}, D={INPUTS}"
    yield faster(name, "GPyTorch's SVGP", ours, other, 3)
    peak = peak_bytes(step)
    yield Row(f"memory of an {name}", "what it may take", peak / 2**20, MEMORY / 2**20, peak / MEMORY, 1.0, unit="MB")


def example() -> tuple[AutoGP, Batch]:
    """The model, with random inducing inputs, and a batch of random images."""
    torch.manual_seed(0)
    facts = Facts((1, 28, 28), NUM_DATA, BATCH, Target("class", CLASSES))
    model: AutoGP = build(composed("model=autogp", "kernel=rbf_ard", f"model.num_inducing={INDUCING}")["model"], facts)
    model.inducing.data.normal_()
    images = torch.randint(256, (BATCH, 1, 28, 28), dtype=torch.uint8)
    model.inputs.fit([model.as_float(images).flatten(1)])
    return model, Batch(images, torch.arange(BATCH), torch.randint(CLASSES, (BATCH,)))


class SVGP(gpytorch.models.ApproximateGP):
    """The same model as GPyTorch's tutorial has it."""

    def __init__(self, inducing: Tensor) -> None:
        each = torch.Size([CLASSES])
        q_u = CholeskyVariationalDistribution(INDUCING, batch_shape=each)
        strategy = VariationalStrategy(self, inducing, q_u, learn_inducing_locations=True)
        super().__init__(IndependentMultitaskVariationalStrategy(strategy, num_tasks=CLASSES))
        self.mean_module = gpytorch.means.ZeroMean(batch_shape=each)
        self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=INPUTS, batch_shape=each), batch_shape=each)
        self.covar_module.base_kernel.lengthscale = INPUTS**0.5

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The GP prior at x."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def gpytorch_step(inducing: Tensor, x: Tensor, y: Tensor, samples: int) -> Callable[[], None]:
    """Objective, backward and optimiser."""
    model, likelihood = SVGP(inducing.clone()), SoftmaxLikelihood(num_classes=CLASSES, mixing_weights=False)
    elbo = VariationalELBO(likelihood, model, num_data=NUM_DATA)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        with gpytorch.settings.num_likelihood_samples(samples):
            (-elbo(model(x), y)).backward()
        optimizer.step()

    return step
