"""Chance that is asked for by a seed: shuffled datasets, shuffled choices, resampled scores."""

from __future__ import annotations

import random

from proctor.runtime.current import runtime_variable


def seeded(seed: int | str | None) -> random.Random:
    """A source of chance of its own.

    Args:
        seed: the same seed gives the same numbers, with those of `random.Random` (so that a seeded shuffle gives the
            order that users of Inspect know). None: a seed drawn from the current runtime, outside of one from the
            system.
    """
    if seed is None and (runtime := runtime_variable.get()) is not None:
        seed = runtime.random.getrandbits(64)
    return random.Random(seed)
