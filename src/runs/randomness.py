"""Seeds as a function of the position in a run, so that a resumed run draws the same numbers."""

import numpy as np


def stream(seed: int, *position: int) -> int:
    """Seed of one epoch, step or draw. Different positions have independent streams."""
    # The length is mixed in because a seed sequence ignores trailing zeros.
    return int(np.random.SeedSequence((seed, len(position), *position)).generate_state(1, np.uint64)[0])
