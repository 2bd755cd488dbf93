"""Making a record readable that readers would refuse: what is wrong in it is replaced by a note that holds it.

It runs only on records that failed their check (`checks.problem`), on the JSON itself, so that it works whatever
objects the record was made from. The check names the first thing wrong; that is mended, and the record checked again.
"""

from __future__ import annotations

import json
import logging
import math
import re
from typing import Any, Final, TypeAlias

from proctor.log.checks import problem_of
from proctor.log.samples import EvalSample

Json: TypeAlias = dict[str, Any]

ROUNDS: Final = 100
_REQUIRED: Final = {"id": "", "epoch": 1, "input": "", "target": ""}
_STEP: Final = re.compile(r"\.([A-Za-z_]\w*)|\[(\d+)\]|\[\.\.\.\]")

logger = logging.getLogger(__name__)


def repaired(data: bytes, wrong: str | None) -> Json:
    """A sample's record with each part that readers refuse replaced.

    Args:
        data: the JSON of the record. wrong: what `checks.problem` says of it.
    """
    record: Json = json.loads(data)
    found: list[str] = []
    reason = wrong
    while reason is not None and reason not in found and len(found) < ROUNDS:
        found.append(reason)
        _mend(record, reason)
        reason = problem_of(record, EvalSample)
    if reason is not None:
        record = _bare(record, found)
    record.setdefault("events", []).append(_note({"repaired": found}, record["events"]))
    logger.warning(
        "sample %r: the log's format refuses a part of its record, which was replaced: %s", record["id"], wrong
    )
    return record


def unwritable(sample: EvalSample, error: Exception) -> Json:
    """The record of a sample of which none could be made at all."""
    said = {name: getattr(sample, name, None) for name in _REQUIRED}
    return _bare({name: value for name, value in said.items() if isinstance(value, str | int)}, [repr(error)])


def _mend(record: Json, reason: str) -> None:
    """Replace, in place, what the reason points at."""
    steps = [match[1] or (int(match[2]) if match[2] else None) for match in _STEP.finditer(reason.partition("`$")[2])]
    top = steps[0] if steps else next((name for name in _REQUIRED if name not in record), None)
    if steps[:2] == ["events_data", "messages"]:
        _mend(record["events_data"], reason.replace("$.events_data", "$"))
        return
    place = steps[1] if len(steps) > 1 else None
    if not isinstance(top, str):
        return
    if top == "events" and isinstance(place, int):
        record["events"][place] = _note({"event": record["events"][place], "reason": reason}, [record["events"][place]])
    elif top == "messages" and isinstance(place, int):
        record["messages"][place] = {"role": "user", "content": _text(record["messages"][place])}
    elif top == "scores" and isinstance(record.get("scores"), dict):
        _mend_scores(record["scores"], reason)
    elif top in _REQUIRED:
        record[top] = _required(top, record.get(top))
    elif top in record:
        lost = record.pop(top)
        if isinstance(record.setdefault("events", []), list):
            record["events"].append(_note({top: lost, "reason": reason}, record["events"]))


def _mend_scores(scores: Json, reason: str) -> None:
    from proctor.log.scores import Score

    for name, score in scores.items():
        if problem_of(score, Score) is None:
            continue
        kept = {"value": score.get("value"), "reason": "scoring_failed"} if isinstance(score, dict) else {}
        if not kept or problem_of(kept, Score) is not None:
            kept = {"value": math.nan, "reason": "scoring_failed"}
        scores[name] = {**kept, "explanation": f"{reason}; it was {_text(score)}"}


def _required(name: str, value: Any) -> Any:
    if isinstance(value, int) and name in {"id", "epoch"}:
        return value
    if name == "epoch":
        return 1
    return _text(value) if value is not None else _REQUIRED[name]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _note(data: Any, near: list[Any]) -> Json:
    """An event of our own, at the time and in the span of the last event in `near` that says."""
    made: Json = {"event": "info", "source": "proctor", "data": data}
    for event in reversed(near):
        if isinstance(event, dict) and isinstance(event.get("timestamp"), str):
            for name, kind in (("timestamp", str), ("working_start", float), ("span_id", str)):
                if isinstance(event.get(name), kind):
                    made[name] = event[name]
            break
    return made


def _bare(record: Json, found: list[str]) -> Json:
    """The least that is still this sample's record, as an error."""
    message = f"the sample's record could not be written: {found[0]}"
    made: Json = {name: _required(name, record.get(name)) for name in _REQUIRED}
    return {**made, "error": {"message": message, "traceback": "\n".join(found[:20]), "traceback_ansi": ""}}
