"""What a solver changed besides the conversation, as events: of the state, and of the store.

Messages and outputs are in the events of the calls that made them and are not repeated. What is left is small, so it is
compared as JSON before and after; the differences are looked for only where the two are not the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import frozen

from proctor.log.encode import decode, encode
from proctor.log.events import JsonChange, StateEvent, StoreEvent
from proctor.log.transcript import Transcript
from proctor.solver.state import TaskState
from proctor.tool.definition import tool_def


@frozen
class Noted:
    """A state as it was: parts of it as JSON; tools by identity, and what they were."""

    metadata: bytes
    store: bytes
    completed: bool
    tool_choice: Any
    tools: tuple[Any, ...]

    @classmethod
    def of(cls, state: TaskState) -> Noted:
        """Note a state."""
        metadata, store = state.metadata, state.store
        return cls(
            encode(metadata) if metadata else b"{}",
            encode(dict(store.items())) if len(store) else b"{}",
            state.completed,
            state.tool_choice,
            tuple(state.tools),
        )


def tell_changes(into: Transcript, before: Noted, state: TaskState) -> None:
    """Append an event for what changed in a state since, and one for its store."""
    after = Noted.of(state)
    if after.store != before.store:
        changes = list(differences(decode(before.store), decode(after.store)))
        if changes:
            into.add(StoreEvent(changes=changes))
    same_tools = len(before.tools) == len(after.tools) and all(map(_same, before.tools, after.tools))
    if (
        same_tools
        and (before.metadata, before.completed) == (after.metadata, after.completed)
        and before.tool_choice == after.tool_choice
    ):
        return
    found = list(differences(_said(before, tools=not same_tools), _said(after, tools=not same_tools)))
    if found:
        into.add(StateEvent(changes=found))


def _same(one: Any, other: Any) -> bool:
    return one is other


def _said(noted: Noted, *, tools: bool) -> dict[str, Any]:
    said = {"metadata": decode(noted.metadata), "completed": noted.completed}
    if noted.tool_choice is not None:
        said["tool_choice"] = decode(encode(noted.tool_choice))
    if tools:
        said["tools"] = [_tool(each) for each in noted.tools]
    return said


def _tool(each: Any) -> Any:
    try:
        defined = tool_def(each)
        return decode(
            encode({"name": defined.name, "description": defined.description, "parameters": defined.parameters})
        )
    except Exception:  # a source of tools, or what is none: its call will say so
        return {"name": getattr(each, "name", None) or type(each).__name__, "description": "", "parameters": {}}


def differences(before: Any, after: Any, path: str = "") -> Iterator[JsonChange]:
    """The steps of a JSON Patch (RFC 6902) that turn one JSON value into another."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        for key in [key for key in before if key not in after]:
            yield JsonChange(op="remove", path=f"{path}/{_escaped(key)}", replaced=before[key])
        for key, value in after.items():
            at = f"{path}/{_escaped(key)}"
            if key in before:
                yield from differences(before[key], value, at)
            else:
                yield JsonChange(op="add", path=at, value=value)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _list_differences(before, after, path)
    elif type(before) is not type(after) or before != after:
        yield JsonChange(op="replace", path=path, value=after, replaced=before)


def _list_differences(before: Sequence[Any], after: Sequence[Any], path: str) -> Iterator[JsonChange]:
    for place in reversed(range(len(after), len(before))):
        yield JsonChange(op="remove", path=f"{path}/{place}", replaced=before[place])
    for place, (old, new) in enumerate(zip(before, after, strict=False)):
        yield from differences(old, new, f"{path}/{place}")
    for place in range(len(before), len(after)):
        yield JsonChange(op="add", path=f"{path}/{place}", value=after[place])


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
