"""The papers' networks, layer by layer, and what other images make of them."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from src.models.posterior import GaussianNet
from src.nets.convolutional import ELUDecoder, ELUEncoder, UpConv2d
from src.nets.mlp import TanhDecoder, mlp_decoder, tanh_encoder
from src.runs.errors import UserError


def sizes(net: nn.Module) -> list[int]:
    """The number of parameters of each layer that has some."""
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    return [sum(p.numel() for p in layer.parameters()) for layer in layers]


def test_the_nets_for_mnist_have_the_published_layers() -> None:
    encoder, decoder = ELUEncoder((1, 28, 28), 32), ELUDecoder((1, 28, 28), 16)
    assert sizes(encoder) == [80, 584, 584, 1056]
    assert sizes(decoder) == [2176, 584, 584, 73]
    assert encoder(torch.rand(3, 1, 28, 28)).shape == (3, 32)
    images = decoder(10 * torch.randn(3, 16))
    assert images.shape == (3, 1, 28, 28) and images.min() > -1  # ELU


def test_a_condition_adds_planes_and_features() -> None:
    encoder, decoder = ELUEncoder((1, 28, 28), 32, conditions=2), ELUDecoder((1, 28, 28), 16, conditions=2)
    assert sizes(encoder) == [9 * 3 * 8 + 8, 584, 584, 34 * 32 + 32]
    assert sizes(decoder) == [19 * 128, 9 * 10 * 8 + 8, 584, 73]
    told = torch.rand(3, 2)
    assert encoder(torch.rand(3, 1, 28, 28), told).shape == (3, 32)
    assert decoder(torch.rand(3, 16), told).shape == (3, 1, 28, 28)


@pytest.mark.parametrize("padded", [True, False])
def test_convolutions_at_twice_the_size_are_those_of_the_upsampled_image(padded: bool) -> None:
    torch.manual_seed(0)
    layer = UpConv2d(3, 2, padded).double()
    x = torch.randn(4, 3, 5, 6, dtype=torch.float64, requires_grad=True)
    parameters = (x, *layer.parameters())

    def plainly(x: torch.Tensor) -> torch.Tensor:
        return functional.conv2d(
            functional.interpolate(x, scale_factor=2), layer.weight, layer.bias, padding=int(padded)
        )

    answer, expected = layer(x), plainly(x)
    torch.testing.assert_close(answer, expected, rtol=0, atol=1e-14)
    weights = torch.randn_like(answer)
    gradients, wanted = (torch.autograd.grad((y * weights).sum(), parameters) for y in (answer, expected))
    torch.testing.assert_close(gradients, wanted, rtol=0, atol=1e-13)


@pytest.mark.parametrize("shape", [(3, 32, 32), (1, 15, 40), (1, 29, 27)])
def test_the_nets_take_other_sizes(shape: tuple[int, int, int]) -> None:
    x = torch.rand(2, *shape)
    assert ELUEncoder(shape, 6)(x).shape == (2, 6)
    assert ELUDecoder(shape, 3)(torch.rand(2, 3)).shape == x.shape


@pytest.mark.parametrize("shape", [(64,), (1, 8, 8)])
def test_what_is_too_small_or_no_image_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"give model\.encoder and model\.decoder others"):
        ELUEncoder(shape, 6)


def test_the_nets_for_the_ball_are_as_published() -> None:
    encoder, decoder = tanh_encoder((1, 32, 32), 4), TanhDecoder((1, 32, 32), 2)
    assert sizes(encoder) == [1025 * 500, 501 * 4] and sizes(decoder) == [3 * 500, 501 * 1024]
    assert encoder(torch.rand(2, 1, 32, 32)).shape == (2, 4) and decoder(torch.rand(2, 2)).shape == (2, 1, 32, 32)
    first = encoder.layers[0].weight.detach()  # type: ignore[union-attr, index]
    assert first.abs().max() <= 2 / math.sqrt(1024) and first.std().item() == pytest.approx(0.88 / 32, rel=0.02)


def test_the_mirrored_decoder_has_the_shape_of_the_data() -> None:
    assert mlp_decoder((3, 4, 5), 2)(torch.rand(7, 2)).shape == (7, 3, 4, 5)


def test_variances_stay_within_limits_with_finite_gradients() -> None:
    net = nn.Linear(1, 2, bias=False)
    nn.init.ones_(net.weight)
    q = GaussianNet(net, (1e-3, 10))(torch.tensor([[-1e4], [0.0], [1e4]]))
    torch.testing.assert_close(q.variance[:, 0], torch.tensor([1e-3, 1.0, 10.0]))
    q.variance.sum().backward()
    assert net.weight.grad is not None and net.weight.grad.isfinite().all()
