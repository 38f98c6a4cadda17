"""GP-LVM: Lawrence's model, and what it has in common with PCA."""

import torch

from src.gp.active_set import log_marginal
from tests.models.builders import Given, built, noisy_curve, rows


def test_a_full_batch_is_the_exact_evidence() -> None:
    data = Given(noisy_curve())
    model = built(data, "gplvm", "active_set.size=20")
    x, z = model.centred(data.train.x), model.encode(data.train.x).mean
    exact = log_marginal(x, z, model.kernel, model.likelihood.noise)
    torch.testing.assert_close(model.objective(rows(data)).loss, -exact / x.numel())


def test_with_a_linear_kernel_it_finds_the_principal_subspace() -> None:
    """Dual probabilistic PCA: the optimum of z spans the leading eigenvectors of x x^T."""
    generator = torch.Generator().manual_seed(0)
    signal = torch.randn(40, 2, generator=generator) @ torch.tensor([[3.0, 0, 1, 0, 2, 0], [0, 2, 0, 1, 0, 1]])
    data = Given(signal + 0.3 * torch.randn(40, 6, generator=generator))
    linear = {"_target_": "gpytorch.kernels.LinearKernel"}
    model = built(data, "gplvm", "active_set.size=20", kernel=linear, amortised=False)
    with torch.no_grad():
        model.latents.mean.weight.normal_(generator=generator)
    optimizer = torch.optim.LBFGS(dense(model), max_iter=500, line_search_fn="strong_wolfe")

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model.objective(rows(data)).loss
        loss.backward()
        return loss

    optimizer.step(closure)
    z = model.latents.mean.weight.detach()
    leading = torch.linalg.svd(model.centred(data.train.x))[0][:, :2]
    projection = leading @ (leading.mT @ z)
    torch.testing.assert_close(projection, z, atol=1e-3, rtol=0)


def dense(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """All parameters, with dense gradients, which L-BFGS needs."""
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.sparse = False
    return list(model.parameters())
