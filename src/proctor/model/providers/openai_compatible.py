"""``openai-api/<service>/<model>``: any server that speaks OpenAI's chat completions."""

from __future__ import annotations

from typing import Any, Final
from urllib.parse import urlsplit

import anyio

from proctor.errors import ModelError, UsageError
from proctor.model.api import ModelAPI, refuse_unknown
from proctor.model.config import GenerateConfig
from proctor.model.failures import error_words, status_error
from proctor.model.http import HttpClient, open_client, public_url
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall, ModelOutput
from proctor.model.providers.openai_chat import decode, encode, output_from_wire, refused_output, request_body
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.runtime.settings import environ

PATH: Final = "/chat/completions"
LONG_DATA: Final = 256  # characters of a data URL that a log keeps whole


class OpenAICompatibleAPI(ModelAPI):
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
        prefix = service.upper().replace("-", "_")
        key_names = [f"{prefix}_API_KEY", "OPENAI_API_KEY"]
        super().__init__(model_name, base_url, api_key, key_names, config)
        self.service, self.service_model = service, model
        url_names = (f"{prefix}_BASE_URL", "OPENAI_BASE_URL")
        self.base_url = self.base_url or next((url for name in url_names if (url := environ(name))), None)
        if not self.base_url:
            raise UsageError(
                f"openai-api/{model_name}: no base URL. Set {' or '.join(url_names)}, or pass --model-base-url "
                "(base_url=…)"
            )
        parts = urlsplit(self.base_url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise UsageError(f"base URL {self.base_url!r}: it must start with http:// or https:// and name a host")
        if not self.api_key:
            raise UsageError(
                f"openai-api/{model_name}: no API key. Set {' or '.join(key_names)}, or pass -M api_key=… "
                "(api_key=…); a server that wants none takes any text"
            )
        refuse_unknown("openai-api", model_args)
        self._max_tokens_name = "max_completion_tokens" if parts.hostname == "api.openai.com" else "max_tokens"
        self._client: HttpClient | None = None

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput | tuple[ModelOutput | Exception, ModelCall]:
        """Make one attempt."""
        body = await request_body(
            self.service_model, input, tools, tool_choice, config, max_tokens_name=self._max_tokens_name
        )
        began = anyio.current_time()
        response = await self._http().post(PATH, encode(body), headers=config.extra_headers)
        call = ModelCall(request=without_media(body), time=anyio.current_time() - began)
        url = self._shown_url
        if not 200 <= response.status < 300:
            words, code = error_words(response.body)
            call.error, call.response = True, {"status": response.status, "message": words}
            if response.status in {400, 413, 422} and (output := refused_output(self.service_model, words, code)):
                return output, call
            return self._error(response.status, response.headers, response.body), call
        data = decode(response.body, url=url)
        call.response = data
        if "choices" not in data and "error" in data:  # some gateways answer 200 and tell the failure in the body
            call.error = True
            return self._error(_status_in(data["error"]), response.headers, response.body), call
        return output_from_wire(data, tools, model=self.service_model), call

    async def aclose(self) -> None:
        """Close the connections."""
        if self._client is not None:
            await self._client.aclose()

    @property
    def _shown_url(self) -> str:
        return public_url(self.base_url or "") + PATH

    def _error(self, status: int, headers: Any, body: bytes) -> ModelError:
        return status_error(
            status, headers, body, model=self.service_model, url=self._shown_url, secrets=self.secrets()
        )

    def _http(self) -> HttpClient:
        if self._client is None:
            assert self.base_url is not None
            self._client = open_client(
                self.base_url, headers={"Authorization": f"Bearer {self.api_key}"}, secrets=self.secrets()
            )
        return self._client


def _status_in(error: Any) -> int:
    """The HTTP status that an error in a body names; 500 where it names none."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 500


def without_media(value: Any) -> Any:
    """A request as the log keeps it: long data URLs are replaced by their first characters."""
    if isinstance(value, str):
        return f"{value[:40]}… ({len(value)} characters)" if _is_media(value) else value
    if isinstance(value, dict):
        return {
            name: "…" if name == "data" and isinstance(item, str) and len(item) > LONG_DATA else without_media(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [without_media(item) for item in value]
    return value


def _is_media(text: str) -> bool:
    return len(text) > LONG_DATA and text.startswith("data:")
