"""Sample summaries: what a list of samples shows, cut to a size that makes the list quick to load."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import attrs

from proctor.log.encode import encode
from proctor.log.samples import EvalSample, EvalSampleSummary
from proctor.log.scores import Score
from proctor.model.messages import ChatMessage, ContentText

INPUT: Final = 5120
TEXT: Final = 1024
"""Characters kept of inputs and targets, and of texts in scores and metadata (the format's own bounds)."""

LEFT_OUT: Final = "(over 1 kB: left out of the summary)"


def encode_summary(sample: EvalSample) -> bytes:
    """A sample's summary as JSON."""
    return encode(summarize(sample))


def summarize(sample: EvalSample) -> EvalSampleSummary:
    """The summary of a sample that has ended."""
    error, limit, scores = sample.error, sample.limit, sample.scores
    return EvalSampleSummary(
        id=sample.id,
        epoch=sample.epoch,
        input=thin_input(sample.input),
        choices=sample.choices,
        target=cut(sample.target, INPUT) if isinstance(sample.target, str) else [cut(t, INPUT) for t in sample.target],
        description=sample.description,
        metadata=thin_metadata(sample.metadata) if sample.metadata else {},
        scores={name: thin_score(score) for name, score in scores.items()} if scores is not None else None,
        model_usage=sample.model_usage,
        role_usage=sample.role_usage,
        model_fallbacks=sample.model_fallbacks,
        started_at=sample.started_at,
        completed_at=sample.completed_at,
        total_time=sample.total_time,
        working_time=sample.working_time,
        uuid=sample.uuid,
        error=error.message if error is not None else None,
        limit=limit.type if limit is not None else None,
        limit_reason=limit.reason if limit is not None else None,
        retries=len(sample.error_retries) if sample.error_retries is not None else None,
        completed=True,
        message_count=len(sample.messages),
        turn_count=sample.turn_count,
        token_limit=sample.token_limit,
        token_limit_type=sample.token_limit_type,
        token_limit_usage=sample.token_limit_usage,
        message_limit=sample.message_limit,
        time_limit=sample.time_limit,
    )


def cut(text: str, most: int) -> str:
    """A text of at most `most` characters and a mark that it was longer."""
    return text if len(text) <= most else text[:most] + "..."


def thin_input(value: str | list[ChatMessage]) -> str | list[ChatMessage]:
    """An input with its texts cut and what is not text named in its place."""
    if isinstance(value, str):
        return cut(value, INPUT)
    return [_thin_message(message) for message in value]


def _thin_message(message: ChatMessage) -> ChatMessage:
    content = message.content
    if isinstance(content, str):
        return message if len(content) <= INPUT else attrs.evolve(message, content=cut(content, INPUT))
    parts = [
        ContentText(text=cut(part.text, INPUT) if isinstance(part, ContentText) else f"({part.type.capitalize()})")
        for part in content
    ]
    return attrs.evolve(message, content=list(parts))


def thin_score(score: Score) -> Score:
    """A score without its history, its texts cut."""
    answer, explanation, reason, metadata = score.answer, score.explanation, score.reason, score.metadata
    return Score(
        value=score.value if not _is_huge(score.value) else str(score.value),
        answer=cut(answer, TEXT) if answer is not None else None,
        explanation=cut(explanation, TEXT) if explanation is not None else None,
        reason=cut(reason, TEXT) if reason is not None else None,
        metadata=thin_metadata(metadata) if metadata is not None else None,
    )


def thin_metadata(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Metadata with long texts cut and other large values left out."""
    made: dict[str, Any] = {}
    for key, value in metadata.items():
        if isinstance(value, str):
            made[key] = cut(value, TEXT)
        elif value is None or isinstance(value, int | float):
            made[key] = value if not _is_huge(value) else str(value)
        else:
            made[key] = value if _room(value, TEXT) >= 0 and len(encode(value)) <= TEXT else LEFT_OUT
    return made


def _is_huge(value: Any) -> bool:
    """Whether it is an integer that no column of a data frame can hold."""
    return isinstance(value, int) and not -(2**63) <= value < 2**63


def _room(value: Any, room: int) -> int:
    """What is left of `room` after the least that a value takes as JSON; looks no further once it is below 0."""
    if isinstance(value, str):
        return room - len(value) - 2
    if not isinstance(value, Mapping | list | tuple | set):
        return room - 1
    room -= 2
    for item in value.items() if isinstance(value, Mapping) else value:
        room = _room(item, room)
        if room < 0:
            break
    return room
