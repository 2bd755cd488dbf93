"""What differs between vendors, in one table: where they are, what their requests are called, what their errors mean.

A provider's module has the protocol; what is a matter of data is here. A row is read by `vendor(name)`. What a
vendor's error means is decided by `Vendor.meaning`, the same way for all: its own codes and phrases, then those that
everybody uses, then the status.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from attrs import evolve, field, frozen

Dialect: TypeAlias = Literal["chat", "responses", "messages", "generate_content", "converse"]
Meaning: TypeAlias = Literal[
    "rate_limit",  # too fast: slower
    "overloaded",  # the vendor's capacity: slower
    "transient",  # a fault that may pass
    "give_up",  # the key, the account or the model: no call of it can succeed
    "context_length",  # the input is too long for the model: an answer with `model_length`
    "content_filter",  # refused for its content: an answer with `content_filter`
    "final",  # this request is wrong
]

MINUTE: Final = 60.0
DAY: Final = 86400.0


def _frozen_map(value: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(value))


CHAT_FIELDS: Final = _frozen_map(
    {
        "max_tokens": "max_tokens",
        "stop_seqs": "stop",
        "num_choices": "n",
        "frequency_penalty": "frequency_penalty",
        "presence_penalty": "presence_penalty",
        "logit_bias": "logit_bias",
        "seed": "seed",
        "temperature": "temperature",
        "top_p": "top_p",
        "logprobs": "logprobs",
        "top_logprobs": "top_logprobs",
        "reasoning_effort": "reasoning_effort",
        "verbosity": "verbosity",
    }
)
"""Fields of a configuration that are request fields of chat completions, under their names there."""
SELF_HOSTED_FIELDS: Final = _frozen_map(
    {**CHAT_FIELDS, "prompt_logprobs": "prompt_logprobs", "top_k": "top_k", "best_of": "best_of"}
)

LOW_TO_HIGH: Final[Mapping[str, str | None]] = MappingProxyType(
    {"none": None, "minimal": "low", "xhigh": "high", "max": "high"}
)
"""Efforts for vendors that know ``low``, ``medium`` and ``high`` only; None: left to the vendor."""

COMMON_CODES: Final[Mapping[str, Meaning]] = MappingProxyType(
    {
        "rate_limit_exceeded": "rate_limit",
        "rate_limit_error": "rate_limit",
        "overloaded_error": "overloaded",
        "overloaded": "overloaded",
        "insufficient_quota": "give_up",
        "model_not_found": "give_up",
        "invalid_model": "give_up",
        "unknown_model": "give_up",
        "invalid_api_key": "give_up",
        "context_length_exceeded": "context_length",
        "content_filter": "content_filter",
        "content_policy_violation": "content_filter",
        "invalid_prompt": "content_filter",
        "server_error": "transient",
        "internal_server_error": "transient",
        "service_unavailable": "transient",
        "timeout": "transient",
    }
)
TOO_LONG: Final = re.compile(
    r"maximum context length|context (window|length)|prompt is too long|too many tokens|input is too long|"
    r"input too large|exceed\w* .*context",
    re.IGNORECASE,
)
UNKNOWN_MODEL: Final = re.compile(
    r"\bmodel\b.*\b(not found|does ?n[o']t exist|not exist|unknown|no such|not supported)|"
    r"\b(unknown|invalid|no such|unsupported) model\b",
    re.IGNORECASE | re.DOTALL,
)
REFUSABLE: Final = frozenset({400, 413, 422})  # statuses of requests that are wrong in themselves
COMMON_STATUSES: Final[Mapping[int, Meaning]] = MappingProxyType(
    {401: "give_up", 403: "give_up", 408: "transient", 429: "rate_limit", 529: "overloaded"}
)


@frozen(kw_only=True)
class Vendor:
    """One vendor.

    Attributes:
        name: its provider is registered under it. title: what people call it.
        base_url: used where none is given, None where there is none. url_vars: environment variables that name it,
            the first that is set counts.
        key_vars: environment variables of the key. default_key: for servers that want none.
        key_header, key_prefix: how the key is sent.
        dialects: the protocols it speaks, the first by default.
        fields: configuration fields that its chat completions take, under their names there; others are left out.
        efforts: reasoning efforts that it knows under another name, None for one that is left out.
        extras: model arguments (-M) that are request fields of the vendor's own, and their types.
        max_tokens: of an answer when nobody says otherwise.
        refuses_tool_schema: fields of JSON schema that it refuses in a tool's parameters.
        broken_json_passes: an answer that is no JSON is a fault that may pass.
        stream_usage: whether usage of a stream is asked for with ``stream_options``.
        codes: what its error codes and types mean, where COMMON_CODES do not say it or say it wrong.
        statuses: the same of HTTP statuses. phrases: the same of words in an error's message.
        affinity: the header under which calls of one sample find the server that has their beginning in its cache.
        quota_windows: seconds that its quotas on ``requests`` and ``tokens`` are for, where its headers do not say.
        docs: where the facts come from.
    """

    name: str
    title: str
    base_url: str | None = None
    url_vars: tuple[str, ...] = ()
    key_vars: tuple[str, ...] = ()
    default_key: str | None = None
    key_header: str = "Authorization"
    key_prefix: str = "Bearer "
    dialects: tuple[Dialect, ...] = ("chat",)
    fields: Mapping[str, str] = CHAT_FIELDS
    efforts: Mapping[str, str | None] = field(factory=dict)
    extras: Mapping[str, type] = field(factory=dict)
    max_tokens: int | None = None
    refuses_tool_schema: frozenset[str] = frozenset()
    broken_json_passes: bool = False
    stream_usage: bool = True
    codes: Mapping[str, Meaning] = field(factory=dict)
    statuses: Mapping[int, Meaning] = field(factory=dict)
    phrases: tuple[tuple[re.Pattern[str], Meaning], ...] = ()
    affinity: str | None = None
    quota_windows: Mapping[str, float] = field(factory=dict)
    docs: str = ""

    def meaning(self, status: int, codes: str | Sequence[str], words: str) -> Meaning:
        """What a failure means.

        Args:
            status: of the response; 200 for an error within a stream.
            codes: of the error, and its types, the most telling first. words: its message.
        """
        found = self._by_words((codes,) if isinstance(codes, str) else codes, words)
        if found in {"context_length", "content_filter"} and status not in {200, *REFUSABLE}:
            found = None  # a status that says something else, or a proxy's
        if found is None and status in {200, *REFUSABLE} and TOO_LONG.search(words):
            found = "context_length"
        if found is None and status in {400, 404, 422} and UNKNOWN_MODEL.search(words):
            found = "give_up"
        return found or self._by_status(status)

    def _by_words(self, codes: Sequence[str], words: str) -> Meaning | None:
        for code in codes:
            if (known := self.codes.get(code)) is not None:
                return known
        for pattern, meaning in self.phrases:
            if pattern.search(words):
                return meaning
        return next((COMMON_CODES[code] for code in codes if code in COMMON_CODES), None)

    def _by_status(self, status: int) -> Meaning:
        known = self.statuses.get(status) or COMMON_STATUSES.get(status)
        if known is not None:
            return known
        # An error in an answer of 200 comes after the request was found right.
        return "transient" if status >= 500 or status < 300 else "final"


def _variables(name: str) -> tuple[str, ...]:
    prefix = name.upper().replace("-", "_")
    return (f"{prefix}_BASE_URL",)


AZURE_CODES: Final[Mapping[str, Meaning]] = MappingProxyType(
    {
        "DeploymentNotFound": "give_up",
        "ResponsibleAIPolicyViolation": "content_filter",
        "TooManyRequests": "rate_limit",
        "RateLimitReached": "rate_limit",
        "NoCapacity": "overloaded",
    }
)

OPENAI: Final = Vendor(
    name="openai",
    title="OpenAI",
    base_url="https://api.openai.com/v1",
    url_vars=("OPENAI_BASE_URL",),
    key_vars=("OPENAI_API_KEY",),
    dialects=("responses", "chat"),
    fields=_frozen_map({**CHAT_FIELDS, "max_tokens": "max_completion_tokens"}),
    extras={
        "service_tier": str,
        "prompt_cache_key": str,
        "prompt_cache_retention": str,
        "safety_identifier": str,
    },
    codes={
        "billing_hard_limit_reached": "give_up",
        "account_deactivated": "give_up",
        "string_above_max_length": "context_length",
        "vector_store_timeout": "transient",
        "bio_policy": "content_filter",
        "cyber_policy": "content_filter",
        "image_content_policy_violation": "content_filter",
    },
    docs="https://platform.openai.com/docs/guides/error-codes, /docs/guides/rate-limits",
)

OPENAI_ON_AZURE: Final = evolve(
    OPENAI,
    title="OpenAI on Azure",
    base_url=None,
    url_vars=("AZUREAI_OPENAI_BASE_URL", "AZURE_OPENAI_BASE_URL", "AZURE_OPENAI_ENDPOINT"),
    key_vars=("AZUREAI_OPENAI_API_KEY", "AZURE_OPENAI_API_KEY"),
    key_header="api-key",
    key_prefix="",
    codes={**OPENAI.codes, **AZURE_CODES},
    statuses={424: "transient"},
)

TABLE: Final[Mapping[str, Vendor]] = MappingProxyType(
    {
        row.name: row
        for row in (
            OPENAI,
            Vendor(
                name="openai-api",
                title="an OpenAI-compatible server",
                url_vars=("OPENAI_BASE_URL",),
                key_vars=("OPENAI_API_KEY",),
                dialects=("chat", "responses"),
                fields=_frozen_map({**CHAT_FIELDS, "prompt_logprobs": "prompt_logprobs"}),
            ),
            Vendor(
                name="azureai",
                title="Azure AI",
                url_vars=("AZUREAI_BASE_URL", "AZUREAI_ENDPOINT_URL", "AZURE_ENDPOINT_URL"),
                key_vars=("AZUREAI_API_KEY", "AZURE_API_KEY"),
                key_header="api-key",
                key_prefix="",
                codes=AZURE_CODES,
                statuses={424: "transient"},  # a failed dependency: the deployment behind it
                docs="https://learn.microsoft.com/azure/ai-foundry/openai/how-to/quota",
            ),
            Vendor(
                name="mistral",
                title="Mistral",
                base_url="https://api.mistral.ai/v1",
                url_vars=("MISTRAL_BASE_URL",),
                key_vars=("MISTRAL_API_KEY",),
                fields=_frozen_map(
                    {
                        "max_tokens": "max_tokens",
                        "stop_seqs": "stop",
                        "num_choices": "n",
                        "frequency_penalty": "frequency_penalty",
                        "presence_penalty": "presence_penalty",
                        "seed": "random_seed",
                        "temperature": "temperature",
                        "top_p": "top_p",
                        "reasoning_effort": "reasoning_effort",
                    }
                ),
                efforts={"minimal": "low", "xhigh": "high", "max": "high"},
                refuses_tool_schema=frozenset({"additionalProperties"}),
                stream_usage=False,
                extras={"safe_prompt": bool, "prompt_mode": str},
                codes={
                    "3505": "overloaded",  # service tier capacity exceeded
                    "service_tier_capacity_exceeded": "overloaded",
                    "rate_limited": "rate_limit",
                    "invalid_model": "give_up",
                },
                phrases=((re.compile(r"input too large|maximum context length", re.IGNORECASE), "context_length"),),
                docs="https://docs.mistral.ai/api",
            ),
            Vendor(
                name="grok",
                title="xAI",
                base_url="https://api.x.ai/v1",
                url_vars=("XAI_BASE_URL", "GROK_BASE_URL"),
                key_vars=("XAI_API_KEY", "GROK_API_KEY"),
                dialects=("responses", "chat"),
                efforts={"none": None, "minimal": "low", "xhigh": "high", "max": "high"},
                codes={"The caller does not have permission to execute the specified operation": "give_up"},
                phrases=(
                    (re.compile(r"SAFETY_CHECK|usage guidelines", re.IGNORECASE), "content_filter"),
                    (re.compile(r"maximum prompt length", re.IGNORECASE), "context_length"),
                    (re.compile(r"incorrect api key|no credits|run out of credits", re.IGNORECASE), "give_up"),
                ),
                affinity="x-grok-conv-id",
                docs="https://docs.x.ai/docs/api-reference",
            ),
            Vendor(
                name="together",
                title="Together",
                base_url="https://api.together.xyz/v1",
                url_vars=_variables("together"),
                key_vars=("TOGETHER_API_KEY",),
                fields=_frozen_map({**CHAT_FIELDS, "top_k": "top_k"}),
                efforts={"none": None, "minimal": "low"},
                max_tokens=2048,  # theirs is 512, which cuts most answers
                phrases=((re.compile(r"max_new_tokens", re.IGNORECASE), "context_length"),),
                docs="https://docs.together.ai/reference/chat-completions-1",
            ),
            Vendor(
                name="groq",
                title="Groq",
                base_url="https://api.groq.com/openai/v1",
                url_vars=_variables("groq"),
                key_vars=("GROQ_API_KEY",),
                fields=_frozen_map({**CHAT_FIELDS, "max_tokens": "max_completion_tokens"}),
                efforts=LOW_TO_HIGH,
                extras={"service_tier": str, "reasoning_format": str},
                codes={
                    "over_capacity": "overloaded",
                    "model_decommissioned": "give_up",
                    "tool_use_failed": "transient",  # its model wrote a call that its parser did not take
                },
                statuses={498: "overloaded", 413: "final"},  # 498: flex tier capacity exceeded
                # Its headers give requests a day and tokens a minute.
                quota_windows={"requests": DAY, "tokens": MINUTE},
                docs="https://console.groq.com/docs/errors, /docs/rate-limits",
            ),
            Vendor(
                name="openrouter",
                title="OpenRouter",
                base_url="https://openrouter.ai/api/v1",
                url_vars=_variables("openrouter"),
                key_vars=("OPENROUTER_API_KEY",),
                fields=_frozen_map({**CHAT_FIELDS, "top_k": "top_k"}),
                efforts={"max": "xhigh"},
                extras={"models": list, "provider": dict, "transforms": list, "reasoning_enabled": bool},
                statuses={402: "give_up"},  # no credits left
                broken_json_passes=True,
                affinity="x-session-id",
                docs="https://openrouter.ai/docs/api-reference/errors",
            ),
            Vendor(
                name="fireworks",
                title="Fireworks",
                base_url="https://api.fireworks.ai/inference/v1",
                url_vars=_variables("fireworks"),
                key_vars=("FIREWORKS_API_KEY",),
                fields=_frozen_map({**CHAT_FIELDS, "top_k": "top_k"}),
                efforts={"minimal": "low"},
                affinity="x-session-affinity",
                docs="https://docs.fireworks.ai/api-reference/post-chatcompletions",
            ),
            Vendor(
                name="deepseek",
                title="DeepSeek",
                base_url="https://api.deepseek.com",
                url_vars=_variables("deepseek"),
                key_vars=("DEEPSEEK_API_KEY",),
                efforts={"minimal": "low", "medium": "high", "xhigh": "max"},
                statuses={402: "give_up"},  # no balance left
                docs="https://api-docs.deepseek.com/quick_start/error_codes, /guides/thinking_mode",
            ),
            Vendor(
                name="vllm",
                title="vLLM",
                url_vars=_variables("vllm"),
                key_vars=("VLLM_API_KEY",),
                default_key="none",
                dialects=("chat", "responses"),
                fields=SELF_HOSTED_FIELDS,
                docs="https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
            ),
            Vendor(
                name="ollama",
                title="Ollama",
                base_url="http://localhost:11434/v1",
                url_vars=_variables("ollama"),
                key_vars=("OLLAMA_API_KEY",),
                default_key="ollama",
                efforts=LOW_TO_HIGH,
                docs="https://docs.ollama.com/api/openai-compatibility",
            ),
            Vendor(
                name="anthropic",
                title="Anthropic",
                base_url="https://api.anthropic.com",
                url_vars=("ANTHROPIC_BASE_URL",),
                key_vars=("ANTHROPIC_API_KEY",),
                dialects=("messages",),
                broken_json_passes=True,
                codes={
                    "authentication_error": "give_up",
                    "permission_error": "give_up",
                    "billing_error": "give_up",
                    "not_found_error": "give_up",
                    "request_too_large": "context_length",
                    "api_error": "transient",
                    "timeout_error": "transient",
                },
                phrases=(
                    (re.compile(r"content filtering", re.IGNORECASE), "content_filter"),
                    (re.compile(r"exceeds? context limit", re.IGNORECASE), "context_length"),
                    (re.compile(r"credit balance is too low", re.IGNORECASE), "give_up"),
                    # A long request that was cut on its way is refused as if it had been written so.
                    (re.compile(r"not valid json.*unexpected end of data", re.IGNORECASE | re.DOTALL), "transient"),
                ),
                docs="https://platform.claude.com/docs/en/api/errors, /docs/en/api/rate-limits",
            ),
            Vendor(
                name="google",
                title="Google",
                base_url="https://generativelanguage.googleapis.com",
                url_vars=("GOOGLE_BASE_URL", "GOOGLE_GEMINI_BASE_URL"),
                key_vars=("GOOGLE_API_KEY", "GEMINI_API_KEY"),
                key_header="x-goog-api-key",
                key_prefix="",
                dialects=("generate_content",),
                broken_json_passes=True,
                codes={
                    "RESOURCE_EXHAUSTED": "rate_limit",  # with status 503 too
                    "UNAUTHENTICATED": "give_up",
                    "PERMISSION_DENIED": "give_up",
                    "NOT_FOUND": "give_up",
                    "UNAVAILABLE": "transient",
                    "INTERNAL": "transient",
                    "DEADLINE_EXCEEDED": "transient",
                },
                phrases=(
                    (re.compile(r"api[ _]key (not valid|invalid|expired|not found)", re.IGNORECASE), "give_up"),
                    (re.compile(r"maximum number of tokens|size exceeds the limit", re.IGNORECASE), "context_length"),
                ),
                docs="https://ai.google.dev/gemini-api/docs/troubleshooting, https://ai.google.dev/api/generate-content",
            ),
            Vendor(
                name="bedrock",
                title="Amazon Bedrock",
                url_vars=("BEDROCK_BASE_URL", "AWS_ENDPOINT_URL_BEDROCK_RUNTIME"),
                key_vars=("AWS_BEARER_TOKEN_BEDROCK",),
                dialects=("converse",),
                broken_json_passes=True,
                codes={
                    "ThrottlingException": "rate_limit",
                    "Throttling": "rate_limit",
                    "RequestLimitExceeded": "rate_limit",
                    "RequestThrottled": "rate_limit",
                    "TooManyRequestsException": "rate_limit",
                    "ProvisionedThroughputExceededException": "rate_limit",
                    "ServiceQuotaExceededException": "rate_limit",
                    "ModelNotReadyException": "transient",  # 429: the model is being started
                    "ModelTimeoutException": "transient",
                    "ModelStreamErrorException": "transient",
                    "ServiceUnavailableException": "transient",
                    "ServiceUnavailable": "transient",
                    "InternalServerException": "transient",
                    "RequestTimeout": "transient",
                    "TransactionInProgressException": "transient",
                    "AccessDeniedException": "give_up",
                    "UnrecognizedClientException": "give_up",
                    "InvalidSignatureException": "give_up",
                    "ExpiredTokenException": "give_up",
                    "ResourceNotFoundException": "give_up",
                },
                phrases=(
                    (re.compile(r"model identifier is invalid|on-demand throughput", re.IGNORECASE), "give_up"),
                    (re.compile(r"too many input tokens|is too long", re.IGNORECASE), "context_length"),
                ),
                docs="https://docs.aws.amazon.com/bedrock/latest/APIReference/API_runtime_Converse.html",
            ),
        )
    }
)


def vendor(name: str) -> Vendor:
    """The row of a vendor.

    Raises:
        KeyError: the table has none.
    """
    return TABLE[name]


def compatible(service: str) -> Vendor:
    """The row for ``openai-api/<service>``: key and base URL under the service's name, then under OpenAI's."""
    prefix = service.upper().replace("-", "_")
    row = TABLE["openai-api"]
    return evolve(
        row,
        key_vars=(f"{prefix}_API_KEY", *row.key_vars),
        url_vars=(f"{prefix}_BASE_URL", *row.url_vars),
    )
