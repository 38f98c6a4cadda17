"""The Bayesian GP-LVM beside GPyTorch's own in its tutorial's form: a kernel, inducing inputs and q(u) an output."""

from collections.abc import Callable

import gpytorch
import torch
from gpytorch.mlls import VariationalELBO
from gpytorch.models.gplvm.bayesian_gplvm import BayesianGPLVM
from gpytorch.models.gplvm.latent_variable import VariationalLatentVariable
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from torch.distributions import Normal

from benchmarks.steps import BATCH, NUM_DATA, example, training_step

INDUCING, LATENT = 100, 2


def table(medians: Callable[..., list[float]]) -> None:
    """One step of each, on the same batch."""
    print(f"\na training step of the Bayesian GP-LVM: M = {INDUCING}, B = {BATCH}, 28 x 28 images, float32")
    model, batch = example("model=bayesian_gplvm", f"model.num_inducing={INDUCING}", "model.amortised=false")
    images = model.as_float(batch.x).flatten(1)
    ours, theirs = medians(training_step(model, batch), tutorial_step(images, batch.index), repeats=3, warm_up=1)
    print(
        f"ours {1e3 * ours:.1f} ms, GPyTorch's tutorial form {1e3 * theirs:.0f} ms: {theirs / ours:.0f} times",
        flush=True,
    )


class Tutorial(BayesianGPLVM):
    """GPyTorch's Bayesian GP-LVM with D independent kernels, sets of inducing inputs and variational distributions."""

    def __init__(self, num_data: int, num_outputs: int) -> None:
        batch = torch.Size([num_outputs])
        inducing = torch.randn(num_outputs, INDUCING, LATENT)
        q_u = CholeskyVariationalDistribution(INDUCING, batch_shape=batch)
        strategy = VariationalStrategy(self, inducing, q_u, learn_inducing_locations=True)
        prior = Normal(torch.zeros(num_data, LATENT), torch.ones(num_data, LATENT))
        start = torch.nn.Parameter(torch.randn(num_data, LATENT))
        super().__init__(VariationalLatentVariable(num_data, num_outputs, LATENT, start, prior), strategy)
        self.mean_module = gpytorch.means.ZeroMean(ard_num_dims=LATENT)
        self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel(ard_num_dims=LATENT))

    def forward(self, z: torch.Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The GP prior at z."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(z), self.covar_module(z))


def tutorial_step(images: torch.Tensor, index: torch.Tensor) -> Callable[[], None]:
    """A step as the tutorial has it: sample all N latents, take the batch's rows, one Adam for everything."""
    num_outputs = images.shape[1]
    model, likelihood = (
        Tutorial(NUM_DATA, num_outputs),
        gpytorch.likelihoods.GaussianLikelihood(batch_shape=torch.Size([num_outputs])),
    )
    elbo = VariationalELBO(likelihood, model, num_data=NUM_DATA)
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        output = model(model.sample_latent_variable()[index])
        (-elbo(output, images.T).sum()).backward()
        optimizer.step()

    return step
