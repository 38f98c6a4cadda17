"""Randomness as a function of where a run stands, so that an interrupted run can be continued exactly."""

import numpy as np


def stream(seed: int, *position: int) -> int:
    """The seed of one epoch, step or draw: streams of different positions are independent."""
    # The length is mixed in because a seed sequence ignores trailing zeros.
    return int(np.random.SeedSequence((seed, len(position), *position)).generate_state(1, np.uint64)[0])
