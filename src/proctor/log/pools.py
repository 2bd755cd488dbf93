"""Pools: what the events of a sample share is written once.

Every model event repeats the conversation so far, so that a transcript written out grows with the square of its turns.
The format lets events refer to ranges of a pool instead. Messages are pooled by identity first (events of one sample
share message objects), then by id and equality (code that copies its state shares ids); raw requests by comparing with
the previous request, because they grow at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from attrs import define, field, frozen

from proctor.log.attachments import Attachments
from proctor.log.encode import SHAPERS, shape, shaper
from proctor.log.events import ModelEvent
from proctor.log.samples import EvalSample, EventsData
from proctor.log.sharing import CALL_KEYS, SharedList
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall


@frozen
class Parts:
    """What is long in a sample, shaped.

    Attributes:
        pools: new ones, None where nothing is pooled here. attachments: all of them, by key.
    """

    input: Any
    messages: list[Any]
    events: list[Any]
    pools: EventsData | None
    attachments: dict[str, str]


def shape_sample(sample: EvalSample, *, images: bool = True) -> Any:
    """The Struct twin of a sample, with what its events share moved into pools and attachments."""
    parts = shape_parts(sample, images=images)
    data = parts.pools
    pooled = shape_data(data, data.messages, data.calls) if data is not None else shape(sample.events_data)
    return shape_with(sample, parts.input, parts.messages, parts.events, parts.attachments, pooled)


def shape_parts(sample: EvalSample, *, images: bool = True) -> Parts:
    """The long parts of a sample, shaped.

    Args:
        images: False leaves the data of images, sound and film out.
    """
    input, messages = shape(sample.input), shape(sample.messages)
    events, pools = _shape_events(sample)
    attachments = Attachments(images)
    attachments.conversation(input)
    attachments.conversation(messages)
    for event in events:
        attachments.event(event)
    if pools is not None:
        attachments.pooled(pools.messages)
        pools.calls = [attachments.value(call) for call in pools.calls]
    texts = attachments.texts
    return Parts(input, messages, events, pools, {**sample.attachments, **texts} if sample.attachments else texts)


def _shape_events(sample: EvalSample) -> tuple[list[Any], EventsData | None]:
    """The events, and their new pools; None where nothing is pooled here."""
    if sample.events_data is not None:  # pooled already: as it was read
        return shape(sample.events), None
    pool = Pool()
    events = [
        pool.shape(event) if isinstance(event, ModelEvent) else SHAPERS[event.__class__](event)
        for event in sample.events
    ]
    if not pool.data.messages and not pool.data.calls:
        return events, None
    return events, EventsData(messages=shape(pool.data.messages), calls=pool.data.calls)


shape_with: Final = shaper(EvalSample, ("input", "messages", "events", "attachments", "events_data"))
shape_data: Final = shaper(EventsData, ("messages", "calls"))
_shape_event: Final = shaper(ModelEvent, ("input", "input_refs", "call"))
_shape_call: Final = shaper(ModelCall, ("request", "call_refs", "call_key"))


@define(eq=False)
class Pool:
    """What the events of a sample share, and where each of it is."""

    data: EventsData = field(factory=EventsData)
    _places: dict[int, int] = field(factory=dict)
    _named: dict[str, list[int]] = field(factory=dict)
    _mapped: dict[int, _Mapped] = field(factory=dict)
    _request: Sequence[Any] = ()
    _request_places: list[int] = field(factory=list)

    def shape(self, event: ModelEvent) -> Any:
        """The Struct twin of an event, referring to the pool."""
        call = self._call(event.call) if event.call is not None else None
        if event.input_refs is not None or not event.input:
            return _shape_event(event, shape(event.input), event.input_refs, call)
        if isinstance(event.input, SharedList):
            return _shape_event(event, [], self._refs(event.input, self._place), call)
        return _shape_event(event, [], ranges([self._place(message) for message in event.input]), call)

    def _refs(self, shared: SharedList[Any], place: Callable[[Any], int]) -> list[tuple[int, int]]:
        """The ranges of a list that a transcript shared already, of this pool; each item is placed once."""
        mapped = self._mapped.setdefault(id(shared.items), _Mapped())
        until = max(end for _, end in shared.ranges)
        for item in shared.items[len(mapped.places) : until]:
            mapped.add(place(item))
        if mapped.same:
            return shared.ranges
        return ranges([place for start, end in shared.ranges for place in mapped.places[start:end]])

    def _place(self, message: ChatMessage) -> int:
        known = self._places.get(id(message))
        if known is not None:
            return known
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
        if call.call_refs is not None or not isinstance(messages, list | SharedList) or not messages:
            return shape(call)
        rest = {name: value for name, value in call.request.items() if name != key}
        if isinstance(messages, SharedList):
            return _shape_call(call, rest, self._refs(messages, self._add_call), key)
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
        return _shape_call(call, rest, ranges(places), key)

    def _add_call(self, message: Any) -> int:
        self.data.calls.append(message)
        return len(self.data.calls) - 1


@define(eq=False)
class _Mapped:
    """Where the items of a transcript's pool are in the log's."""

    places: list[int] = field(factory=list)
    same: bool = True

    def add(self, place: int) -> None:
        self.same = self.same and place == len(self.places)
        self.places.append(place)


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


__all__ = ["CALL_KEYS", "Parts", "Pool", "expand", "ranges", "shape_data", "shape_parts", "shape_sample", "shape_with"]
