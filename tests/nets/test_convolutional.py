"""The papers' networks, layer by layer, and what other images make of them."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from src.nets.convolutional import ELUDecoder, ELUEncoder, UpConv2d, conv, planes
from src.runs.errors import UserError
from tests.nets.layers import sizes


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


def test_a_condition_reaches_the_planes_and_the_features() -> None:
    """Of the encoder and of the decoder, number by number: with one of the two places cut the answer still changes."""
    torch.manual_seed(0)
    encoder, decoder = ELUEncoder((1, 15, 15), 3, conditions=2), ELUDecoder((1, 15, 15), 4, conditions=2)
    x, z, told = torch.rand(1, 1, 15, 15), torch.rand(1, 4), torch.rand(1, 2, requires_grad=True)
    with torch.no_grad():
        encoder.head.weight[:, -2:] = 0
        decoder.dense.weight[:, -2:] = 0
    for answer in (encoder(x, told), decoder(z, told)):
        (gradient,) = torch.autograd.grad(answer.square().sum(), told)
        assert gradient.all()
    constant = planes(torch.tensor([[2.0, 3.0]]), 2, 3)
    assert constant.shape == (1, 2, 2, 3) and (constant[0, 0] == 2).all() and (constant[0, 1] == 3).all()


def test_the_encoder_halves_with_stride_2_without_padding() -> None:
    """28 -> 13 -> 6 -> 2 pixels, with ELU between them."""
    torch.manual_seed(0)
    encoder = ELUEncoder((1, 28, 28), 5)
    x = torch.rand(2, 1, 28, 28)
    features = x
    for layer in encoder.convolutions:
        if isinstance(layer, nn.Conv2d):
            features = functional.elu(functional.conv2d(features, layer.weight, layer.bias, stride=2))
    assert features.shape == (2, 8, 2, 2)
    expected = functional.linear(features.flatten(1), encoder.head.weight, encoder.head.bias)
    torch.testing.assert_close(encoder(x), expected)


def test_weights_start_as_in_keras() -> None:
    """Uniform within sqrt(6 / (inputs + outputs)) of a layer, and no bias."""
    torch.manual_seed(0)
    dense = ELUDecoder((1, 28, 28), 16).dense
    limit = math.sqrt(6 / (16 + 128))
    assert not dense.bias.any() and 0.95 * limit < dense.weight.abs().max() <= limit


def test_the_small_encoder_halves_the_image_layer_by_layer() -> None:
    net = conv((1, 28, 28), 2)
    assert sizes(net) == [9 * 32 + 32, 9 * 32 * 64 + 64, 7 * 7 * 64 * 256 + 256, 256 * 2 + 2]
