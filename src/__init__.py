"""GP Decoders: train, compare and sweep Gaussian-process decoders."""

import warnings

# Deprecations inside GPyTorch (torch.jit) and Lightning (pytree) are for their authors, not for our users.
for message in (".*torch.jit.script.* is deprecated", ".*LeafSpec.* is deprecated"):
    warnings.filterwarnings("ignore", message=message, category=FutureWarning)
