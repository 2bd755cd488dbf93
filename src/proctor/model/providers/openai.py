"""``openai/<model>``: OpenAI's models, by the Responses API where that is their better one, else chat completions.

``openai/azure/<deployment>`` is a deployment of one of them on Azure.
"""

from __future__ import annotations

import re
from typing import Any, Final
from urllib.parse import quote, urlsplit

from attrs import evolve

from proctor.errors import UsageError
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelOutput
from proctor.model.providers.openai_compatible import CompatibleAPI, Result
from proctor.model.providers.openai_models import openai_model
from proctor.model.providers.openai_responses import Ask, may_be_strict
from proctor.model.providers.vendors import OPENAI, OPENAI_ON_AZURE, Vendor
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.runtime.settings import environ

AZURE_VERSION: Final = "2025-03-01-preview"
NOT_WHEN_REASONING: Final = (
    "temperature", "top_p", "logprobs", "top_logprobs", "frequency_penalty", "presence_penalty", "logit_bias",
)  # fmt: skip
SLOW: Final = ("-pro", "deep-research")
NO_SUMMARIES: Final = re.compile(r"reasoning[ .]summar", re.IGNORECASE)


class OpenAIAPI(CompatibleAPI):
    """A client of one model of OpenAI's.

    Args:
        responses_api: use the Responses API; default by the model: for the o-series, gpt-5 and later, codex, and
            unless several choices are asked for.
        responses_store: let OpenAI keep responses; otherwise reasoning goes back and forth encrypted.
        strict_tools: have tools' schemas enforced where they allow it.
        api_version: of Azure's API.
        model_args: ``service_tier``, ``prompt_cache_key``, ``prompt_cache_retention``, ``safety_identifier``,
            ``stream``.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        responses_api: bool | None = None,
        responses_store: bool | None = None,
        strict_tools: bool = False,
        api_version: str | None = None,
        **model_args: Any,
    ) -> None:
        service, _, deployment = model_name.partition("/")
        self.azure = service == "azure" and bool(deployment)
        if api_version is not None and not self.azure:
            raise UsageError(f"openai/{model_name}: api_version is Azure's (openai/azure/DEPLOYMENT)")
        super().__init__(
            model_name,
            base_url,
            api_key,
            config,
            row=OPENAI_ON_AZURE if self.azure else OPENAI,
            sent_name=deployment if self.azure else model_name,
            shown=f"openai/{model_name}",
            responses_api=responses_api,
            responses_store=responses_store,
            **model_args,
        )
        self.model = openai_model(self.sent_name, deployed=self.azure)
        self.responses_api = responses_api if responses_api is not None else self.model.responses
        self._responses_chosen = responses_api is not None
        self.strict_tools = strict_tools
        self.api_version = (
            api_version or environ("AZUREAI_OPENAI_API_VERSION") or environ("OPENAI_API_VERSION") or AZURE_VERSION
        )
        if (identifier := environ("OPENAI_SAFETY_IDENTIFIER")) and "safety_identifier" not in self.extras:
            self.extras["safety_identifier"] = identifier
        self._summaries = True  # until they are refused: only verified organizations get them

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> Result:
        """Make one attempt. Where summaries of reasoning are refused that nobody asked for, a second without them."""
        result, call = await super().generate(input, tools, tool_choice, config)
        unasked = config.reasoning_summary is None and self._summaries and "reasoning" in call.request
        if unasked and not isinstance(result, ModelOutput) and NO_SUMMARIES.search(str(result)):
            self._summaries = False
            return await super().generate(input, tools, tool_choice, config)
        return result, call

    def uses_responses(self, tools: list[ToolInfo], config: GenerateConfig) -> bool:
        """Whether a call goes to the Responses API: it gives one choice only, and alone draws images."""
        if config.modalities:
            return True
        return self.responses_api and (self._responses_chosen or config.num_choices is None)

    def streams(self, config: GenerateConfig) -> bool:
        """Whether a call is streamed: those of models that think for minutes are, or proxies take them for dead."""
        return super().streams(config) or (self.stream is None and any(word in self.sent_name for word in SLOW))

    def chat_path(self) -> str:
        """Where chat completions are: Azure has a place for each deployment."""
        return self._path(super().chat_path(), per_deployment=True)

    def responses_path(self) -> str:
        """Where responses are."""
        return self._path(super().responses_path(), per_deployment=False)

    def _path(self, path: str, *, per_deployment: bool) -> str:
        if not self.azure or urlsplit(self.base_url or "").path.rstrip("/").endswith("/v1"):
            return path
        place = f"/openai/deployments/{quote(self.sent_name, safe='')}" if per_deployment else "/openai"
        return f"{place}{path}?api-version={self.api_version}"

    def system_role(self) -> str:
        """Models that reason are told by the developer."""
        return "developer" if self.model.reasons else "system"

    def chat_row(self, config: GenerateConfig) -> Vendor:
        """The row without the fields that this model refuses."""
        refused: set[str] = set(NOT_WHEN_REASONING) if self.model.reasoning(config) else set()
        if self.model.always_reasons and self.model.reasons:
            refused.add("temperature")
        if not self.model.reasons:
            refused.add("reasoning_effort")
        fields = {name: wire for name, wire in self.row.fields.items() if name not in refused}
        return evolve(self.row, fields=fields, efforts={} if self.model.knows_max else {"max": "xhigh"})

    async def chat_body(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> dict[str, Any]:
        """The body of a request to chat completions."""
        body = await super().chat_body(input, tools, tool_choice, config)
        if self.model.o_series:
            body.pop("parallel_tool_calls", None)
        for tool in body.get("tools", ()) if self.strict_tools else ():
            if may_be_strict(tool["function"]["parameters"]):
                tool["function"]["strict"] = True
        return body

    def ask(self, config: GenerateConfig) -> Ask:
        """What the model takes of a request to the Responses API."""
        effort, summary = config.reasoning_effort, config.reasoning_summary
        if summary is None and self._summaries:
            summary = "auto"
        return Ask(
            reasoning=self.model.reasons,
            sampling=not self.model.reasoning(config),
            effort="xhigh" if effort == "max" and not self.model.knows_max else effort,
            summary=None if summary == "none" else summary,
            store=self.responses_store is True,
            parallel=not self.model.o_series,
            strict=self.strict_tools,
        )
