"""What a predictor needs of its training data before it learns: their location and scale, and a kernel to match."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from gpytorch.constraints import Positive
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from src.runs.specs import Spec, make


class Standardiser(nn.Module):
    """Means and standard deviations of columns, kept in the checkpoint. A constant column is centred only."""

    mean: Tensor  # [D]
    scale: Tensor  # [D]

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("scale", torch.ones(size))

    def fit(self, chunks: Iterable[Tensor], one_scale: bool = False) -> None:
        """Take the moments of rows [B, D] that come in chunks; with `one_scale`, variances are 1 on average only."""
        from sklearn.preprocessing import StandardScaler

        scaler = StandardScaler()
        for chunk in chunks:
            scaler.partial_fit(chunk.cpu().numpy())
        self.mean.copy_(torch.as_tensor(scaler.mean_))
        self.scale.copy_(torch.as_tensor(scaler.scale_))
        if one_scale:
            self.scale.fill_(math.sqrt(scaler.var_.mean()) or 1.0)

    def forward(self, rows: Tensor) -> Tensor:
        """Standardised rows [B, D]."""
        return (rows - self.mean) / self.scale


def kernel_of_inputs(spec: Spec, inputs: int, copies: int | None = None) -> Kernel:
    """The kernel of a spec on standardised inputs; with `copies`, a stack with parameters of their own.

    Length scales start at the root of the number of inputs, which is the size of a point: with short ones, points with
    many inputs would have nothing to do with each other. Positive parameters are learned as logarithms, so that a step
    changes a long length scale as much, in proportion, as a short one.
    """
    kernel: Kernel = make(with_inputs(spec, inputs))
    for part in kernel.modules():
        if isinstance(part, Kernel):
            learn_logarithms(part)
            if part.has_lengthscale:
                part.lengthscale = math.sqrt(inputs)
    if copies is None:
        return kernel
    stack = kernel.expand_batch(torch.Size([copies]))
    for parameter in stack.parameters():
        parameter.data = parameter.data.clone()  # GPyTorch's copies share their memory
    return stack


def kernel_of_features(spec: Spec, features: int) -> Kernel:
    """The kernel of a spec on the features of a net, which finds their size itself; it too learns logarithms."""
    kernel: Kernel = make(with_inputs(spec, features))
    for part in kernel.modules():
        if isinstance(part, Kernel):
            learn_logarithms(part)
    return kernel


def learn_logarithms(kernel: Kernel) -> None:
    """Give the kernel's own positive parameters, which GPyTorch learns through a softplus, an exponential instead."""
    for name, parameter in list(kernel.named_parameters(recurse=False)):
        constraint = kernel.constraint_for_parameter_name(name)
        if type(constraint) is Positive:
            value = constraint.transform(parameter.data)
            kernel.register_constraint(name, Positive(transform=torch.exp, inv_transform=torch.log))
            parameter.data = value.log()


def with_inputs(spec: Any, inputs: int) -> Any:
    """A spec in which `ard_num_dims: inputs`, one length scale per input, has become a number."""
    if isinstance(spec, list):
        return [with_inputs(part, inputs) for part in spec]
    if not isinstance(spec, dict):
        return spec
    return {
        key: inputs if (key, value) == ("ard_num_dims", "inputs") else with_inputs(value, inputs)
        for key, value in spec.items()
    }
