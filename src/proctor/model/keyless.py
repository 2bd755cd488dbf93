"""A model whose key nobody gave, in a run of several: it ends with that message at its first call, the others go on."""

from __future__ import annotations

from typing import Any, cast

from proctor.errors import MissingKeyError, ModelGivenUp
from proctor.model.api import ModelAPI
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage
from proctor.model.model import Model
from proctor.model.output import ModelOutput
from proctor.model.source import Source
from proctor.model.toolcall import ToolChoice, ToolInfo


class KeylessAPI(ModelAPI):
    """A client that can send nothing.

    Args:
        reason: why.
    """

    def __init__(self, model_name: str, reason: str) -> None:
        super().__init__(model_name)
        self.reason = reason

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput:
        """Give the model up."""
        raise ModelGivenUp(self.reason)


def keyless_model(name: str, error: MissingKeyError) -> Model:
    """The description of a model that cannot be called.

    Args:
        name: ``provider/model``. error: what it ends with.
    """
    provider, _, rest = name.partition("/")

    def make(*, model_name: str, **_: Any) -> KeylessAPI:
        return KeylessAPI(model_name, str(error))

    return Model(source=Source(provider, rest, cast("type[ModelAPI]", make), None, None, GenerateConfig(), {}))
