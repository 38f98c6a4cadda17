"""Classes of ours that have moved: configs and checkpoints that name their old place can still be read."""

from typing import Any

from hydra.utils import get_class

OWN = "src."

# Modules that moved as a whole and hold what a config or a checkpoint may name.
MODULES = {
    "src.auxiliary": "src.models.auxiliary",
    "src.conv_nets": "src.nets.convolutional",
    "src.loggers": "src.training.dashboards",
}

# Classes and functions that left their module, or whose module was split. These are looked up first.
NAMES = {
    "src.nets.mlp": "src.nets.mlp.mlp",
    "src.nets.mlp_decoder": "src.nets.mlp.mlp_decoder",
    "src.nets.conv": "src.nets.convolutional.conv",
    "src.conv_nets.TanhMLP": "src.nets.mlp.TanhMLP",
    "src.conv_nets.tanh_encoder": "src.nets.mlp.tanh_encoder",
    "src.conv_nets.TanhDecoder": "src.nets.mlp.TanhDecoder",
    "src.auxiliary.ObjectAngleKernel": "src.gp.kernels.ObjectAngleKernel",
    "src.auxiliary.rbf": "src.gp.kernels.rbf",
    "src.loggers.Wandb": "src.training.weights_and_biases.Wandb",
}


def current(path: str) -> str:
    """Where the class or function at a dotted path is now."""
    if path in NAMES:
        return NAMES[path]
    module, _, name = path.rpartition(".")
    return f"{MODULES[module]}.{name}" if module in MODULES else path


def find_class(path: str) -> Any:
    """The class at a dotted path, even if it has moved since the path was written."""
    return get_class(current(path))


def renewed(spec: Any) -> Any:
    """A copy of a spec, or of any nested value, whose `_target_`s are all current."""
    if isinstance(spec, dict):
        return {key: current(value) if is_target(key, value) else renewed(value) for key, value in spec.items()}
    return [renewed(item) for item in spec] if isinstance(spec, list) else spec


def is_target(key: str, value: Any) -> bool:
    """Whether an entry of a spec names a class."""
    return key == "_target_" and isinstance(value, str)
