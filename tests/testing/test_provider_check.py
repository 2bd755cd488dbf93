"""`check_provider` finds what is wrong with a provider, and says how to mend it."""

from __future__ import annotations

from contextlib import nullcontext
from itertools import count
from typing import Any

import anyio
import pytest

from proctor.errors import ModelError, ModelGivenUp, RateLimitError, TransientModelError
from proctor.model import ChatMessageAssistant, GenerateConfig, Model, ModelOutput, ModelUsage, get_model
from proctor.model.api import ModelAPI
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall
from proctor.model.toolcall import ToolCall, ToolChoice, ToolInfo
from proctor.testing import ProviderFault, check_provider


def play() -> Any:
    return nullcontext()


class Good(ModelAPI):
    """A provider that plays its own vendor: `scene` says how."""

    scene = "answer"
    asked = 0

    def __init__(self, model_name: str = "m", api_key: str | None = "sk-canary") -> None:
        super().__init__(model_name, None, api_key)
        type(self).asked = 0

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> Any:
        type(self).asked += 1
        await anyio.sleep(0.01)
        if self.scene == "stall":
            await anyio.sleep_forever()
        if self.scene == "bad_key":
            raise ModelGivenUp("the key was refused", status=401)
        if self.scene == "bad_request":
            raise ModelError("no such option")
        if self.scene in {"rate_limit", "server_error"} and self.asked == 1:
            raise (RateLimitError if self.scene == "rate_limit" else TransientModelError)("not now")
        return self.output(tool=self.scene == "tool" and self.asked == 1)

    def output(self, *, tool: bool) -> Any:
        output = ModelOutput.from_content("m", "hello")
        if tool:
            output.choices[0].message.tool_calls = [ToolCall("c1", "add", {"x": 1, "y": 2})]
            output.choices[0].stop_reason = "tool_calls"
        output.usage = ModelUsage(input_tokens=2, output_tokens=1, total_tokens=3)
        return output, ModelCall(request={"model": "m"}, response={})


def variant(**members: Any) -> type[Good]:
    return type("Variant", (Good,), members)


SCENES: list[Any] = ["answer", "tool", "rate_limit", "server_error", "bad_key", "bad_request", "stall"]


@pytest.mark.parametrize("scene", SCENES)
def test_a_provider_that_keeps_to_everything_passes(scene: Any) -> None:
    assert len(check_provider(variant(scene=scene), {scene: play})) > 2


def changed(**fields: Any) -> Any:
    """An output with fields of its first choice changed."""

    def output(self: Good, *, tool: bool) -> Any:
        made, call = Good.output(self, tool=tool)
        for name, value in fields.items():
            setattr(made.choices[0], name, value)
        return made, call

    return output


async def swallowing(self: Good, *args: Any) -> Any:
    with anyio.CancelScope(shield=True):
        await anyio.sleep(60)
    return self.output(tool=False)


async def retrying(self: Good, *args: Any) -> Any:
    while True:
        try:
            return await Good.generate(self, *args)
        except RateLimitError:
            await anyio.sleep(1)


async def changing(self: Good, input: list[ChatMessage], *args: Any) -> Any:
    input.append(ChatMessageAssistant(content="x"))
    return self.output(tool=False)


NUMBERS = count()
SHARED = ModelOutput.from_content("m", "hello")
FAULTY: list[tuple[Any, dict[str, Any], str]] = [
    ("answer", {"output": lambda self, tool: (ModelOutput(model="m"), None)[0]}, "no choices"),
    ("answer", {"output": changed(stop_reason="eos")}, "no stop reason"),
    ("answer", {"output": changed(message=ChatMessageAssistant(content=""))}, "no text"),
    ("answer", {"output": lambda self, tool: SHARED}, "one object"),
    ("answer", {"output": lambda self, tool: (SHARED, ModelCall(request={"k": "sk-canary"}))}, "holds a secret"),
    ("answer", {"generate": changing}, "changes the messages"),
    ("answer", {"max_connections": lambda self: 0}, "at least 1"),
    ("answer", {"connection_key": lambda self: str(next(NUMBERS))}, "another value"),
    ("tool", {"output": lambda self, tool: Good.output(self, tool=False)}, "no tool call"),
    ("tool", {"output": changed(stop_reason="stop")}, "tool_calls"),
    ("rate_limit", {"generate": retrying}, "1 calls of generate instead of 2"),
    ("rate_limit", {"scene": "bad_request"}, "final"),
    ("bad_key", {"scene": "bad_request"}, "refused key"),
    ("bad_key", {"scene": "answer"}, "an output came"),
    ("bad_request", {"scene": "bad_key"}, "gives the model up"),
    ("stall", {"scene": "answer"}, "ended that nobody answered"),
    ("stall", {"generate": swallowing}, "went on|swallowed"),
]  # fmt: skip


@pytest.mark.parametrize(("scene", "members", "words"), FAULTY)
def test_each_fault_is_found_and_named(scene: Any, members: dict[str, Any], words: str, backend: str) -> None:
    with pytest.raises(ProviderFault, match=words):
        check_provider(variant(**{"scene": scene, **members}), {scene: play}, backends=(backend,))


def test_a_scene_that_there_is_not_is_refused() -> None:
    with pytest.raises(ValueError, match="nap"):
        check_provider(Good, {"nap": play})  # type: ignore[dict-item]


class Ensemble(ModelAPI):
    """The best of two models."""

    composite = True

    def __init__(self, model_name: str = "m", model: str = "mock/any") -> None:
        super().__init__(model_name)
        self.model = model

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        models: list[Model] = [get_model(self.model) for _ in range(2)]
        outputs = [await model.generate(list(input), config=GenerateConfig(max_connections=1)) for model in models]
        output = outputs[0]
        output.usage = None
        return output


def test_a_provider_that_calls_other_models_takes_no_connection() -> None:
    assert check_provider(Ensemble)
    with pytest.raises(ProviderFault, match="RankError"):
        check_provider(type("Held", (Ensemble,), {"composite": False}))
