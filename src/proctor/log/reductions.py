"""The reduced scores of a log as JSON, in parts: of a large run they are many, and never needed at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

import attrs

from proctor.log.encode import encode
from proctor.log.scores import EvalSampleReductions

AT_ONCE: Final = 1000
"""Scores that are encoded at once: a few milliseconds."""


def encode_reductions(reductions: Iterable[EvalSampleReductions]) -> Iterator[bytes]:
    """A list of reductions as JSON, in parts."""
    before = b"["
    for reduction in reductions:
        # The scores are its last field.
        yield before + encode(attrs.evolve(reduction, samples=[])).removesuffix(b"]}")
        samples, between = iter(reduction.samples), b""
        while some := list(islice(samples, AT_ONCE)):
            yield between + encode(some)[1:-1]
            between = b","
        before = b"]},"
    yield b"[]" if before == b"[" else b"]}]"
