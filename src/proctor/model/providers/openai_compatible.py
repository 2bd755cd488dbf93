"""``openai-api/<service>/<model>``: any server that speaks OpenAI's chat completions or its Responses API.

`CompatibleAPI` is what all of OpenAI's family share; the vendors with quirks of their own override a step of it.
"""

from __future__ import annotations

import logging
from typing import Any, Final
from urllib.parse import urlsplit

from attrs import evolve

from proctor.errors import ModelError, TransientModelError, UsageError
from proctor.model.api import refuse_unknown
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall, ModelOutput
from proctor.model.providers import openai_chat, openai_responses
from proctor.model.providers.openai_chat_answer import output_from_wire as chat_output
from proctor.model.providers.openai_chat_stream import ChatStream
from proctor.model.providers.openai_responses import Ask
from proctor.model.providers.openai_responses_answer import ResponsesStream
from proctor.model.providers.openai_responses_answer import output_from_wire as responses_output
from proctor.model.providers.service import ServiceAPI, encode, take_options
from proctor.model.providers.vendors import OPENAI, Vendor, compatible
from proctor.model.toolcall import ToolChoice, ToolInfo

logger: Final = logging.getLogger(__name__)

Result = tuple[ModelOutput | Exception, ModelCall]


class CompatibleAPI(ServiceAPI):
    """A client of one model of a server that speaks a protocol of OpenAI's.

    Args:
        row: the vendor's row of the table.
        stream: whether answers are streamed; ``auto``: where `GenerateConfig.stream_idle_timeout` is set. Also under
            the name ``streaming``.
        responses_api: use the Responses API; default the vendor's first dialect.
        responses_store: let the vendor keep the response.
        model_args: request fields of the vendor's own, where its row has any; others are refused.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        *,
        row: Vendor,
        sent_name: str | None = None,
        shown: str | None = None,
        responses_api: bool | None = None,
        responses_store: bool | None = None,
        **model_args: Any,
    ) -> None:
        shown = shown or f"{row.name}/{model_name}"
        stream = model_args.pop("stream", None)
        streaming = model_args.pop("streaming", None)
        self.extras = take_options(shown, model_args, row.extras)
        refuse_unknown(shown.split("/")[0], model_args)
        super().__init__(
            model_name,
            base_url,
            api_key,
            config,
            row=row,
            sent_name=sent_name,
            stream=streaming if stream is None else stream,
            shown=shown,
        )
        self.responses_api = responses_api if responses_api is not None else row.dialects[0] == "responses"
        self.responses_store = responses_store

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> Result:
        """Make one attempt."""
        if config.max_tokens is None and (most := self.max_tokens()) is not None:
            config = evolve(config, max_tokens=most)
        if self.uses_responses(tools, config):
            return await self._responses(input, tools, tool_choice, config)
        return await self._chat(input, tools, tool_choice, config)

    def uses_responses(self, tools: list[ToolInfo], config: GenerateConfig) -> bool:
        """Whether a call goes to the Responses API."""
        return self.responses_api

    # -- chat completions ------------------------------------------------------------------------------------------

    def chat_path(self) -> str:
        """Where chat completions are, after the base URL."""
        return openai_chat.PATH

    def chat_row(self, config: GenerateConfig) -> Vendor:
        """The row by which a request is made, for models that are no rule of their vendor."""
        return self.row

    def system_role(self) -> str:
        """The role of system messages in chat completions."""
        return "system"

    async def chat_body(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> dict[str, Any]:
        """The body of a request to chat completions."""
        row = self.chat_row(config)
        self.tell_unsupported(openai_chat.unsupported(config, row))
        body = await openai_chat.request_body(
            self.sent_name, input, tools, tool_choice, config, row=row, system_role=self.system_role()
        )
        return {**self.extras, **body}

    async def _chat(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> Result:
        body = await self.chat_body(input, tools, tool_choice, config)
        reader = None
        if self.streams(config):
            reader = ChatStream()
            body["stream"] = True
            if self.row.stream_usage:
                body.setdefault("stream_options", {"include_usage": True})
        result, call = await self.exchange(self.chat_path(), body, config, reader=reader)
        if isinstance(result, dict):
            return self.chat_answer(result, tools), call
        return result, call

    def chat_answer(self, data: dict[str, Any], tools: list[ToolInfo]) -> ModelOutput:
        """The output that a completion holds."""
        return chat_output(data, tools, model=self.sent_name)

    # -- responses -------------------------------------------------------------------------------------------------

    def responses_path(self) -> str:
        """Where responses are, after the base URL."""
        return openai_responses.PATH

    def ask(self, config: GenerateConfig) -> Ask:
        """What the model takes of a request to the Responses API."""
        effort = config.reasoning_effort
        effort = self.row.efforts.get(effort, effort) if effort is not None else None  # type: ignore[assignment]
        summary = config.reasoning_summary
        return Ask(
            effort=effort,
            summary=None if summary == "none" else summary,
            store=self.responses_store is True,
            system_role="system",
            reasoning_text=True,
        )

    async def _responses(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> Result:
        ask = self.ask(config)
        self.tell_unsupported(openai_responses.unsupported(config, ask))
        body = {
            **self.extras,
            **await openai_responses.request_body(self.sent_name, input, tools, tool_choice, config, ask),
        }
        reader = ResponsesStream() if self.streams(config) else None
        if reader is not None:
            body["stream"] = True
        result, call = await self.exchange(self.responses_path(), body, config, reader=reader)
        if isinstance(result, dict):
            return self._responses_answer(result, tools, call), call
        return result, call

    def _responses_answer(
        self, data: dict[str, Any], tools: list[ToolInfo], call: ModelCall
    ) -> ModelOutput | ModelError:
        status = data.get("status")
        if status == "failed" or (data.get("error") and not data.get("output")):
            body = encode({"error": data.get("error") or "the response failed"})
            return self.failure(self.responses_path(), 200, {}, body, call)
        if status == "cancelled":
            return TransientModelError(f"{self.shown}: the vendor cancelled the response")
        if status in {"queued", "in_progress"}:
            return ModelError(f"{self.shown}: the response is made in the background, which is not waited for here")
        return responses_output(data, tools, model=self.sent_name)

    def tell_unsupported(self, names: list[str]) -> None:
        """Warn, once a client and option, of options that are not sent."""
        if new := self.left_out(names):
            logger.warning("%s has no %s: not sent", self.shown, ", ".join(new))


class OpenAICompatibleAPI(CompatibleAPI):
    """A client of one model of an OpenAI-compatible server.

    The key is the one given, else ``<SERVICE>_API_KEY``, else ``OPENAI_API_KEY``; the base URL the one given, else
    ``<SERVICE>_BASE_URL``, else ``OPENAI_BASE_URL`` (the service in capitals, ``-`` as ``_``).
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        **model_args: Any,
    ) -> None:
        service, slash, model = model_name.partition("/")
        if not slash or not service or not model:
            raise UsageError(
                f"model openai-api/{model_name}: the name is openai-api/<service>/<model>; the service is a name of "
                "your choice under which key and base URL are looked up"
            )
        try:
            super().__init__(
                model_name, base_url, api_key, config, row=compatible(service), sent_name=model, **model_args
            )
        except UsageError as error:
            if "no API key" in str(error):
                error.args = (f"{error}; a server that wants none takes any text",)
            raise
        self.service, self.service_model = service, model
        if urlsplit(self.base_url or "").hostname == "api.openai.com":
            self.row = evolve(self.row, fields={**OPENAI.fields, "prompt_logprobs": "prompt_logprobs"})
