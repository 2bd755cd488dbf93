"""Pools: what the events of a sample share is written once.

Every model event repeats the conversation so far, so that a transcript written out grows with the square of its turns.
The format lets events refer to ranges of a pool instead. Messages are pooled by identity first (events of one sample
share message objects), then by id and equality (code that copies its state shares ids); raw requests by comparing with
the previous request, because they grow at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from attrs import define, field

from proctor.log.encode import SHAPERS, shape, shaper
from proctor.log.events import ModelEvent
from proctor.log.samples import EvalSample, EventsData
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall

CALL_KEYS: Final = ("messages", "contents", "input", "inputs")
"""Where a provider's request holds its messages; the names are the format's."""


def shape_sample(sample: EvalSample) -> Any:
    """The Struct twin of a sample, with what its events share moved into pools."""
    messages, events, data = shape_parts(sample)
    pooled = shape_data(data, data.messages, data.calls) if data is not None else shape(sample.events_data)
    return shape_with(sample, messages, events, pooled)


def shape_parts(sample: EvalSample) -> tuple[list[Any], list[Any], EventsData | None]:
    """The messages and the events, shaped, and their new pools, shaped too; None where nothing is pooled here."""
    messages = shape(sample.messages)
    if sample.events_data is not None:  # pooled already: as it was read
        return messages, shape(sample.events), None
    pool = _Pool()
    events = [
        pool.shape(event) if isinstance(event, ModelEvent) else SHAPERS[event.__class__](event)
        for event in sample.events
    ]
    if not pool.data.messages and not pool.data.calls:
        return messages, events, None
    return messages, events, EventsData(messages=shape(pool.data.messages), calls=pool.data.calls)


shape_with: Final = shaper(EvalSample, ("messages", "events", "events_data"))
shape_data: Final = shaper(EventsData, ("messages", "calls"))
_shape_event: Final = shaper(ModelEvent, ("input", "input_refs", "call"))
_shape_call: Final = shaper(ModelCall, ("request", "call_refs", "call_key"))


@define(eq=False)
class _Pool:
    data: EventsData = field(factory=EventsData)
    _places: dict[int, int] = field(factory=dict)
    _named: dict[str, list[int]] = field(factory=dict)
    _request: Sequence[Any] = ()
    _request_places: list[int] = field(factory=list)

    def shape(self, event: ModelEvent) -> Any:
        """The Struct twin of an event, referring to the pool."""
        call = self._call(event.call) if event.call is not None else None
        if event.input_refs is not None or not event.input:
            return _shape_event(event, shape(event.input), event.input_refs, call)
        places = [
            place if (place := self._places.get(id(message))) is not None else self._place(message)
            for message in event.input
        ]
        return _shape_event(event, [], ranges(places), call)

    def _place(self, message: ChatMessage) -> int:
        same = self._named.setdefault(message.id, []) if message.id is not None else []
        place = next((place for place in same if self.data.messages[place] == message), None)
        if place is None:
            place = len(self.data.messages)
            self.data.messages.append(message)
            same.append(place)
        self._places[id(message)] = place
        return place

    def _call(self, call: ModelCall) -> Any:
        key = next((key for key in CALL_KEYS if key in call.request), None)
        messages = call.request.get(key) if key is not None else None
        if call.call_refs is not None or not isinstance(messages, list) or not messages:
            return shape(call)
        known = 0
        for before, now in zip(self._request, messages, strict=False):
            if before is not now and before != now:
                break
            known += 1
        places = [
            *self._request_places[:known],
            *range(len(self.data.calls), len(self.data.calls) + len(messages) - known),
        ]
        self.data.calls.extend(messages[known:])
        self._request, self._request_places = messages, places
        rest = {name: value for name, value in call.request.items() if name != key}
        return _shape_call(call, rest, ranges(places), key)


def ranges(places: Sequence[int]) -> list[tuple[int, int]]:
    """Positions as half-open ranges, in order: ``[0, 1, 2, 5]`` as ``[(0, 3), (5, 6)]``."""
    made: list[tuple[int, int]] = []
    start = end = -1
    for place in places:
        if place == end:
            end += 1
            continue
        if end >= 0:
            made.append((start, end))
        start, end = place, place + 1
    if end >= 0:
        made.append((start, end))
    return made


def expand(refs: Iterable[Sequence[int]], pool: Sequence[Any]) -> list[Any]:
    """What ranges refer to, the reverse of `ranges`."""
    return [value for start, end in refs for value in pool[start:end]]


__all__ = ["expand", "ranges", "shape_data", "shape_parts", "shape_sample", "shape_with"]
