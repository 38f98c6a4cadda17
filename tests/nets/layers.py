"""What the tests of nets share."""

from torch import nn


def sizes(net: nn.Module) -> list[int]:
    """The number of parameters of each layer that has some."""
    layers = [layer for layer in net.modules() if isinstance(layer, nn.Linear | nn.Conv2d)]
    return [sum(p.numel() for p in layer.parameters()) for layer in layers]
