"""Moments of the training data, and kernels that fit standardised inputs."""

import math
from typing import Any

import gpytorch
import pytest
import torch

from src.models.learning import gpytorch_parameters
from src.models.standardised import Standardiser, kernel_of_inputs, with_inputs
from src.runs.errors import UserError
from src.runs.specs import make
from tests.models.builders import spec_of


def test_columns_have_mean_0_and_sd_1_and_a_constant_column_is_centred_only() -> None:
    """In chunks of different sizes; 1e4 + 0.1 has no exact float, so that naive sums leave a tiny deviation."""
    torch.manual_seed(0)
    rows = torch.randn(50, 3) * torch.tensor([1e-3, 7.0, 0.0]) + torch.tensor([3.0, -40.0, 1e4 + 0.1])
    standardise = Standardiser(3)
    standardise.fit(rows.split([20, 25, 5]))
    answer = standardise(rows)
    torch.testing.assert_close(answer.mean(0), torch.zeros(3), rtol=0, atol=1e-3)
    torch.testing.assert_close(answer.std(0, correction=0), torch.tensor([1.0, 1.0, 0.0]), rtol=1e-3, atol=0)
    assert standardise.scale[2] == 1 and set(standardise.state_dict()) == {"mean", "scale"}


def test_moments_are_those_of_all_rows() -> None:
    torch.manual_seed(0)
    rows, standardise = 5 + 2 * torch.randn(40, 2).double(), Standardiser(2).double()
    standardise.fit(rows.split(7))
    torch.testing.assert_close(standardise.mean, rows.mean(0))
    torch.testing.assert_close(standardise.scale, rows.std(0, correction=0))


def test_with_one_scale_the_variances_of_all_columns_have_mean_1() -> None:
    torch.manual_seed(0)
    rows, standardise = torch.randn(40, 3).double() * torch.tensor([0.0, 0.1, 4.0]), Standardiser(3).double()
    standardise.fit(rows.split(7), one_scale=True)
    assert standardise.scale.unique().numel() == 1
    torch.testing.assert_close(standardise(rows).var(0, correction=0).mean(), torch.tensor(1.0).double())
    standardise.fit([torch.full((5, 3), 2.0)], one_scale=True)
    assert (standardise(torch.full((1, 3), 3.0).double()) == 1).all()  # constant columns are centred only


def kernel_spec(name: str) -> dict[str, Any]:
    spec: dict[str, Any] = spec_of("model=autogp", f"kernel={name}")["kernel"]
    return spec


def test_one_length_scale_per_input() -> None:
    kernel = kernel_of_inputs(kernel_spec("rbf_ard"), 9)
    assert kernel.base_kernel.lengthscale.shape == (1, 9)
    torch.testing.assert_close(kernel.base_kernel.lengthscale, torch.full((1, 9), 3.0))
    assert kernel_of_inputs(kernel_spec("rbf"), 9).base_kernel.lengthscale.shape == (1, 1)


def test_latent_models_have_one_length_scale_per_latent_dimension() -> None:
    spec = spec_of("model=sas", "kernel=rbf_ard", "model.latent_dim=4")["kernel"]
    assert spec["base_kernel"]["ard_num_dims"] == 4
    assert kernel_of_inputs(spec, 4).base_kernel.lengthscale.shape == (1, 4)


@pytest.mark.parametrize("name", ["rbf_ard", "rbf", "matern52", "rational_quadratic", "arc_cosine"])
def test_copies_have_parameters_of_their_own(name: str) -> None:
    """They start alike, and a change of one changes no other."""
    kernel, x = kernel_of_inputs(kernel_spec(name), 4, copies=3), torch.randn(5, 4)
    k = kernel(x).to_dense()
    assert k.shape == (3, 5, 5) and torch.equal(k[0], k[1])
    for parameter in kernel.parameters():
        assert len(parameter) == 3
        parameter.data[1] += 1
    changed = kernel(x).to_dense()
    assert torch.equal(changed[0], k[0]) and torch.equal(changed[2], k[2]) and not torch.allclose(changed[1], k[1])


@pytest.mark.parametrize("name", ["rbf_ard", "rational_quadratic", "arc_cosine"])
def test_a_step_changes_positive_parameters_in_proportion(name: str) -> None:
    """They are learned as logarithms, and start where they would have started otherwise."""
    kernel, plain = kernel_of_inputs(kernel_spec(name), 400), make(with_inputs(kernel_spec(name), 400))
    torch.testing.assert_close(kernel.outputscale, plain.outputscale)
    for _, parameter, constraint in gpytorch_parameters(kernel):
        value = constraint.transform(parameter).detach()
        parameter.data += 0.1
        torch.testing.assert_close(constraint.transform(parameter), math.exp(0.1) * value)
    torch.testing.assert_close(kernel.base_kernel.lengthscale.mean().detach(), torch.tensor(20 * math.exp(0.1)))


def test_kernels_inside_kernels_know_the_number_of_inputs() -> None:
    part = {"_target_": "gpytorch.kernels.RBFKernel", "ard_num_dims": "inputs"}
    spec = {"_target_": "gpytorch.kernels.AdditiveKernel", "_args_": [part, part], "ard_num_dims": 2}
    assert with_inputs(spec, 7) == spec | {"_args_": [part | {"ard_num_dims": 7}] * 2}
    del spec["ard_num_dims"]
    kernel = kernel_of_inputs(spec, 7)
    assert isinstance(kernel, gpytorch.kernels.AdditiveKernel)
    assert [k.lengthscale.shape for k in kernel.kernels] == [(1, 7), (1, 7)]


def test_a_kernel_that_does_not_exist_is_an_error_for_people() -> None:
    with pytest.raises(UserError, match="NoKernel"):
        kernel_of_inputs({"_target_": "gpytorch.kernels.NoKernel"}, 3)
