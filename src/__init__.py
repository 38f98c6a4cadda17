"""GP Decoders: train, compare and sweep Gaussian-process decoders."""

import warnings
from importlib import import_module
from typing import Any

# Deprecations inside GPyTorch (torch.jit) and Lightning (pytree) are for their authors, not for our users.
for message in (".*torch.jit.script.* is deprecated", ".*LeafSpec.* is deprecated"):
    warnings.filterwarnings("ignore", message=message, category=FutureWarning)


def __getattr__(name: str) -> Any:
    """`src.load`, imported when it is first used: it needs torch, and `import src` must stay light."""
    if name != "load":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return import_module("src.loading").load
