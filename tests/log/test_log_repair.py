"""One bad sample never makes a log unreadable: what is wrong in it is replaced by a note."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from proctor.log import EvalLog, read_eval_log, read_eval_log_sample_summaries
from proctor.log import sample_json as sample_json_module
from proctor.log.checks import problem
from proctor.log.encode import decode
from proctor.log.records import EvalPlan, EvalSample, EvalSampleSummary, EvalSpec, Score
from proctor.log.sample_json import encode_record
from proctor.log.writer import open_log_writer

Made = Callable[..., Any]


def force(target: Any, name: str, value: Any) -> None:
    """Set a field past its validator, as code that means no harm can."""
    object.__setattr__(target, name, value)


def score_without_value(sample: EvalSample) -> None:
    force((sample.scores or {})["match"], "value", None)


def score_of_nested_lists(sample: EvalSample) -> None:
    force((sample.scores or {})["match"], "value", [[1]])


def answer_that_is_a_number(sample: EvalSample) -> None:
    force((sample.scores or {})["match"], "answer", 4)


def scores_that_are_none(sample: EvalSample) -> None:
    sample.scores = {"match": None}  # type: ignore[dict-item]


def message_of_a_number(sample: EvalSample) -> None:
    sample.messages[1].content = 4  # type: ignore[assignment]


def message_that_is_none(sample: EvalSample) -> None:
    sample.messages.append(None)  # type: ignore[arg-type]


def message_of_another_library(sample: EvalSample) -> None:
    sample.messages.append({"role": "developer", "content": "x"})  # type: ignore[arg-type]


def event_of_an_unknown_kind(sample: EvalSample) -> None:
    force(sample.events[3], "event", "subprocess")


def event_that_is_text(sample: EvalSample) -> None:
    sample.events.append("hello")  # type: ignore[arg-type]


def tool_result_of_a_dict(sample: EvalSample) -> None:
    from proctor.log.events import ToolEvent

    sample.events.append(ToolEvent(id="1", function="f", arguments={}, result={"a": 1}))


def metadata_that_is_a_list(sample: EvalSample) -> None:
    sample.metadata = [1]  # type: ignore[assignment]


def target_of_a_number(sample: EvalSample) -> None:
    sample.target = 4  # type: ignore[assignment]


def stop_reason_of_our_own(sample: EvalSample) -> None:
    sample.output.choices[0].stop_reason = "tired"  # type: ignore[assignment]


class Bomb:
    def __str__(self) -> str:
        raise RuntimeError("no text of mine")


def object_that_cannot_be_written(sample: EvalSample) -> None:
    sample.store["x"] = Bomb()


BREAKERS = [
    score_without_value, score_of_nested_lists, answer_that_is_a_number, scores_that_are_none, message_of_a_number,
    message_that_is_none, message_of_another_library, event_of_an_unknown_kind, event_that_is_text,
    tool_result_of_a_dict, metadata_that_is_a_list, target_of_a_number, stop_reason_of_our_own,
    object_that_cannot_be_written,
]  # fmt: skip


@pytest.mark.parametrize("large", [False, True], ids=["whole", "in pieces"])
@pytest.mark.parametrize("breaks", BREAKERS, ids=lambda function: function.__name__)
def test_a_bad_sample_is_repaired(
    sample: Made, breaks: Callable[[EvalSample], None], monkeypatch: pytest.MonkeyPatch, *, large: bool
) -> None:
    if large:
        monkeypatch.setattr(sample_json_module, "MANY", 1)
    made = anyio.run(sample, 1)
    breaks(made)
    record = encode_record(made)
    data = b"".join(record.parts)
    assert problem(data, EvalSample) is None
    assert problem(record.summary, EvalSampleSummary) is None
    found = decode(data)
    assert (found["id"], found["epoch"]) == (1, 1)
    if breaks is object_that_cannot_be_written:
        assert "no text of mine" in found["error"]["message"]
        return
    notes = [event for event in found["events"] if event["event"] == "info" and event.get("source") == "proctor"]
    assert notes, "the reader is told"
    assert notes[-1]["timestamp"] == max(event["timestamp"] for event in found["events"] if "timestamp" in event)


def test_what_is_good_in_a_bad_sample_is_kept(sample: Made) -> None:
    made: EvalSample = anyio.run(sample, 1)
    made.scores = {"bad": Score(value=1), "good": Score(value="C", answer="4"), "half": Score(value=0.5)}
    force(made.scores["bad"], "value", None)
    force(made.scores["half"], "answer", 3)
    force(made.events[3], "type", 5)
    found = decode(b"".join(encode_record(made).parts))
    assert math.isnan(found["scores"]["bad"]["value"])
    assert found["scores"]["half"]["value"] == 0.5
    assert found["scores"]["good"] == {"value": "C", "answer": "4", "history": []}
    assert len(found["events"]) == len(made.events) + 1
    replaced = next(event for event in found["events"] if event["event"] == "info")
    assert replaced["data"]["event"]["id"] == made.events[3].id  # type: ignore[union-attr]
    assert found["messages"][2]["content"] == "A: 4"


async def test_a_log_with_bad_samples_is_read_in_full(
    log_path: Path, spec: EvalSpec, finished: EvalLog, sample: Made
) -> None:
    async with open_log_writer(log_path, spec=spec, plan=EvalPlan()) as writer:
        for number, breaks in enumerate(BREAKERS):
            made = await sample(number)
            breaks(made)
            await writer.send(made)
        await writer.send(await sample("fine"))
        await writer.finish(finished)
    log = read_eval_log(log_path)
    assert len(log.samples or []) == len(BREAKERS) + 1
    assert len(read_eval_log_sample_summaries(log_path)) == len(BREAKERS) + 1
