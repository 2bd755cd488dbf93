"""The index of a log: of each sample how it ended and what it was scored, without reading a sample.

A journal of summaries is read at a time, so what is in memory does not grow with the log. Of several entries of one
sample the last counts, and only where the sample's record is in the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, Literal

import msgspec
from attrs import frozen

from proctor.log.digests import thin_digest
from proctor.log.encode import decode
from proctor.log.evalfile import DIGESTS, JOURNAL, SUMMARIES
from proctor.log.logfile import JOURNAL as JOURNALS
from proctor.log.logfile import LogFile
from proctor.log.places import Place
from proctor.log.reader import read_eval_log
from proctor.log.sample_json import encode_record, sample_member
from proctor.log.samples import EvalSample
from proctor.log.summaries import TEXT

State = Literal["done", "failed", "cancelled"]

CANCELLED: Final = ("CancelledError(", "Cancelled(")
"""How the message begins of the error of a sample that was cancelled."""
LEFT_OUT: Final = ("left out of the summary)", "removed from summary (> 1k)")
"""What a summary says, ours and Inspect's, in place of a value that is too long."""


class _Summary(msgspec.Struct):
    id: int | str
    epoch: int
    input: Any = None
    target: Any = None
    choices: Any = None
    error: str | None = None
    limit: str | None = None
    scores: dict[str, Any] | None = None
    metadata: Any = None
    model_usage: dict[str, dict[str, Any]] | None = None
    role_usage: dict[str, dict[str, Any]] | None = None


_LISTS: Final = msgspec.json.Decoder(list[_Summary])


@frozen(kw_only=True)
class Indexed:
    """A sample as the index has it.

    Attributes:
        state: ``done`` when it ended in order or at a limit. limit: the kind of limit that ended it.
        digest: of the dataset's sample, None where the log does not say; thin: of its input, choices and target, made
            only where there is no digest.
        scores, metadata: as a summary holds them; cut: something of them is not all there.
        usage, role_usage: tokens by model and by role, as JSON has them.
    """

    id: int | str
    epoch: int
    state: State
    limit: str | None
    digest: str | None
    thin: str | None
    scores: dict[str, Any]
    metadata: dict[str, Any]
    cut: bool
    usage: dict[str, dict[str, Any]]
    role_usage: dict[str, dict[str, Any]]


def read_index(path: Place) -> Iterator[Indexed]:
    """What a log says of its samples, in the order in which they ended; of one sample there may be several.

    Raises:
        LogError: the log cannot be read.
    """
    if path.suffix == ".json":
        log = read_eval_log(path)
        yield from indexed(log.samples or (), digests="proctor" in log.eval.packages)
        return
    with LogFile.open(path) as file:
        for summaries, digests in _lists(file):
            for number, summary in enumerate(summaries):
                if sample_member(summary.id, summary.epoch) in file.members:
                    yield _indexed(summary, digests[number] if number < len(digests) else None)


def indexed(records: Iterable[EvalSample], *, digests: bool = True) -> Iterator[Indexed]:
    """What the index of a log with these records says.

    Args:
        digests: take those of the records; another program's would not compare with ours.
    """
    for record in records:
        made = encode_record(record)
        yield _indexed(_summaries(b"[" + made.summary + b"]")[0], made.digest if digests else None)


def _lists(file: LogFile) -> Iterator[tuple[list[_Summary], list[str | None]]]:
    numbers = sorted(int(match[1]) for name in file.members if (match := JOURNALS.fullmatch(name)))
    if not numbers and SUMMARIES in file.members:
        yield _summaries(file.content(SUMMARIES)), []
    for number in numbers:
        name = f"{DIGESTS}{number}.json"
        digests = msgspec.json.decode(file.content(name)) if name in file.members else []
        yield _summaries(file.content(f"{JOURNAL}{number}.json")), digests


def _summaries(data: bytes) -> list[_Summary]:
    try:
        return _LISTS.decode(data)
    except msgspec.DecodeError:  # NaN and infinities
        return [msgspec.convert(item, _Summary, strict=False) for item in decode(data)]


def _indexed(summary: _Summary, digest: str | None) -> Indexed:
    error, scores = summary.error, summary.scores or {}
    metadata = summary.metadata if isinstance(summary.metadata, dict) else {}
    state: State = "done"
    if error is not None:
        state = "cancelled" if error.startswith(CANCELLED) else "failed"
    return Indexed(
        id=summary.id,
        epoch=summary.epoch,
        state=state,
        limit=summary.limit,
        digest=digest,
        thin=thin_digest(summary.input, summary.choices, summary.target) if digest is None else None,
        scores=scores,
        metadata=metadata,
        cut=_is_cut(metadata.values()) or any(_score_is_cut(score) for score in scores.values()),
        usage=summary.model_usage or {},
        role_usage=summary.role_usage or {},
    )


def _score_is_cut(score: Any) -> bool:
    if not isinstance(score, dict):
        return False
    metadata = score.get("metadata")
    # A long integer is kept as text; its place tells neither from the other.
    return _is_cut([score.get("answer"), score.get("value")]) or (
        isinstance(metadata, dict) and _is_cut(metadata.values())
    )


def _is_cut(values: Iterable[Any]) -> bool:
    return any(
        value.__class__ is str
        and ((len(value) >= TEXT and value.endswith("...")) or ("summary" in value and value.endswith(LEFT_OUT)))
        for value in values
    )
