"""The transcript of a running sample: its events in order, and the spans they nest in.

The current transcript and span travel in context variables, so child tasks of a sample write to the same transcript and
their events carry the span that was open where they were started.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextvars import ContextVar, Token
from datetime import datetime
from typing import Any, Final, Self, TypeAlias

from attrs import define, field

from proctor.log.events import Event, InfoEvent, ModelEvent, SpanBeginEvent, SpanEndEvent
from proctor.log.sharing import CALL_KEYS, WORTHWHILE, SharedList, SharingPool

Listener: TypeAlias = Callable[[Event], None]


def _zero() -> float:
    return 0.0


def _now() -> datetime:
    from proctor.runtime.clock import utc_now

    return utc_now()


@define(eq=False, kw_only=True)
class Transcript:
    """The events of one sample.

    Attributes:
        new_id: gives the ids of events and spans. now: gives their timestamps.
        working: gives the working time, in seconds since the sample began.
        keep: False for the transcript of code outside any sample, which is dropped.
        events: in the order they were added; belongs to the sample's task.
        share_from: messages of a call's input from which on it is kept in a pool (see log/sharing.py).
        listeners: called with each event when it is added, and again when it was updated.
    """

    new_id: Callable[[], str] | None = None
    now: Callable[[], datetime] = _now
    working: Callable[[], float] = _zero
    keep: bool = True
    share_from: int = WORTHWHILE
    events: list[Event] = field(factory=list, init=False)
    listeners: list[Listener] = field(factory=list, init=False)
    _made: int = field(default=0, init=False)
    _messages: SharingPool[Any] = field(factory=SharingPool, init=False)
    _requests: SharingPool[Any] | None = field(default=None, init=False)

    def add(self, event: Event) -> None:
        """Append an event, after filling in its id, time, working time and span where they are None."""
        if not self.keep:
            return
        if event.uuid is None:
            event.uuid = self.make_id()
        if event.timestamp is None:
            event.timestamp = self.now()
        if event.working_start is None:
            event.working_start = self.working()
        if event.span_id is None:
            event.span_id = _span.get()
        if isinstance(event, ModelEvent):
            self._share(event)
        self.events.append(event)
        for listener in self.listeners:
            listener(event)

    def updated(self, event: Event) -> None:
        """Tell listeners that an event, added while it was pending, is complete or has changed."""
        event.pending = None
        if isinstance(event, ModelEvent):
            self._share(event)
        for listener in self.listeners:
            listener(event)

    def _share(self, event: ModelEvent) -> None:
        """Keep what a call repeats of those before once."""
        if event.input.__class__ is not SharedList and len(event.input) >= self.share_from:
            event.input = self._messages.share(event.input)
        if event.call is None:
            return
        request = event.call.request
        key = next((key for key in CALL_KEYS if request.get(key).__class__ is list), None)
        if key is not None and len(request[key]) >= self.share_from:
            self._requests = self._requests or SharingPool(by_value=True)
            event.call.request = {**request, key: self._requests.share(request[key])}

    def info(self, data: Any, *, source: str | None = None) -> None:
        """Append an `InfoEvent`.

        Args:
            data: any JSON value. source: who says it.
        """
        self.add(InfoEvent(data=data, source=source))

    def make_id(self) -> str:
        """A new id for an event or a span."""
        if self.new_id is not None:
            return self.new_id()
        self._made += 1
        return str(self._made)


_transcript: Final[ContextVar[Transcript | None]] = ContextVar("proctor_transcript", default=None)
_span: Final[ContextVar[str | None]] = ContextVar("proctor_span", default=None)


def transcript() -> Transcript:
    """The transcript of the running sample; outside of one, a transcript that keeps nothing."""
    return _transcript.get() or Transcript(keep=False)


def current_span_id() -> str | None:
    """The id of the innermost open span, None outside of any."""
    return _span.get()


@define(eq=False)
class init_transcript:  # noqa: N801  # reads as the function it stands for
    """``with init_transcript(transcript):`` makes it the current one of this task and of those started below."""

    current: Transcript
    _tokens: tuple[Token[Transcript | None], Token[str | None]] | None = field(default=None, init=False)

    def __enter__(self) -> Transcript:
        self._tokens = (_transcript.set(self.current), _span.set(None))
        return self.current

    def __exit__(self, *exc: object) -> None:
        if self._tokens is not None:
            _transcript.reset(self._tokens[0])
            _span.reset(self._tokens[1])


@define(eq=False)
class span:  # noqa: N801  # reads as the function that users of Inspect know
    """``async with span(name, type=...):`` groups the events of a block.

    A class rather than a decorated generator: a context variable that is set and reset over a generator's yield
    fails when the generator is closed from another task.

    Attributes:
        name: shown. type: such as ``solver``; default the name. id: default a new one.
    """

    name: str
    type: str | None = field(default=None, kw_only=True)
    id: str | None = field(default=None, kw_only=True)
    _token: Token[str | None] | None = field(default=None, init=False)
    _into: Transcript | None = field(default=None, init=False)

    async def __aenter__(self) -> Self:
        return self.__enter__()

    async def __aexit__(self, *exc: object) -> None:
        self.__exit__(*exc)

    def __enter__(self) -> Self:
        self._into = into = transcript()
        self.id = id = self.id or into.make_id()
        parent = _span.get()
        self._token = _span.set(id)
        into.add(SpanBeginEvent(id=id, parent_id=parent, type=self.type or self.name, name=self.name, span_id=id))
        return self

    def __exit__(self, *exc: object) -> None:
        if self._into is None or self._token is None or self.id is None:
            return
        self._into.add(SpanEndEvent(id=self.id, span_id=self.id))
        with contextlib.suppress(ValueError):  # left in another task: its context never had our value
            _span.reset(self._token)
