"""What a sample's record refers to, put back into its value classes."""

from __future__ import annotations

from typing import Any

from proctor.log.build import build
from proctor.log.encode import to_builtins
from proctor.log.events import ModelEvent
from proctor.log.resolve import Resolve, prepared, resolved_value
from proctor.log.samples import EvalSample
from proctor.log.sharing import WORTHWHILE, SharedList
from proctor.model.messages import ChatMessage


def conversation_of(sample: EvalSample) -> tuple[str | list[ChatMessage], list[ChatMessage]]:
    """The input and the messages of a sample, its attachments in them, whether it was read with them or without."""
    if not sample.attachments:
        return sample.input, sample.messages
    input, messages = resolved_value(to_builtins([sample.input, sample.messages]), sample.attachments)
    said: str | list[ChatMessage] = input if isinstance(input, str) else build(input, list[ChatMessage])
    return said, build(messages, list[ChatMessage])


def read_sample(content: dict[str, Any], resolve: Resolve = False, exclude: set[str] | None = None) -> EvalSample:
    """A sample from its JSON; what its model calls repeat of those before is there once.

    Args:
        content: the record. resolve, exclude: as of `proctor.log.resolve.prepared`.

    Raises:
        TypeError: it is no sample.
    """
    sample = build(prepared(content, resolve, exclude, pooled=True), EvalSample)
    pools = sample.events_data
    if pools is None:
        return sample
    for event in sample.events:
        if not isinstance(event, ModelEvent):
            continue
        if event.input_refs is not None:
            event.input, event.input_refs = _shared(pools.messages, event.input_refs), None
        call = event.call
        if call is not None and call.call_refs is not None:
            call.request = {**call.request, call.call_key or "messages": _shared(pools.calls, call.call_refs)}
            call.call_refs = call.call_key = None
    sample.events_data = None
    return sample


def _shared(pool: list[Any], refs: Any) -> SharedList[Any] | list[Any]:
    """Part of a pool; references beyond its end, of a damaged record, are left out."""
    ranges = [(start, min(end, len(pool))) for start, end in refs]
    shared = SharedList(pool, [(start, end) for start, end in ranges if start < end])
    return shared if len(shared) >= WORTHWHILE else shared.tolist()
