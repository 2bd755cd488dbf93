"""The header of a log as JSON, checked: what readers would refuse is left out rather than the log made unreadable."""

from __future__ import annotations

import logging
from typing import Any, Final

from attrs import evolve

from proctor.log.checks import problem, problem_of
from proctor.log.encode import decode, encode, encode_shaped, shaper
from proctor.log.records import EvalLog

logger = logging.getLogger(__name__)

OPTIONAL: Final = ("results", "stats", "error", "log_updates", "config_updates", "tags", "metadata", "invalidated")

MANY_IDS: Final = 10_000

_shape_header: Final = shaper(EvalLog, ("samples", "reductions"))


def encode_header(log: EvalLog) -> bytes:
    """The header of a log: everything but its samples and reductions."""
    data = encode_shaped(_shape_header(log, None, None))
    wrong = problem(_checked(log, data), EvalLog)
    if wrong is None:
        return data
    logger.warning("the log's format refuses a part of its header, which was left out: %s", wrong)
    return encode(_without_wrong(decode(data), wrong))


def _checked(log: EvalLog, data: bytes) -> bytes:
    """What of the header is checked: not the ids of a million samples, which would all be made anew for it."""
    dataset = log.eval.dataset
    if dataset.sample_ids is None or len(dataset.sample_ids) <= MANY_IDS:
        return data
    if not all(isinstance(each, int | str) for each in dataset.sample_ids):
        return data
    short = evolve(log, eval=evolve(log.eval, dataset=evolve(dataset, sample_ids=None)))
    return encode_shaped(_shape_header(short, None, None))


def _without_wrong(header: dict[str, Any], wrong: str) -> dict[str, Any]:
    """The header without its wrong parts, which are noted in its metadata."""
    left_out: dict[str, Any] = {"reason": wrong}
    metadata = header.get("metadata")
    for name in OPTIONAL:
        if name in header and problem_of({**_bare(header), name: header[name]}, EvalLog) is not None:
            left_out[name] = header.pop(name)
    if problem_of(_bare(header), EvalLog) is not None:
        header = _with_plain_texts(header)
    kept = metadata if isinstance(metadata, dict) and "metadata" not in left_out else {}
    return {**header, "metadata": {**kept, "proctor_left_out": left_out}}


def _bare(header: dict[str, Any]) -> dict[str, Any]:
    return {name: header[name] for name in ("version", "status", "eval", "plan") if name in header}


def _with_plain_texts(header: dict[str, Any]) -> dict[str, Any]:
    """The least of the specification that readers need."""
    spec = header.get("eval") or {}
    made: dict[str, Any] = {"dataset": {}, "config": {}}
    for name in ("created", "task", "model", "eval_id", "run_id", "task_id"):
        made[name] = str(spec.get(name, ""))
    return {**{key: value for key, value in header.items() if key != "plan"}, "eval": made}
