import pytest
import torch
from torch import nn

from src.nets.convolutional import conv
from src.nets.mlp import mlp
from src.runs.errors import UserError


def test_mlp_is_the_papers_net() -> None:
    linear = [layer for layer in mlp((1, 28, 28), 2) if isinstance(layer, nn.Linear)]
    assert [(layer.in_features, layer.out_features) for layer in linear] == [(784, 512), (512, 256), (256, 2)]


@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (2, 7, 5)])
@pytest.mark.parametrize("net", [mlp, conv])
def test_nets_adapt_to_the_shape(net, shape: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]  # noqa: ANN001
    assert net(shape, 4)(torch.zeros(3, *shape)).shape == (3, 4)


def test_conv_refuses_vectors_and_says_what_to_use() -> None:
    with pytest.raises(UserError, match=r"shape \(10,\): use encoder=mlp"):
        conv((10,), 2)
