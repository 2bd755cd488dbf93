"""Putting back what a sample's record holds once and refers to: pooled messages and attachments.

It works on the JSON, before it becomes value classes. References in places where other readers do not resolve them are
left as they are, unless everything is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

from proctor.log.attachments import PREFIX
from proctor.log.pools import expand

Json: TypeAlias = dict[str, Any]
Resolve: TypeAlias = bool | Literal["full", "core"]


def prepared(sample: Json, resolve: Resolve = False, exclude: set[str] | None = None, *, pooled: bool = False) -> Json:
    """A sample's record with its references replaced by what they refer to.

    Args:
        resolve: ``True`` or ``"core"``: attachments of messages and events; ``"full"``: those of raw requests too;
            ``False``: none. exclude: fields to leave out.
        pooled: leave pooled messages in their pools; by default they are put back, a list for each event.
    """
    sample = {name: value for name, value in sample.items() if not exclude or name not in exclude}
    old = sample.get("transcript")
    attachments = sample.get("attachments") or (old.get("content") if isinstance(old, dict) else None) or {}
    if resolve and attachments:
        sample = _resolved(sample, attachments, full=resolve == "full")
    if pooled:
        return sample
    pools = sample.pop("events_data", None)
    if isinstance(pools, dict):
        sample["events"] = [_unpooled(event, pools) for event in sample.get("events", [])]
    return sample


def _unpooled(event: Json, pools: Json) -> Json:
    if event.get("event") != "model":
        return event
    if event.get("input_refs") is not None:
        event = {**event, "input": expand(event["input_refs"], pools.get("messages") or []), "input_refs": None}
    call = event.get("call")
    if isinstance(call, dict) and call.get("call_refs") is not None:
        messages = expand(call["call_refs"], pools.get("calls") or [])
        request = {**call.get("request", {}), call.get("call_key") or "messages": messages}
        event = {**event, "call": {**call, "request": request, "call_refs": None, "call_key": None}}
    return event


def _resolved(sample: Json, attachments: dict[str, str], *, full: bool) -> Json:
    kept: set[str] = set()

    def swap(text: str) -> str:
        return attachments.get(text.removeprefix(PREFIX), text) if text.startswith(PREFIX) else text

    def keep(text: str) -> str:
        if text.startswith(PREFIX):
            kept.add(text.removeprefix(PREFIX))
        return text

    made = dict(sample)
    for name in ("input", "messages", "events", "transcript", "output"):
        if name in made:
            made[name] = _walk(made[name], swap, None if full else keep)
    pools = made.get("events_data")
    if isinstance(pools, dict):
        calls = pools.get("calls") or []
        made["events_data"] = {
            "messages": _walk(pools.get("messages") or [], swap, None),
            "calls": _walk(calls, swap if full else keep, None),
        }
    made["attachments"] = {key: text for key, text in attachments.items() if key in kept}
    return made


def resolved_value(value: Any, attachments: Mapping[str, str]) -> Any:
    """A JSON value with the texts that it refers to in it."""

    def swap(text: str) -> str:
        return attachments.get(text.removeprefix(PREFIX), text) if text.startswith(PREFIX) else text

    return _walk(value, swap, None)


def _walk(value: Any, text: Callable[[str], str], call: Callable[[str], str] | None) -> Any:
    """A copy with `text` applied to every string; inside the raw call of a model event `call` in its place."""
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [_walk(item, text, call) for item in value]
    if not isinstance(value, dict):
        return value
    if call is not None and value.get("event") == "model":
        return {key: _walk(item, call if key == "call" else text, None) for key, item in value.items()}
    return {key: _walk(item, text, call) for key, item in value.items()}
