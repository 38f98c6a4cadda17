"""Mixed precision where it is safe: in the layers of nets.

Lightning's own would round the whole step, and a kernel matrix in half precision has no Cholesky factor.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, Literal

from pytorch_lightning import Trainer
from pytorch_lightning.plugins.precision import MixedPrecision
from torch import Tensor, nn

LAYERS = (nn.Linear, nn.Conv2d, nn.ConvTranspose2d)


class MixedLayers(MixedPrecision):
    """Layers multiply in half precision while they train. All else stays in the precision of the model.

    What a layer returns is float32 with the digits of half precision; this includes latents that an encoder returns.
    """

    converted: tuple[nn.Module, ...] = ()

    def forward_context(self) -> AbstractContextManager[None]:  # type: ignore[override]
        """The step itself has the precision of the model."""
        return nullcontext()

    def convert_module(self, module: nn.Module) -> nn.Module:
        """Have all layers multiply in half precision."""
        self.converted = tuple(layer for layer in module.modules() if isinstance(layer, LAYERS))
        for layer in self.converted:
            layer.forward = partial(self.multiply, layer, layer.forward)
        return module

    def multiply(self, layer: nn.Module, forward: Callable[..., Tensor], x: Tensor, *more: Any, **named: Any) -> Tensor:
        """What the layer makes of x; in full precision if it does not train."""
        if not layer.training:
            return forward(x, *more, **named)
        with self.autocast_context_manager():
            return forward(x, *more, **named).to(x.dtype)

    def teardown(self) -> None:
        """Leave the layers as they were."""
        for layer in self.converted:
            del layer.forward
        self.converted = ()


def keep_to_layers(trainer: Trainer) -> None:
    """If the trainer has mixed precision, confine it to layers."""
    mixed = trainer.strategy.precision_plugin
    if isinstance(mixed, MixedPrecision):
        half: Literal["16-mixed", "bf16-mixed"] = "16-mixed" if mixed.precision == "16-mixed" else "bf16-mixed"
        trainer.strategy.precision_plugin = MixedLayers(half, mixed.device, mixed.scaler)
