"""``bedrock/<model>``: models on Amazon Bedrock, over Converse and ConverseStream."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, cast
from urllib.parse import quote

import anyio
import anyio.to_thread
import msgspec
from attrs import evolve

from proctor.errors import ModelError, TransientModelError, UsageError
from proctor.model.api import account, refuse_unknown
from proctor.model.config import GenerateConfig
from proctor.model.event_stream import ServerEvent, cut_off
from proctor.model.http import HttpStream
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall, ModelOutput
from proctor.model.providers.bedrock_content import ignored, max_tokens, request_body
from proctor.model.providers.bedrock_output import ConverseAssembly, output_from_wire
from proctor.model.providers.bedrock_signing import (
    EVENT_STREAM,
    Account,
    Signer,
    endpoint,
    event_buffer,
    event_stream_error,
    find_signer,
    require_botocore,
)
from proctor.model.providers.service import ServiceAPI, StreamFailure, StreamReader, encode, json_of
from proctor.model.providers.unsent import unsent
from proctor.model.providers.vendors import vendor
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.runtime import current_runtime
from proctor.runtime.settings import environ

logger: Final = logging.getLogger(__name__)

PROVISIONAL: Final = "us-east-1"  # until the profile has been read, where only that names a region
NO_KEY: Final = "-"
STREAM_STATUSES: Final[Mapping[str, int]] = MappingProxyType(
    {
        "ValidationException": 400,
        "ThrottlingException": 429,
        "ModelStreamErrorException": 424,
        "ModelTimeoutException": 408,
        "ServiceUnavailableException": 503,
    }
)
"""The HTTP status that an exception within a stream would have had; 500 for others."""
SECRET_VARIABLES: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")


class ConverseReader:
    """Puts the messages of an event stream together."""

    missing = "the metadata event"

    def __init__(self) -> None:
        self._buffer = event_buffer()
        self._assembly = ConverseAssembly()

    def feed(self, chunk: bytes) -> bool:
        """Take bytes; whether the answer is whole.

        Raises:
            StreamFailure: a message tells of an error. TransientModelError: the bytes are no event stream.
        """
        self._buffer.add_data(chunk)
        try:
            for message in self._buffer:
                self._take(message.headers, message.payload)
        except event_stream_error() as error:
            raise TransientModelError(f"the event stream is damaged: {error}") from error
        return self._assembly.complete

    def _take(self, headers: Mapping[str, Any], payload: bytes) -> None:
        kind = headers.get(":message-type")
        data: Any = json_of(payload) if payload else {}
        if kind == "event":
            if not isinstance(data, dict):
                raise TransientModelError(f"an event of the stream is no JSON object: {payload[:100]!r}")
            self._assembly.feed(str(headers.get(":event-type") or ""), data)
        elif kind in {"exception", "error"}:
            code = str(headers.get(":exception-type") or headers.get(":error-code") or "")
            words = data.get("message") if isinstance(data, dict) else None
            code = f"{code[:1].upper()}{code[1:]}"
            failure = StreamFailure({"code": code, "message": words or headers.get(":error-message") or code})
            failure.status = STREAM_STATUSES.get(code, 500)
            raise failure

    def take(self, event: ServerEvent) -> bool:
        """No server-sent events come from Bedrock."""
        raise NotImplementedError

    def ended(self) -> bool:
        """False: an answer that is whole has its metadata."""
        return False

    def answer(self) -> dict[str, Any]:
        """The whole response."""
        return self._assembly.answer()


class BedrockAPI(ServiceAPI):
    """A client of one model on Amazon Bedrock.

    Credentials and region come from the usual AWS variables, files and services, as botocore looks for them; a key of
    Bedrock's own (``AWS_BEARER_TOKEN_BEDROCK``) needs no others. The base URL is the one given, else
    ``BEDROCK_BASE_URL``, else that of the region.

    Args:
        streaming, stream: whether answers are streamed.
        region_name, profile_name, aws_access_key_id, aws_secret_access_key, aws_session_token: in place of what is
            found.
    """

    reserves_max_tokens = True

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        streaming: Any = None,
        stream: Any = None,
        region_name: str | None = None,
        profile_name: str | None = None,
        aws_access_key_id: str | None = None,
        aws_secret_access_key: str | None = None,
        aws_session_token: str | None = None,
        **model_args: Any,
    ) -> None:
        shown = f"bedrock/{model_name}"
        require_botocore(shown)
        region = region_name or environ("AWS_REGION") or environ("AWS_DEFAULT_REGION")
        row = evolve(vendor("bedrock"), base_url=endpoint(region or PROVISIONAL), default_key=NO_KEY)
        super().__init__(model_name, base_url, api_key, config, row=row, stream=streaming if stream is None else stream)
        refuse_unknown("bedrock", model_args)
        if (aws_access_key_id is None) != (aws_secret_access_key is None):
            raise UsageError(f"{shown}: aws_access_key_id and aws_secret_access_key go together (-M)")
        if self.api_key == NO_KEY:
            self.api_key = None
        self._found_url = self.base_url != row.base_url or region is not None
        self._account = Account(
            shown=shown,
            profile=profile_name,
            region=region,
            access_key=aws_access_key_id,
            secret_key=aws_secret_access_key,
            session_token=aws_session_token,
        )
        self._signer: Signer | None = None
        self._finding: anyio.Lock | None = None

    def max_tokens(self) -> int | None:
        """What the older models may answer."""
        return max_tokens(self.sent_name)

    def connection_key(self) -> str:
        """The account is the key's, or the profile's."""
        given = self.api_key or self._account.access_key or environ("AWS_ACCESS_KEY_ID")
        who = account(given) if given else self._account.profile or environ("AWS_PROFILE") or ""
        return f"{self.base_url}|{who}|{self.model_name}"

    def headers(self) -> dict[str, str]:
        """The bearer token, where there is one; else each request is signed."""
        return {} if self.api_key is None else {"Authorization": f"Bearer {self.api_key}"}

    def secrets(self) -> tuple[str, ...]:
        """The bearer token, the secret key and the session token."""
        given = (self.api_key, self._account.secret_key, self._account.session_token, *map(environ, SECRET_VARIABLES))
        return tuple(secret for secret in given if secret)

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput | tuple[ModelOutput | Exception, ModelCall]:
        """Make one attempt."""
        told = [*ignored(self.sent_name, tools, tool_choice, config), *unsent("bedrock", self.shown, config)]
        for text in self.left_out(told):
            logger.warning("%s", text)
        body = await request_body(self.sent_name, input, tools, tool_choice, config)
        streamed = self.streams(config)
        path = f"/model/{quote(self.sent_name, safe='')}/converse{'-stream' if streamed else ''}"
        headers = await self._signed(path, body)
        if streamed:
            headers["Accept"] = EVENT_STREAM
        sent = evolve(config, extra_headers={**headers, **(config.extra_headers or {})})
        data, call = await self.exchange(path, body, sent, reader=ConverseReader() if streamed else None)
        if not isinstance(data, dict):
            return data, call
        return output_from_wire(data, tools, model=self.sent_name), call

    async def _signed(self, path: str, body: dict[str, Any]) -> dict[str, str]:
        """Headers that sign a request, once credentials and region are known."""
        signer = self._signer or await self._find()
        if self.api_key is not None:
            return {}
        if signer.blocks():
            error = await _in_thread(signer.refresh)
            if isinstance(error, Exception):
                raise TransientModelError(
                    f"{self.shown}: the AWS credentials could not be refreshed: {error}"
                ) from error
        return signer.headers(f"{(self.base_url or '').rstrip('/')}{path}", encode(body))

    async def _find(self) -> Signer:
        if self._finding is None:
            self._finding = anyio.Lock()
        async with self._finding:
            if self._signer is None:
                if self.api_key is not None and self._found_url:
                    found: Signer | Exception = Signer("")  # nothing is signed, and where to is known
                else:
                    found = await _in_thread(find_signer, self._account, self.api_key is None)
                if isinstance(found, Exception):
                    raise found
                if not self._found_url:
                    self.base_url = endpoint(found.region)
                self._signer = found
        return self._signer

    async def _streamed(
        self, path: str, response: HttpStream, reader: StreamReader, call: ModelCall
    ) -> dict[str, Any] | ModelOutput | ModelError:
        if not 200 <= response.status < 300 or "json" in response.headers.get("content-type", ""):
            return self._whole(path, response.status, response.headers, await response.read(), call)
        assert isinstance(reader, ConverseReader)
        try:
            async for chunk in response:
                if reader.feed(chunk):
                    break
            else:
                raise cut_off(self.shown, reader.missing)
        except StreamFailure as failure:
            return self.failure(path, failure.status, response.headers, failure.body, call)
        await response.finish()
        call.response = reader.answer()
        return call.response

    def failure(
        self, path: str, status: int, headers: Mapping[str, str], body: bytes, call: ModelCall
    ) -> ModelOutput | ModelError:
        """What a failure means; its code is in a header."""
        data = json_of(body)
        if isinstance(data, dict) and "error" not in data:
            said = headers.get("x-amzn-errortype") or data.get("__type") or data.get("code") or ""
            code = str(said).partition(":")[0].rpartition("#")[2]
            words = data.get("message") or data.get("Message") or code
            body = msgspec.json.encode({"error": {"code": code, "message": words}})
        return super().failure(path, status, headers, body, call)


async def _in_thread(function: Any, *args: Any) -> Any:
    runtime = current_runtime()
    run = anyio.to_thread.run_sync if runtime is None else runtime.to_thread
    return await cast("Any", run)(function, *args)
