"""GP Decoders: train, compare and sweep Gaussian-process decoders."""

import warnings

# GPyTorch's linear algebra still uses torch.jit; the warning is for its authors, not for our users.
warnings.filterwarnings("ignore", message=".*torch.jit.script.* is deprecated", category=FutureWarning)
