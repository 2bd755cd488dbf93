"""The header of a log as JSON, checked: what readers would refuse is left out rather than the log made unreadable."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Final

from attrs import evolve

from proctor.log.checks import problem, problem_of
from proctor.log.encode import decode, encode, encode_shaped, shaper
from proctor.log.records import EvalLog

logger = logging.getLogger(__name__)

OPTIONAL: Final = ("results", "stats", "error", "log_updates", "config_updates", "tags", "metadata", "invalidated")

MANY_IDS: Final = 10_000
"""More ids than these are encoded apart, some at a time, and not checked: as objects a million take 100 MB."""
PLACE: Final = "\0the ids\0"
"""Stands for them meanwhile; no text in a log is like it."""

_shape_header: Final = shaper(EvalLog, ("samples", "reductions"))


def encode_header(log: EvalLog) -> bytes:
    """The header of a log: everything but its samples and reductions."""
    ids: Sequence[int | str] = log.eval.dataset.sample_ids or []
    many = len(ids) > MANY_IDS or not isinstance(ids, list)
    if many:
        log = evolve(log, eval=evolve(log.eval, dataset=evolve(log.eval.dataset, sample_ids=[PLACE])))
    data = encode_shaped(_shape_header(log, None, None))
    wrong = problem(data, EvalLog)
    if wrong is not None:
        logger.warning("the log's format refuses a part of its header, which was left out: %s", wrong)
        data = encode(_without_wrong(decode(data), wrong))
    return data.replace(encode(PLACE), _ids(ids), 1) if many else data


def _ids(ids: Sequence[int | str]) -> bytes:
    return b",".join(encode(list(ids[start : start + MANY_IDS]))[1:-1] for start in range(0, len(ids), MANY_IDS))


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
