"""The Bayesian GP-LVM beside GPyTorch's, in its tutorial's form and in its best, and beside Pyro's."""

from collections.abc import Callable, Iterator

import gpytorch
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.mlls import VariationalELBO
from gpytorch.models.gplvm.bayesian_gplvm import BayesianGPLVM
from gpytorch.models.gplvm.latent_variable import VariationalLatentVariable
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy
from torch import Tensor
from torch.distributions import Normal

from benchmarks.examples import NUM_DATA, example, training_step
from benchmarks.rows import Row, faster, seconds

LATENT = 2


def bayesian_gplvm() -> Iterator[Row]:
    """One step of each, on the same batch; the others take seconds, so that few rounds must do."""
    for size in (32, 100, 200):
        model, batch = example("model=bayesian_gplvm", f"model.num_inducing={size}", "model.amortised=false")
        images, step = model.as_float(batch.x).flatten(1), training_step(model, lambda batch=batch: batch)  # type: ignore[misc]
        name = f"bayesian_gplvm step, M={size}"
        best = gpytorch_step(images, batch.index, size, shared=True)
        ours, *others = seconds(step, best, pyro_step(images, size), repeats=3, warm_up=1)
        for against, other in zip(("GPyTorch, one kernel and set of Z", "Pyro"), others, strict=True):
            yield faster(name, against, ours, other, 3)
        ours, other = seconds(step, gpytorch_step(images, batch.index, size, shared=False), repeats=1, warm_up=1)
        yield faster(name, "GPyTorch, its tutorial's form", ours, other, 100 if size == 100 else 3)


class GPyTorchs(BayesianGPLVM):
    """GPyTorch's model with a q(u) an output, and a kernel and a set of inducing inputs for all, or for each."""

    def __init__(self, num_outputs: int, num_inducing: int, shared: bool) -> None:
        outputs, each = torch.Size([num_outputs]), torch.Size([] if shared else [num_outputs])
        inducing = torch.randn(*each, num_inducing, LATENT)
        q_u = CholeskyVariationalDistribution(num_inducing, batch_shape=outputs)
        strategy = VariationalStrategy(self, inducing, q_u, learn_inducing_locations=True)
        prior = Normal(torch.zeros(NUM_DATA, LATENT), torch.ones(NUM_DATA, LATENT))
        start = torch.nn.Parameter(torch.randn(NUM_DATA, LATENT))
        super().__init__(VariationalLatentVariable(NUM_DATA, num_outputs, LATENT, start, prior), strategy)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = ScaleKernel(RBFKernel(ard_num_dims=LATENT))

    def forward(self, z: Tensor) -> gpytorch.distributions.MultivariateNormal:
        """The GP prior at z."""
        return gpytorch.distributions.MultivariateNormal(self.mean_module(z), self.covar_module(z))


def gpytorch_step(images: Tensor, index: Tensor, num_inducing: int, shared: bool) -> Callable[[], None]:
    """A step as the tutorial has it: sample all N latents, take the batch's rows, one Adam for everything."""
    num_outputs = images.shape[1]
    model = GPyTorchs(num_outputs, num_inducing, shared)
    likelihood = GaussianLikelihood(batch_shape=torch.Size([num_outputs]))
    elbo = VariationalELBO(likelihood, model, num_data=NUM_DATA)
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)

    def step() -> None:
        optimizer.zero_grad()
        output = model(model.sample_latent_variable()[index])
        (-elbo(output, images.T).sum()).backward()
        optimizer.step()

    return step


def pyro_step(images: Tensor, num_inducing: int) -> Callable[[], object]:
    """Pyro's GP-LVM over its variational sparse GP, on the batch as if it were all data: Pyro takes no mini-batches."""
    import pyro
    import pyro.contrib.gp as gp

    pyro.clear_param_store()
    latents = torch.randn(len(images), LATENT)
    kernel = gp.kernels.RBF(LATENT, lengthscale=torch.ones(LATENT))
    base = gp.models.VariationalSparseGP(
        latents, images.T, kernel, torch.randn(num_inducing, LATENT), gp.likelihoods.Gaussian(), jitter=1e-4
    )
    model = gp.models.GPLVM(base)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    loss_of = pyro.infer.TraceMeanField_ELBO().differentiable_loss

    def step() -> None:
        optimizer.zero_grad()
        loss_of(model.model, model.guide).backward()
        optimizer.step()

    return step
