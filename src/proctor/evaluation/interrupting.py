"""What was going on in a sample when it was stopped."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Final, Literal

from proctor.log.events import Event, InterruptEvent, ModelEvent, ToolEvent

LATEST: Final = 100
"""Events that are looked at, from the last one back."""


def interruption(
    events: Sequence[Event], source: Literal["user_cancel", "limit", "system"], *, always: bool
) -> InterruptEvent | None:
    """The event that says what an interruption cut short.

    Args:
        events: of the sample. source: who stopped it.
        always: make one also where it was between two calls; else None then.
    """
    call: str | None = None
    for event in islice(reversed(events), LATEST):
        if isinstance(event, ToolEvent):
            if event.pending or (event.error is not None and event.error.type == "cancelled"):
                call = call or event.id
        elif isinstance(event, ModelEvent):
            if event.pending or event.error == "cancelled":
                return InterruptEvent(source=source, interrupted="generate", interrupted_model_event_id=event.uuid)
            break
    if call is not None:
        return InterruptEvent(source=source, interrupted="tool_call", interrupted_tool_call_id=call)
    return InterruptEvent(source=source, interrupted="between_turns") if always else None
