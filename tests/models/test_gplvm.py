"""GP-LVM: Lawrence's model, what its batches are, and what it has in common with PCA."""

from typing import Any

import pytest
import torch

from src.data.batch import Batch
from src.gp.quadratic_bound import ITERATIONS
from src.runs.errors import UserError
from tests.models.builders import Given, built, far_curve, rows
from tests.models.direct import bits_bound, log_density, rbf, set_hyperparameters

LINEAR = {"_target_": "src.nets.mlp.mlp", "hidden": []}


def gplvm(data: Given, *overrides: str, **arguments: Any) -> Any:
    return set_hyperparameters(built(data, "gplvm", "active_set.size=4", *overrides, encoder=LINEAR, **arguments))


def covariance_of_all(model: Any, data: Given) -> tuple[torch.Tensor, torch.Tensor]:
    """Centred observations and their covariance, by hand."""
    x = data.train.all().x.double()
    x = x - x.mean(0)
    layer = model.latents.mean
    z = layer.weight if model.latents.free else x @ layer[1].weight.mT + layer[1].bias
    return x, rbf(model.kernel, z, z) + model.likelihood.noise * torch.eye(len(x))


@pytest.mark.parametrize("amortised", [True, False])
def test_a_full_batch_is_the_exact_evidence(amortised: bool) -> None:
    data = Given(far_curve(12))
    model = gplvm(data, amortised=amortised)
    x, k = covariance_of_all(model, data)
    torch.testing.assert_close(model.objective(rows(data)).loss, -log_density(x, k) / x.numel())


def test_the_mean_over_disjoint_batches_takes_them_to_be_independent() -> None:
    """It is the density with the covariances between batches left out: not the full objective."""
    data = Given(far_curve(12), batch_size=4)
    model = gplvm(data, amortised=False)
    batches = torch.arange(12).split(4)
    losses = [model.objective(rows(data, *index.tolist())).loss for index in batches]
    x, k = covariance_of_all(model, data)
    blocks = torch.block_diag(*(k[i : i + 4, i : i + 4] for i in (0, 4, 8)))
    torch.testing.assert_close(torch.stack(losses).mean(), -log_density(x, blocks) / x.numel())
    assert not torch.allclose(log_density(x, k), log_density(x, blocks), rtol=1e-2)


def test_the_evidence_scales_with_the_number_of_data_and_of_pixels() -> None:
    """In nats it doubles with N and with repeated pixels; per value it stays."""
    x = far_curve(12)
    single, doubled = (gplvm(Given(x, told={"num_train": num_data})) for num_data in (12, 24))
    torch.testing.assert_close(single.objective(Batch.of(x)).loss, doubled.objective(Batch.of(x)).loss)
    free = gplvm(Given(x), amortised=False)
    tiled = gplvm(Given(x.repeat(1, 2)), amortised=False)
    tiled.latents.load_state_dict(free.latents.state_dict())
    torch.testing.assert_close(free.objective(Batch.of(x)).loss, tiled.objective(Batch.of(x.repeat(1, 2))).loss)


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
        loss: torch.Tensor = model.objective(rows(data)).loss
        loss.backward()
        return loss

    optimizer.step(closure)
    z = model.latents.mean.weight.detach()
    leading = torch.linalg.svd(model.centred(data.train.all().x))[0][:, :2]
    projection = leading @ (leading.mT @ z)
    torch.testing.assert_close(projection, z, atol=1e-3, rtol=0)


def dense(model: torch.nn.Module) -> list[torch.nn.Parameter]:
    """All parameters, with dense gradients, which L-BFGS needs."""
    for module in model.modules():
        if isinstance(module, torch.nn.Embedding):
            module.sparse = False
    return list(model.parameters())


@pytest.mark.parametrize("size", [0, 13])
def test_an_active_set_that_is_not_among_the_data_is_refused(size: int) -> None:
    with pytest.raises(UserError, match=rf"active_set\.size={size} must lie between 1 and N = 12"):
        built(Given(far_curve(12)), "gplvm", f"active_set.size={size}")


def test_bits_have_the_bound_in_place_of_the_evidence() -> None:
    x = (torch.rand(12, 5, generator=torch.Generator().manual_seed(2)) > 0.6).float()
    data = Given(x, told={"binary": True})
    model = built(data, "gplvm", "active_set.size=4", encoder=LINEAR, likelihood="bernoulli")
    set_hyperparameters(model, noise=None)
    t, layer = x.double(), model.latents.mean[1]
    z = (t - t.mean(0)) @ layer.weight.mT + layer.bias
    for index in (torch.arange(12), torch.tensor([3, 7, 1])):
        bound = bits_bound(t[index], rbf(model.kernel, z[index], z[index]), model.offset, ITERATIONS)
        loss = model.objective(rows(data, *index.tolist())).loss
        torch.testing.assert_close(loss, -12 / len(index) * bound / 60)
