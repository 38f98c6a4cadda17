"""Fully connected nets: their layers, their shapes, and where they start."""

import math

import pytest
import torch
from torch import nn

from src.nets.convolutional import conv
from src.nets.mlp import TanhDecoder, TanhMLP, mlp, mlp_decoder, tanh_encoder
from src.runs.errors import UserError
from tests.nets.layers import sizes


def test_mlp_is_the_papers_net() -> None:
    net = mlp((1, 28, 28), 2)
    linear = [layer for layer in net if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(784, 512), (512, 256), (256, 2)]
    assert [type(layer) for layer in net] == [nn.Flatten, *[nn.Linear, nn.ReLU] * 2, nn.Linear]


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (2, 7, 5)])
@pytest.mark.parametrize("net", [mlp, conv])
def test_nets_adapt_to_the_shape(net, shape: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    assert net(shape, 4)(torch.zeros(3, *shape)).shape == (3, 4)


def test_conv_refuses_vectors_and_says_what_to_use() -> None:
    with pytest.raises(UserError, match=r"shape \(10,\): use encoder=mlp"):
        conv((10,), 2)


def test_the_mirrored_decoder_has_the_layers_and_the_shape_of_the_data() -> None:
    net = mlp_decoder((3, 4, 5), 2)
    assert net(torch.rand(7, 2)).shape == (7, 3, 4, 5)
    linear = [layer for layer in net if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(2, 256), (256, 512), (512, 60)]
    assert isinstance(net[-2], nn.Linear)  # so that a mean may be negative


def test_without_hidden_layers_the_decoder_is_a_linear_map() -> None:
    net = mlp_decoder((3,), 2, hidden=[])
    assert [type(layer) for layer in net] == [nn.Linear, nn.Unflatten]
    z = torch.randn(4, 2)
    torch.testing.assert_close(net(2 * z) - net(0 * z), 2 * (net(z) - net(0 * z)))


def test_the_nets_for_the_ball_are_as_published() -> None:
    torch.manual_seed(0)
    encoder, decoder = tanh_encoder((1, 32, 32), 4), TanhDecoder((1, 32, 32), 2)
    assert sizes(encoder) == [1025 * 500, 501 * 4] and sizes(decoder) == [3 * 500, 501 * 1024]
    assert encoder(torch.rand(2, 1, 32, 32)).shape == (2, 4) and decoder(torch.rand(2, 2)).shape == (2, 1, 32, 32)
    first = encoder.layers[0].weight.detach()  # type: ignore[union-attr, index]
    assert first.abs().max() <= 2 / math.sqrt(1024) and first.std().item() == pytest.approx(0.88 / 32, rel=0.02)


def test_hidden_units_are_tanh_and_biases_start_at_0() -> None:
    net = TanhMLP(2, 3, hidden=4)
    first, second = (layer for layer in net.layers if isinstance(layer, nn.Linear))
    assert not first.bias.any() and not second.bias.any()
    x = torch.randn(5, 2)
    torch.testing.assert_close(net(x), torch.tanh(x @ first.weight.mT) @ second.weight.mT)


def test_a_condition_is_joined_behind_what_comes_in() -> None:
    net, decoder = tanh_encoder((2, 2), 3, conditions=2, hidden=4), TanhDecoder((2, 2), 3, conditions=2, hidden=4)
    assert sizes(net) == [7 * 4, 5 * 3] and sizes(decoder) == [6 * 4, 5 * 4]
    x, told, z = torch.randn(5, 2, 2), torch.randn(5, 2), torch.randn(5, 3)
    plain = TanhMLP(6, 3, hidden=4)
    plain.load_state_dict(net.state_dict())
    torch.testing.assert_close(net(x, told), plain(torch.cat([x.flatten(1), told], 1)))
    assert decoder(z, told).shape == (5, 2, 2)
    assert not torch.allclose(decoder(z, told), decoder(z, told + 1))
