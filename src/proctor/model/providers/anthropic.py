"""``anthropic/<model>``: Anthropic's Messages API, and servers that speak its protocol."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec
from attrs import evolve

from proctor.errors import TransientModelError, UsageError
from proctor.model.api import refuse_unknown
from proctor.model.config import GenerateConfig
from proctor.model.event_stream import ServerEvent
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall, ModelOutput
from proctor.model.providers.anthropic_content import Block
from proctor.model.providers.anthropic_output import MessageAssembly, output_from_wire, status_of
from proctor.model.providers.anthropic_request import VERSION, Options, Ttl, ignored, request_body, request_headers
from proctor.model.providers.service import ServiceAPI, StreamFailure
from proctor.model.providers.unsent import unsent
from proctor.model.providers.vendors import vendor
from proctor.model.toolcall import ToolChoice, ToolInfo

logger: Final = logging.getLogger(__name__)

PATH: Final = "/v1/messages"
MAX_CONTINUATIONS: Final = 20  # requests of one answer whose turn the vendor paused
ELSEWHERE: Final = {
    "bedrock": "models on Amazon Bedrock are bedrock/MODEL",
    "vertex": "Vertex AI is not supported; use anthropic/MODEL with a key of Anthropic's",
    "azure": "Anthropic's models on Azure are reached with --model-base-url (base_url=) and anthropic/MODEL",
}
TTLS: Final[dict[str | None, Ttl | None]] = {"5m": "5m", "1h": "1h", "auto": None, None: None}


class MessageReader:
    """Puts the events of a streamed message together."""

    missing = "message_stop"

    def __init__(self) -> None:
        self._assembly = MessageAssembly()

    def take(self, event: ServerEvent) -> bool:
        """Take the next event; whether it was the last one.

        Raises:
            StreamFailure: the event tells of an error. TransientModelError: it is no JSON.
        """
        try:
            data: Any = msgspec.json.decode(event.data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            data = None
        if event.name == "error" or (isinstance(data, dict) and data.get("type") == "error"):
            error = data if isinstance(data, dict) else {"message": event.data.decode("utf-8", "replace")}
            failure = StreamFailure(error)
            failure.status = status_of(error)
            raise failure
        if not isinstance(data, dict):
            raise TransientModelError(f"an event of the stream is no JSON object: {event.data[:100]!r}")
        self._assembly.feed(data)
        return self._assembly.complete

    def ended(self) -> bool:
        """False: a message that is whole has its message_stop."""
        return False

    def answer(self) -> dict[str, Any]:
        """The whole message."""
        return self._assembly.message


class AnthropicAPI(ServiceAPI):
    """A client of one model of Anthropic.

    The key is the one given, else ``ANTHROPIC_API_KEY``; the base URL the one given, else ``ANTHROPIC_BASE_URL``.

    Args:
        streaming, stream: whether answers are streamed; ``auto``: those that think or may be long.
        betas: what to ask for beyond the protocol, sent as ``anthropic-beta``.
        cache_ttl: how long the prompt cache keeps what is written: ``5m``, ``1h`` or ``auto``.
        api_version: of the protocol. ``2023-06-01`` still takes temperature, top_p and top_k, of models that do.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        streaming: Any = "auto",
        stream: Any = None,
        betas: str | list[str] = "",
        cache_ttl: str | None = None,
        api_version: str = VERSION,
        **model_args: Any,
    ) -> None:
        service, slash, _ = model_name.partition("/")
        if slash and service in ELSEWHERE:
            raise UsageError(f"anthropic/{model_name}: {ELSEWHERE[service]}")
        super().__init__(
            model_name,
            base_url,
            api_key,
            config,
            row=vendor("anthropic"),
            stream=streaming if stream is None else stream,
        )
        refuse_unknown("anthropic", model_args)
        if cache_ttl not in TTLS:
            raise UsageError(f"{self.shown}: cache_ttl must be 5m, 1h or auto, not {cache_ttl!r} (-M cache_ttl=…)")
        given = betas.split(",") if isinstance(betas, str) else betas
        self.options = Options(
            model=self.sent_name,
            version=str(api_version),
            betas=tuple(beta.strip() for beta in given if beta.strip()),
            cache_ttl=TTLS[cache_ttl],
            streaming=self.stream,
        )

    def headers(self) -> dict[str, str]:
        """The key, as the protocol's version has it."""
        if self.options.version < VERSION:
            return {"x-api-key": self.api_key or ""}
        return super().headers()

    def max_tokens(self) -> int | None:
        """What the model may answer when nobody says otherwise; thinking adds to it."""
        return self.options.claude.max_tokens(GenerateConfig())

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput | tuple[ModelOutput | Exception, ModelCall]:
        """Make one attempt. An answer that the vendor paused is asked to be continued until it is whole."""
        told = [*ignored(self.options, tools, tool_choice, config), *unsent("anthropic", self.shown, config)]
        for text in self.left_out(told):
            logger.warning("%s", text)
        body = await request_body(self.options, input, tools, tool_choice, config)
        sent = evolve(config, extra_headers=request_headers(self.options, body, config))
        outputs: list[ModelOutput] = []
        while True:
            reader = MessageReader() if body.get("stream") else None
            data, call = await self.exchange(PATH, body, sent, reader=reader)
            if not isinstance(data, dict):
                return data, call
            outputs.append(output_from_wire(data, tools, model=self.sent_name))
            if data.get("stop_reason") != "pause_turn" or len(outputs) > MAX_CONTINUATIONS:
                return _one(outputs), call
            body = _continued(body, data)


def _continued(body: Block, paused: dict[str, Any]) -> Block:
    """The request for the rest of a turn."""
    turn = {"role": "assistant", "content": paused["content"]}
    more = {**body, "messages": [*body["messages"], turn]}
    if isinstance(container := paused.get("container"), dict) and container.get("id"):
        more["container"] = container["id"]
    return more


def _one(outputs: list[ModelOutput]) -> ModelOutput:
    """One output of the parts of a turn: the last one, with the contents and the usage of all."""
    last = outputs[-1]
    for part in reversed(outputs[:-1]):
        last.message.content = [*part.message.content_list, *last.message.content_list]
        if part.message.tool_calls:
            last.message.tool_calls = [*part.message.tool_calls, *(last.message.tool_calls or ())]
        if part.usage is not None:
            last.usage = part.usage if last.usage is None else part.usage + last.usage
    last.completion = last.message.text
    return last
