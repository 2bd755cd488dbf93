"""What all providers that speak JSON over HTTP share: key and base URL, one exchange, and what a failure is.

A provider's module makes the body of a request and reads the answer; between the two stands `ServiceAPI.exchange`,
which sends it, streaming or not, keeps both for the log and turns a failure into an output or an error by the vendor's
row of the table.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol
from urllib.parse import urlsplit

import anyio
import msgspec
from attrs import evolve

from proctor.errors import MissingKeyError, ModelError, ModelGivenUp, RateLimitError, TransientModelError, UsageError
from proctor.model.api import ModelAPI
from proctor.model.config import GenerateConfig
from proctor.model.event_stream import ServerEvent, cut_off, iterate_events
from proctor.model.failures import error_codes, error_words, redact, retry_after
from proctor.model.http import HttpClient, HttpStream, open_client, public_url
from proctor.model.output import ModelCall, ModelOutput, StopReason
from proctor.model.pacing.values import QuotaReading
from proctor.model.providers.vendors import Meaning, Vendor
from proctor.runtime import current_sample
from proctor.runtime.settings import environ

LONG_DATA: Final = 256  # characters of a data URL or of base64 that a log keeps whole
V1_PATHS: Final = ("/chat/completions", "/responses")  # of the dialects whose base URLs usually end in /v1
MEDIA_KEYS: Final = frozenset({"data", "file_data", "bytes"})


class StreamReader(Protocol):
    """Puts the events of a stream together to what the answer would have been without streaming."""

    missing: str
    """The event that ends an answer, as it is called in errors."""

    def take(self, event: ServerEvent) -> bool:
        """Take the next event; whether it was the last one.

        Raises:
            StreamFailure: the event tells of an error.
        """
        ...

    def ended(self) -> bool:
        """Whether a stream that has ended without its last event is whole all the same."""
        ...

    def answer(self) -> dict[str, Any]:
        """The whole answer, once the last event was taken."""
        ...


class StreamFailure(Exception):
    """An error that came as an event of a stream.

    Attributes:
        body: the error as JSON, in one of the shapes of an error response. status: that it names, else 200.
    """

    def __init__(self, error: Any) -> None:
        super().__init__("an error within a stream")
        self.body = encode(error if isinstance(error, dict) and "error" in error else {"error": error})
        self.status = status_in(error.get("error", error) if isinstance(error, dict) else error)


class ServiceAPI(ModelAPI):
    """A client of one model of a vendor, over HTTP. Subclasses write `generate` around `exchange`.

    Args:
        row: the vendor's row of the table. sent_name: the vendor's name for the model.
        stream: whether answers are streamed; None or ``auto``: where `GenerateConfig.stream_idle_timeout` is set.
        shown: the model's name in errors, with its provider.
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
        stream: Any = None,
        shown: str | None = None,
    ) -> None:
        super().__init__(model_name, base_url, api_key, row.key_vars, config)
        self.row = row
        self.sent_name = sent_name or model_name
        self.shown = shown or f"{row.name}/{model_name}"
        self.stream = _stream_option(self.shown, stream)
        self.base_url = checked_url(self.shown, self.base_url or _first_set(row.url_vars) or row.base_url, row.url_vars)
        self.api_key = self.api_key or row.default_key
        if not self.api_key:
            raise MissingKeyError(missing_key(self.shown, row.key_vars))
        self._client: HttpClient | None = None
        self._left_out: set[str] = set()

    def max_tokens(self) -> int | None:
        """The vendor's default is replaced where it is too small."""
        return self.row.max_tokens

    def quota_readings(self, headers: Mapping[str, str]) -> Sequence[QuotaReading]:
        """What the headers of a response say of quotas; their windows are the vendor's where the table knows them."""
        windows = self.row.quota_windows
        found = super().quota_readings(headers)
        return [evolve(each, window=windows.get(each.dimension.value, each.window)) for each in found]

    async def aclose(self) -> None:
        """Close the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def headers(self) -> dict[str, str]:
        """Headers of every request, the key among them."""
        return {self.row.key_header: f"{self.row.key_prefix}{self.api_key}"}

    def streams(self, config: GenerateConfig) -> bool:
        """Whether a call is streamed."""
        return self.stream if self.stream is not None else config.stream_idle_timeout is not None

    def url_of(self, path: str) -> str:
        """Where a path is, as it may be shown."""
        return public_url((self.base_url or "") + path)

    async def exchange(
        self, path: str, body: dict[str, Any], config: GenerateConfig, *, reader: StreamReader | None = None
    ) -> tuple[dict[str, Any] | ModelOutput | ModelError, ModelCall]:
        """Send a request once and take the answer.

        Args:
            path: after the base URL. body: of the request, with what asks for a stream where `reader` is given.
            config: its extra headers and idle timeout are used. reader: puts the events of a stream together.

        Returns:
            The answer, or the output or error that a failure means; and the call for the log.

        Raises:
            TransientModelError: the connection broke, or the stream ended early.
        """
        began = anyio.current_time()
        call = ModelCall(request=without_media(body))
        sent, headers = encode(body), {**self._affinity(), **(config.extra_headers or {})}
        result: dict[str, Any] | ModelOutput | ModelError
        if reader is None:
            response = await self._http().post(path, sent, headers=headers)
            call.time = anyio.current_time() - began
            result = self._whole(path, response.status, response.headers, response.body, call)
            return result, call
        async with self._http().stream(path, sent, headers=headers, idle=config.stream_idle_timeout) as stream:
            try:
                result = await self._streamed(path, stream, reader, call)
            finally:
                call.time = anyio.current_time() - began
        return result, call

    def _affinity(self) -> dict[str, str]:
        """What binds the calls of a sample to one of the vendor's servers, where it has such a header."""
        sample = current_sample() if self.row.affinity is not None else None
        if self.row.affinity is None or sample is None or sample.sample_id is None:
            return {}
        place = f"{sample.group} {sample.sample_id} {sample.epoch}"
        return {self.row.affinity: hashlib.blake2b(place.encode(), digest_size=16).hexdigest()}

    def _whole(
        self, path: str, status: int, headers: Mapping[str, str], body: bytes, call: ModelCall
    ) -> dict[str, Any] | ModelOutput | ModelError:
        if not 200 <= status < 300:
            return self.failure(path, status, headers, body, call)
        data = self.decode(body, path)
        call.response = data
        error = data.get("error")
        if isinstance(error, dict | str) and error and not (data.get("choices") or data.get("output")):
            return self.failure(path, status_in(error), headers, body, call)  # answered with 200 all the same
        return data

    async def _streamed(
        self, path: str, response: HttpStream, reader: StreamReader, call: ModelCall
    ) -> dict[str, Any] | ModelOutput | ModelError:
        kind = response.headers.get("content-type", "")
        if not 200 <= response.status < 300 or "json" in kind:
            return self._whole(path, response.status, response.headers, await response.read(), call)
        try:
            async for event in iterate_events(response):
                if reader.take(event):
                    break
            else:
                if not reader.ended():
                    raise cut_off(self.shown, reader.missing)
        except StreamFailure as failure:
            return self.failure(path, failure.status, response.headers, failure.body, call)
        await response.finish()
        call.response = reader.answer()
        return call.response

    def decode(self, body: bytes, path: str) -> dict[str, Any]:
        """The JSON object of an answer.

        Raises:
            ModelError: it is none.
        """
        data = json_of(body)
        if isinstance(data, dict):
            return data
        words = redact(body[:100].decode("utf-8", "replace"), self.secrets())
        said = f"the answer of {self.url_of(path)} is no JSON object but {words!r}."
        if self.row.broken_json_passes:
            raise TransientModelError(said)
        raise ModelError(f"{said} Is the base URL right?")

    def failure(
        self, path: str, status: int, headers: Mapping[str, str], body: bytes, call: ModelCall
    ) -> ModelOutput | ModelError:
        """What a failure means: an output where it says something of the sample, else an error of its kind."""
        words, _ = error_words(body)
        words = redact(words, self.secrets())
        call.error, call.response = True, {"status": status, "message": words}
        meaning = self.row.meaning(status, error_codes(body), words)
        if meaning in {"context_length", "content_filter"}:
            reason: StopReason = "model_length" if meaning == "context_length" else "content_filter"
            return ModelOutput.from_content(self.sent_name, words, stop_reason=reason, error=words)
        return failure_error(
            meaning, status, headers, words, model=self.sent_name, url=self.url_of(path), bearer=self.row.title
        )

    def left_out(self, names: Sequence[str]) -> list[str]:
        """Those of `names` that have not been told of yet: options that this model has no field for."""
        new = [name for name in names if name not in self._left_out]
        self._left_out.update(new)
        return new

    def _http(self) -> HttpClient:
        if self._client is None:
            assert self.base_url is not None
            self._client = open_client(self.base_url, headers=self.headers(), secrets=self.secrets())
        return self._client


def failure_error(
    meaning: Meaning, status: int, headers: Mapping[str, str], words: str, *, model: str, url: str, bearer: str
) -> ModelError:
    """The error for a failure: what was said, and what to do about it.

    Args:
        words: the vendor's, without keys. model, url, bearer: named in the text.
    """
    said = f"{model}: HTTP {status} from {url}" + (f": {words}" if words else "")
    wait = retry_after(headers)
    if meaning in {"rate_limit", "overloaded"}:
        return RateLimitError(said, status=status, retry_after=wait)
    if meaning == "transient":
        return TransientModelError(said, status=status, retry_after=wait)
    if meaning == "give_up":
        return ModelGivenUp(f"{said}\n{_given_up_hint(status)}", status=status)
    if status in {404, 405}:
        usual = " It usually ends in /v1." if url.endswith(V1_PATHS) and "/v1/" not in url else ""
        hint = f"Is the base URL right?{usual} What answered there is not the API of {bearer}."
        return ModelError(f"{said}\n{hint}", status=status)
    return ModelError(said, status=status)


def _given_up_hint(status: int) -> str:
    if status in {401, 403}:
        return "The key was refused: check the key and what it may use; the model is given up."
    if status in {400, 404, 422}:
        return "The model is unknown there; it is given up."
    return "The account has no quota left; its models are given up."


def encode(body: Mapping[str, Any]) -> bytes:
    """The body as JSON; text with lone surrogates is escaped, which the fast encoder refuses."""
    try:
        return msgspec.json.encode(body)
    except (UnicodeEncodeError, OverflowError, TypeError):
        return json.dumps(body).encode("ascii")


def json_of(body: bytes) -> Any:
    """The value of a JSON text, None for a text that is none."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        pass
    try:
        return json.loads(body)  # takes NaN, which some servers send as a log probability
    except ValueError:
        return None


def without_media(value: Any) -> Any:
    """A request as the log keeps it: long data URLs and base64 are replaced by their first characters."""
    if isinstance(value, str):
        return f"{value[:40]}… ({len(value)} characters)" if _is_media(value) else value
    if isinstance(value, dict):
        return {
            name: "…" if name in MEDIA_KEYS and isinstance(item, str) and len(item) > LONG_DATA else without_media(item)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [without_media(item) for item in value]
    return value


def _is_media(text: str) -> bool:
    return len(text) > LONG_DATA and text.startswith("data:")


def checked_url(shown: str, url: str | None, variables: Sequence[str]) -> str:
    """A base URL that is one.

    Raises:
        UsageError: there is none, or it is none.
    """
    if not url:
        raise UsageError(f"{shown}: no base URL. Set {' or '.join(variables)}, or pass --model-base-url (base_url=…)")
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise UsageError(f"base URL {public_url(url)!r}: it must start with http:// or https:// and name a host")
    return url


def missing_key(shown: str, variables: Sequence[str]) -> str:
    """The text for a key that nobody gave."""
    return f"{shown}: no API key. Set {' or '.join(variables)}, or pass -M api_key=… (api_key=…)"


def _first_set(names: Sequence[str]) -> str | None:
    return next((value for name in names if (value := environ(name))), None)


def _stream_option(shown: str, value: Any) -> bool | None:
    if value is None or value == "auto" or isinstance(value, bool):
        return None if value == "auto" else value
    raise UsageError(f"{shown}: stream must be true, false or auto, not {value!r} (-M stream=…)")


def status_in(error: Any) -> int:
    """The HTTP status that an error in a body names; 200, that of the body, where it names none."""
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 200


def take_options(shown: str, arguments: dict[str, Any], kinds: Mapping[str, type]) -> dict[str, Any]:
    """Take the model arguments of these names out of `arguments`, checked.

    Raises:
        UsageError: one has another type, naming it.
    """
    taken: dict[str, Any] = {}
    for name, kind in kinds.items():
        if (value := arguments.pop(name, None)) is None:
            continue
        if not isinstance(value, kind) or (kind is not bool and isinstance(value, bool)):
            raise UsageError(f"{shown}: {name} must be of type {kind.__name__}, not {value!r} (-M {name}=…)")
        taken[name] = value
    return taken
