"""A sample's record as JSON: checked, repaired where it must be, and in pieces when it is large.

One call of the encoder or of the check keeps the interpreter to itself until it returns: 50 MB hold up the event loop
for a fifth of a second, whichever thread makes the call. So a record that may be large is encoded event by event and
message by message, its long texts in slices, each piece is checked by itself, and the pieces are never joined: they
are compressed one after the other.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias

import msgspec
from attrs import define, field, frozen

from proctor.log.build import build
from proctor.log.checks import problem
from proctor.log.digests import record_digest
from proctor.log.encode import encode, encode_shaped, loses_numbers
from proctor.log.events import Event, ToolEvent
from proctor.log.longparts import LongParts
from proctor.log.pools import shape_parts, shape_sample, shape_with
from proctor.log.repair import repaired, unwritable
from proctor.log.samples import EvalSample
from proctor.log.summaries import encode_summary
from proctor.model.messages import ChatMessage

MANY: Final = 100
LONG: Final = 1_000_000
"""A sample of more events and messages, or with a text of more characters, is encoded in pieces."""

LONGEST_ID: Final = 15_000
"""Characters of an id that go into the name of its member, which may have 65,535 bytes."""

Parts: TypeAlias = tuple[bytes, ...] | LongParts

logger = logging.getLogger(__name__)


@frozen
class Record:
    """A sample as it is written.

    Attributes:
        key: its id and epoch. name: of its member in the log.
        parts: its JSON, to be written one after the other. summary: the JSON of its summary.
        digest: of the dataset's sample, None where the record does not hold that.
    """

    key: tuple[int | str, int]
    name: str
    parts: Parts
    summary: bytes
    digest: str | None = None


def sample_member(id: int | str, epoch: int) -> str:
    """The name of a sample's member in the log: readers expect the id in it as it is."""
    name = f"samples/{str(id)[:LONGEST_ID]}_epoch_{epoch}.json"
    return name if name.isascii() else name.encode("utf-8", "backslashreplace").decode("utf-8")


def encode_record(sample: EvalSample, *, images: bool = True) -> Record:
    """A sample's record and its summary as JSON that every reader of the format accepts.

    A record that they would refuse is repaired: the part that is wrong is replaced by a note that holds it.

    Args:
        images: False leaves the data of images, sound and film out.
    """
    key = (sample.id, sample.epoch)
    name = sample_member(*key)
    try:
        encode_as = _encode_in_pieces if _is_large(sample) else _encode_whole
        parts, wrong = encode_as(sample, images=images)
        if wrong is None:
            return Record(key, name, parts, encode_summary(sample), record_digest(sample))
    except Exception as error:  # whatever objects of users do: a sample never ends the log
        logger.warning("sample %r: its record could not be made as it should be", sample.id, exc_info=error)
    record = _mended(sample)
    return Record(key, name, (encode(record),), encode_summary(build(record, EvalSample)))


def _mended(sample: EvalSample) -> dict[str, Any]:
    """The record of a sample that readers would refuse as it is."""
    try:
        data = encode(sample)
        return repaired(data, problem(data, EvalSample))
    except Exception as error:
        logger.warning("sample %r: no record of it could be made", sample.id, exc_info=error)
        return unwritable(sample, error)


def encode_sample(sample: EvalSample) -> bytes:
    """A sample's record as JSON, as it is."""
    return encode_shaped(shape_sample(sample))


def _encode_whole(sample: EvalSample, *, images: bool) -> tuple[Parts, str | None]:
    data = encode_shaped(shape_sample(sample, images=images))
    return (data,), problem(data, EvalSample)


def _is_large(sample: EvalSample) -> bool:
    if len(sample.events) + len(sample.messages) > MANY:
        return True
    texts: list[Any] = [getattr(message, "content", None) for message in sample.messages]
    texts += [event.result for event in sample.events if isinstance(event, ToolEvent)]
    return any(text.__class__ is str and len(text) > LONG for text in texts)


def _encode_in_pieces(sample: EvalSample, *, images: bool) -> tuple[Parts, str | None]:
    """The parts of a record, and what is wrong with it, if anything."""
    found = shape_parts(sample, images=images)
    rest = encode_shaped(shape_with(sample, found.input, None, None, None, None))
    made = _Pieces(wrong=problem(rest, EvalSample))
    made.add(rest[:-1])
    made.add(b',"messages":[', found.messages, ChatMessage)
    made.add(b'],"events":[', found.events, Event)
    made.add(b'],"attachments":{')
    made.add_named(found.attachments)
    made.add(b"}")
    if found.pools is not None:
        made.add(b',"events_data":{"messages":[', found.pools.messages, ChatMessage)
        made.add(b'],"calls":[', found.pools.calls, Any)
        made.add(b"]}}")
    elif sample.events_data is not None:
        made.add(b',"events_data":' + encode(sample.events_data) + b"}")
    else:
        made.add(b"}")
    parts = made.parts.done()
    return parts, problem(b"".join(parts), EvalSample) if made.wrong is not None else None


@define(eq=False)
class _Pieces:
    wrong: str | None = None
    parts: LongParts = field(factory=lambda: LongParts(LONG))

    def add(self, text: bytes, shaped: Iterable[Any] = (), kind: Any = Any) -> None:
        """Add JSON as it is, then values, each encoded and checked by itself, with commas between them."""
        self.parts.add(text)
        for place, value in enumerate(shaped):
            short = swap_long(value, _nothing)
            data = checked = encode_shaped(short)
            if short is not value:
                data = encode_shaped(swap_long(value, _in_slices), finite=not loses_numbers(short))
            if kind is not Any and self.wrong is None:
                self.wrong = problem(checked, kind)
            self.parts.add(*((b",", data) if place else (data,)))

    def add_named(self, texts: Mapping[str, str]) -> None:
        """Add texts with their names, and commas between them."""
        for place, (name, text) in enumerate(texts.items()):
            data = encode_shaped(swap_long(text, _in_slices), finite=True)
            self.parts.add(b"," if place else b"", encode_shaped(name), b":", data)


def swap_long(value: Any, swap: Callable[[str], Any]) -> Any:
    """A shaped value with each long text in it swapped; the same object when there is none."""
    if value.__class__ is str:
        return swap(value) if len(value) > LONG else value
    if isinstance(value, msgspec.Struct):
        found = {name: getattr(value, name) for name in value.__struct_fields__}
        new = swap_long(found, swap)
        return value if new is found else msgspec.structs.replace(value, **new)
    if value.__class__ is dict:
        swapped = {key: swap_long(item, swap) for key, item in value.items()}
        return value if all(swapped[key] is item for key, item in value.items()) else swapped
    if value.__class__ is list:
        items = [swap_long(item, swap) for item in value]
        return value if all(new is old for new, old in zip(items, value, strict=True)) else items
    return value


def _in_slices(text: str) -> msgspec.Raw:
    slices = (encode_shaped(text[start : start + LONG])[1:-1] for start in range(0, len(text), LONG))
    return msgspec.Raw(b'"' + b"".join(slices) + b'"')


def _nothing(text: str) -> str:
    return ""
