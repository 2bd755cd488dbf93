"""``google/<model>``: Gemini models over the Gemini API's generateContent and streamGenerateContent."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import msgspec

from proctor.errors import ModelError, ModelGivenUp, RateLimitError, TransientModelError, UsageError
from proctor.model.api import refuse_unknown
from proctor.model.config import GenerateConfig
from proctor.model.event_stream import ServerEvent
from proctor.model.exchange import showed
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall, ModelOutput, ModelUsage
from proctor.model.pacing.headers import seconds
from proctor.model.pacing.values import Dimension, QuotaReading
from proctor.model.providers.google_content import choice_to_wire, request_body, safety_settings
from proctor.model.providers.google_output import (
    MALFORMED,
    MALFORMED_WORDS,
    ResponseAssembly,
    output_from_wire,
)
from proctor.model.providers.service import ServiceAPI, StreamFailure, encode, json_of
from proctor.model.providers.unsent import unsent
from proctor.model.providers.vendors import vendor
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.runtime.runtime import new_id

logger: Final = logging.getLogger(__name__)

API_VERSION: Final = "v1"  # what the vendor's own package asks for
MAX_ATTEMPTS: Final = 3  # requests of one call whose answers are function calls that cannot be read
RETRY_INFO: Final = "google.rpc.RetryInfo"
QUOTA_FAILURE: Final = "google.rpc.QuotaFailure"
QUOTA_ID: Final = re.compile(r"(Requests|InputTokens|Tokens)Per(?:Model)?(?:Per)?Minute")
QUOTA_KINDS: Final[Mapping[str, Dimension]] = MappingProxyType(
    {"Requests": Dimension.REQUESTS, "InputTokens": Dimension.INPUT_TOKENS, "Tokens": Dimension.TOKENS}
)
NO_ACCESS: Final = "limit: 0"  # a quota of nothing: the account may not use the model


class ResponseReader:
    """Puts the chunks of a streamed response together. Its end is that of the stream itself."""

    missing = "the finish reason of an answer"

    def __init__(self) -> None:
        self._assembly = ResponseAssembly()

    def take(self, event: ServerEvent) -> bool:
        """Take the next chunk; False, as no chunk says that it is the last.

        Raises:
            StreamFailure: the chunk tells of an error. TransientModelError: it is no JSON.
        """
        try:
            data: Any = msgspec.json.decode(event.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            data = None
        if isinstance(data, dict) and "error" in data:
            raise StreamFailure(data)
        if not isinstance(data, dict):
            raise TransientModelError(f"a chunk of the stream is no JSON object: {event.data[:100]!r}")
        self._assembly.feed(data)
        return False

    def ended(self) -> bool:
        """Whether what came is a whole answer."""
        return self._assembly.finished

    def answer(self) -> dict[str, Any]:
        """The whole response."""
        return self._assembly.answer()


class GoogleAPI(ServiceAPI):
    """A client of one Gemini model.

    The key is the one given, else ``GOOGLE_API_KEY``, else ``GEMINI_API_KEY``; the base URL the one given, else
    ``GOOGLE_BASE_URL``.

    Args:
        api_version: the part of the URL before the model. streaming, stream: whether answers are streamed.
        safety_settings: what is blocked, thresholds by category; nothing by default.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        api_version: str | None = None,
        streaming: Any = None,
        stream: Any = None,
        safety_settings: Any = None,
        **model_args: Any,
    ) -> None:
        if model_name.startswith("vertex/"):
            raise UsageError(f"google/{model_name}: Vertex AI is not supported; use google/{model_name[7:]} with a key")
        super().__init__(
            model_name, base_url, api_key, config, row=vendor("google"), stream=streaming if stream is None else stream
        )
        refuse_unknown("google", model_args)
        self._safety = _safety(safety_settings)
        whole = model_name.startswith(("models/", "tunedModels/"))
        self._path = f"/{api_version or API_VERSION}/{model_name if whole else f'models/{model_name}'}"

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput | tuple[ModelOutput | Exception, ModelCall]:
        """Make one attempt. A function call that the model wrote in a wrong form is asked for again, with that told."""
        for text in self.left_out(unsent("google", self.shown, config)):
            logger.warning("%s", text)
        body = await request_body(self.sent_name, input, tools, tool_choice, config, self._safety)
        spent: ModelUsage | None = None
        attempt = 0
        while True:
            attempt += 1
            data, call = await self._request(body, config)
            if isinstance(data, ModelError):
                return data, call
            output = data if isinstance(data, ModelOutput) else self._output(data)
            output.usage = spent = _sum(spent, output.usage)
            words = _malformed(data) if isinstance(data, dict) else None
            if words is None or attempt == MAX_ATTEMPTS:
                return output, call
            body = _asked_again(body, words, tool_choice)

    def _output(self, data: dict[str, Any]) -> ModelOutput:
        return output_from_wire(data, model=self.sent_name, new_id=new_id)

    async def _request(
        self, body: dict[str, Any], config: GenerateConfig
    ) -> tuple[dict[str, Any] | ModelOutput | ModelError, ModelCall]:
        if self.streams(config):
            path = f"{self._path}:streamGenerateContent?alt=sse"
            return await self.exchange(path, body, config, reader=ResponseReader())
        return await self.exchange(f"{self._path}:generateContent", body, config)

    def failure(
        self, path: str, status: int, headers: Mapping[str, str], body: bytes, call: ModelCall
    ) -> ModelOutput | ModelError:
        """What a failure means; the time to wait is in the error's details."""
        data = json_of(body)
        if isinstance(data, list) and data:  # a stream's error is a list of one
            data = data[0]
            body = encode(data) if isinstance(data, dict) else body
        found = super().failure(path, status, headers, body, call)
        if isinstance(found, RateLimitError | TransientModelError):
            if isinstance(found, RateLimitError) and NO_ACCESS in str(found):
                return ModelGivenUp(f"{found}\nThe account may not use the model; it is given up.", status=status)
            found.retry_after = found.retry_after or _retry_delay(data)
            showed(quotas_shown(data, found.retry_after))
        return found


def _sum(a: ModelUsage | None, b: ModelUsage | None) -> ModelUsage | None:
    return a + b if a is not None and b is not None else a or b


def _safety(given: Any) -> list[dict[str, str]]:
    if isinstance(given, str):
        try:
            given = msgspec.json.decode(given)
        except msgspec.DecodeError as error:
            raise UsageError(f"google: safety_settings is no JSON: {error} (-M safety_settings=…)") from error
    return safety_settings(given)


def _details(data: Any, kind: str) -> list[dict[str, Any]]:
    """The details of one type that an error has."""
    error = data.get("error") if isinstance(data, dict) else None
    details = error.get("details") if isinstance(error, dict) else None
    found = [one for one in details if isinstance(one, dict)] if isinstance(details, list) else []
    return [one for one in found if str(one.get("@type", "")).endswith(kind)]


def _retry_delay(data: Any) -> float | None:
    """Seconds to wait that an error's details ask for."""
    return next((seconds(str(one.get("retryDelay"))) or None for one in _details(data, RETRY_INFO)), None)


def quotas_shown(data: Any, reset: float | None) -> list[QuotaReading]:
    """The quotas a minute that an error's details name as used up: Google has no headers that tell of them.

    Args:
        reset: seconds until there is some of it again.
    """
    readings = []
    for failure in _details(data, QUOTA_FAILURE):
        for violation in failure.get("violations") or ():
            named = QUOTA_ID.search(str(violation.get("quotaId") or ""))
            value = str(violation.get("quotaValue") or "")
            if named is not None and value.isdigit() and int(value) > 0:
                readings.append(QuotaReading(QUOTA_KINDS[named[1]], float(value), 0.0, reset))
    return readings


def _malformed(data: dict[str, Any]) -> str | None:
    """What the first answer says of a function call that could not be read; None if it is none."""
    candidates = data.get("candidates") or [{}]
    if candidates[0].get("finishReason") != MALFORMED:
        return None
    return candidates[0].get("finishMessage") or MALFORMED_WORDS


def _asked_again(body: dict[str, Any], words: str, tool_choice: ToolChoice) -> dict[str, Any]:
    said = {"role": "model", "parts": [{"text": f"I tried to call a function, but what I wrote was {words}"}]}
    asked = {"role": "user", "parts": [{"text": "Call it again, with its arguments as JSON and not as code."}]}
    again = {**body, "contents": [*body["contents"], said, asked]}
    if tool_choice == "auto" and body.get("tools"):
        again["toolConfig"] = choice_to_wire("any")
    return again
