"""``none/none``: no model at all, for evaluations whose solvers and scorers call none."""

from __future__ import annotations

from typing import Any

from proctor.errors import UsageError
from proctor.model.api import ModelAPI
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelOutput
from proctor.model.toolcall import ToolChoice, ToolInfo


class NoModelAPI(ModelAPI):
    """A model that must not be called."""

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, base_url, api_key, (), config)

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Refuse."""
        raise UsageError("a model was called, but the evaluation runs without one: name one (--model provider/name)")
