"""What a sample of a dataset is recognised by when a log is resumed: a digest of all that its author wrote.

It is kept beside the summaries (``_proctor/digests/{n}.json`` for ``_journal/summaries/{n}.json``, one for each sample
and in the same order), so that a resume reads the index alone. A log that has none (another program's, or one whose
samples are without events) is compared by what its summaries hold of input, choices and target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from hashlib import blake2b
from typing import Any, Final

import msgspec

from proctor.log.encode import decode, encode
from proctor.log.events import SampleInitEvent
from proctor.log.resolve import resolved_value
from proctor.log.samples import EvalSample
from proctor.log.summaries import INPUT, cut, thin_input
from proctor.model.portable import field_names

_QUICK: Final = msgspec.json.Encoder()
LONG: Final = 1_000_000
SIZE: Final = 8
"""Bytes of a digest: of a million samples two have the same with a chance of 1 in 40 million."""


def sample_digest(sample: Any) -> str:
    """The digest of a dataset's sample, given as an object or as the JSON value that a log holds of it."""
    said = sample if isinstance(sample, Mapping) else _fields(sample)
    text = said.get("input")
    if isinstance(text, str):
        if len(text) > LONG:  # one call of the encoder would hold up every other thread
            said = {**said, "input": _short(text)}
        metadata = said.get("metadata")
        if isinstance(metadata, dict) and any(v.__class__ is str and len(v) > LONG for v in metadata.values()):
            said = {**said, "metadata": {name: _short(value) for name, value in metadata.items()}}
        if "sandbox" not in said:  # plain values, most of the time: the quick way, for an object and for its JSON alike
            with suppress(TypeError, ValueError, OverflowError, RecursionError):
                return blake2b(_QUICK.encode(said), digest_size=SIZE).hexdigest()
    return _digest(said)


def _short(value: Any) -> Any:
    if value.__class__ is not str or len(value) <= LONG:
        return value
    return blake2b(value.encode("utf-8", "surrogatepass"), digest_size=SIZE).hexdigest()


def _fields(sample: Any) -> dict[str, Any]:
    kind: type = type(sample)
    return {name: value for name in field_names(kind) or () if (value := getattr(sample, name)) is not None}


def record_digest(sample: EvalSample) -> str | None:
    """The digest of the dataset's sample that a record is of; None when the record does not hold it."""
    event = next((event for event in sample.events if isinstance(event, SampleInitEvent)), None)
    return None if event is None else sample_digest(event.sample)


def content_digest(record: Mapping[str, Any]) -> str | None:
    """The same of a record that was read as JSON."""
    events: Iterable[Any] = record.get("events") or ()
    found = next((e for e in events if isinstance(e, Mapping) and e.get("event") == "sample_init"), None)
    if found is None:
        return None
    attachments, sample = record.get("attachments"), found.get("sample")
    if attachments and isinstance(sample, Mapping):
        sample = {**sample, "input": resolved_value(sample.get("input"), attachments)}
    return sample_digest(sample)


def thin_digest(input: Any, choices: Any, target: Any) -> str:
    """The digest of what a summary holds of a sample, by whichever program it was written."""
    return _digest([_plain_input(input), choices or None, target])


def thin_sample_digest(sample: Any) -> str:
    """`thin_digest` of a dataset's sample."""
    target = sample.target
    thin = cut(target, INPUT) if isinstance(target, str) else [cut(each, INPUT) for each in target]
    return thin_digest(decode(encode(thin_input(sample.input))), sample.choices, thin)


def _plain_input(value: Any) -> Any:
    """An input without what a run adds to messages: ids, sources."""
    if not isinstance(value, list):
        return value
    return [[message.get("role"), _plain_content(message.get("content"))] for message in value]


def _plain_content(value: Any) -> Any:
    return [part.get("text") for part in value] if isinstance(value, list) else value


def _digest(value: Any) -> str:
    plain = decode(encode(value))  # as it is read back from a log
    try:
        data = _QUICK.encode(plain)
    except (TypeError, ValueError, OverflowError, RecursionError):
        data = encode(plain)
    return blake2b(data, digest_size=SIZE).hexdigest()
