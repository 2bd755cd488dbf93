"""`basic_agent`: tools until an answer is submitted, attempts, limits."""

from __future__ import annotations

from typing import Any

import pytest

from proctor import Task
from proctor.dataset import Sample
from proctor.errors import OptionError
from proctor.log.records import EvalSample
from proctor.model import ChatMessageAssistant, ModelOutput, get_model
from proctor.model.toolcall import ToolCall
from proctor.scorer import includes
from proctor.solver import Solver, basic_agent, use_tools
from proctor.testing import simulate
from proctor.tool import ToolDef


async def double(x: int) -> int:
    """Double a number.

    Args:
        x: The number.
    """
    return 2 * x


def calling(function: str, content: str = "", **arguments: Any) -> ModelOutput:
    call = ToolCall(f"call-{function}-{arguments}", function, arguments)
    return ModelOutput.from_message(ChatMessageAssistant(content=content, tool_calls=[call]), "tool_calls")


async def played(solver: Solver, outputs: Any, **options: Any) -> EvalSample:
    task = Task([Sample(id=1, input="2*3", target="6")], solver=solver, scorer=includes())
    [log] = await simulate(task, get_model("mock/x", custom_outputs=outputs, memoize=False), **options)
    assert log.samples is not None
    return log.samples[0]


@pytest.mark.parametrize("tools", [[ToolDef(double)], use_tools(ToolDef(double))], ids=["tools", "solver"])
async def test_it_calls_tools_until_an_answer_is_submitted(tools: Any) -> None:
    outputs = ["hm", calling("double", x=3), calling("submit", "so", answer="6")]
    sample = await played(basic_agent(tools=tools), outputs)
    assert sample.error is None, sample.error
    assert [message.role for message in sample.messages] == [
        "system", "user", "assistant", "user", "assistant", "tool", "assistant", "tool",
    ]  # fmt: skip
    assert "submit()" in sample.messages[0].text
    assert sample.output.completion == "6"
    appended = await played(basic_agent(submit_append=True, init=[]), [calling("submit", "so", answer="6")])
    assert appended.output.completion == "so\n\n6"
    assert appended.messages[0].role == "user"


async def test_a_wrong_answer_may_be_given_anew() -> None:
    async def told(state: Any, scores: Any) -> str:
        return f"{scores[0].value} is not good enough"

    outputs = [calling("submit", answer="5"), calling("submit", answer="6"), "never asked"]
    sample = await played(basic_agent(max_attempts=3, incorrect_message=told), outputs)
    assert sample.error is None, sample.error
    assert any(message.text == "I is not good enough" for message in sample.messages)
    assert sample.output.completion == "6"


async def test_a_model_that_never_submits_meets_a_limit() -> None:
    sample = await played(basic_agent(), lambda *_: "hm")
    assert sample.limit is not None
    assert (sample.limit.type, sample.limit.limit, len(sample.messages)) == ("message", 50, 50)
    tokens = await played(basic_agent(token_limit=20), lambda *_: "hm")
    assert tokens.limit is not None
    assert tokens.limit.type == "token"
    with pytest.raises(OptionError):
        basic_agent(token_limit="lots")
