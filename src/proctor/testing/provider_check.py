"""`check_provider`: whether a model provider keeps to what the engine relies on.

A provider is run as an evaluation runs it: behind a real model actor, by `Model.generate`, in virtual time, on every
backend. What its vendor does is played by the test, one *scene* after another: an async context manager within which
the vendor behaves as the scene's name says. A scene that a test does not play is not checked.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager, nullcontext
from typing import Any, Final, Literal, TypeAlias, cast, get_args

import anyio
from attrs import define, field

from proctor.errors import LimitExceededError, ModelError, ModelGivenUp
from proctor.log.encode import encode
from proctor.model.api import ModelAPI
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage, ChatMessageTool, ChatMessageUser
from proctor.model.model import Model
from proctor.model.output import ModelCall, ModelOutput, StopReason
from proctor.model.schema import JSONSchema, ToolParams
from proctor.model.source import Source
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.runtime import open_runtime
from proctor.runtime.applied import token_limit
from proctor.testing.virtual import BACKENDS, run_virtual

Scene: TypeAlias = Literal[
    "answer",  # it answers
    "tool",  # it asks for a call of `add` once, then answers
    "rate_limit",  # it refuses the first call as coming too fast, then answers
    "server_error",  # it fails at the first call, then answers
    "bad_key",  # it refuses the key
    "bad_request",  # it refuses the request, every time
    "stall",  # it takes the call and says nothing
]
Play: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]

SCENES: Final[tuple[Scene, ...]] = get_args(Scene)
ADD: Final = ToolInfo(
    name="add",
    description="Add two numbers",
    parameters=ToolParams(
        properties={"x": JSONSchema(type="integer"), "y": JSONSchema(type="integer")}, required=["x", "y"]
    ),
)
ONE_CALL: Final = GenerateConfig(max_retries=0, max_tokens=64)
CANCEL_AFTER: Final = 5.0  # seconds of virtual time
CANCEL_WITHIN: Final = 2.0  # seconds that a cancelled call may take to end


class ProviderFault(AssertionError):
    """A provider does not keep to what the engine relies on; the text says what, in which scene and how to mend it."""


def check_provider(
    make: Callable[[], ModelAPI], scenes: Mapping[Scene, Play] | None = None, *, backends: Sequence[str] = BACKENDS
) -> list[str]:
    """Check a provider.

    Args:
        make: makes a client, ready to be asked; called outside any event loop too, where it must open nothing.
        scenes: by name, what plays the vendor. Default ``answer`` alone, with nothing to play: for providers that need
            no vendor.
        backends: that are checked.

    Returns:
        What was checked, one line each.

    Raises:
        ProviderFault: the first thing that is wrong.
    """
    played: Mapping[Scene, Play] = {"answer": lambda: cast("Any", nullcontext())} if scenes is None else scenes
    unknown = set(played) - set(SCENES)
    if unknown:
        raise ValueError(f"no such scene: {', '.join(sorted(unknown))}; there are {', '.join(SCENES)}")
    _check_made(make())
    done: list[str] = ["it is made outside any event loop"]
    for backend in backends:
        for scene in SCENES:
            if scene in played:
                done += run_virtual(backend, _Check(make, scene, played[scene], backend).run)
    return done


def _check_made(api: ModelAPI) -> None:
    if not isinstance(api, ModelAPI):
        raise ProviderFault(f"make() gave {api!r}, which is no ModelAPI")
    for hook in (api.connection_key, api.max_connections):
        if hook() != hook():
            raise ProviderFault(f"{type(api).__name__}.{hook.__name__} gives another value each time")
    if api.max_connections() < 1:
        raise ProviderFault(f"{type(api).__name__}.max_connections must be at least 1")


class _Watched(ModelAPI):
    """A client that counts what is done with it."""

    def __init__(self, inner: ModelAPI, seen: _Seen) -> None:
        super().__init__(inner.model_name, inner.base_url, inner.api_key, inner.api_key_vars, inner.config)
        self.inner, self.seen = inner, seen
        self.composite = inner.composite  # type: ignore[misc]  # asked of the object
        self.adaptive, self.signal = inner.adaptive, inner.signal
        self.reserves_max_tokens = inner.reserves_max_tokens

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> Any:
        """Ask the client that is checked."""
        self.seen.calls += 1
        self.seen.in_flight += 1
        self.seen.peak = max(self.seen.peak, self.seen.in_flight)
        before = encode(input), encode(tools), encode(config)
        try:
            result = await self.inner.generate(input, tools, tool_choice, config)
        finally:
            self.seen.in_flight -= 1
            if (encode(input), encode(tools), encode(config)) != before:
                self.seen.faults.append("it changes the messages, tools or configuration that it is given; copy them")
        self.seen.results.append(result)
        return result

    async def aclose(self) -> None:
        """Close the client that is checked."""
        self.seen.closed += 1
        if self.seen.in_flight:
            self.seen.faults.append("it is closed with calls in flight")
        await self.inner.aclose()

    def max_connections(self) -> int:
        """Its number."""
        return self.inner.max_connections()

    def max_tokens(self) -> int | None:
        """Its number."""
        return self.inner.max_tokens()

    def connection_key(self) -> str:
        """Its key."""
        return self.inner.connection_key()

    def should_retry(self, ex: Exception) -> Any:
        """Its judgement."""
        return self.inner.should_retry(ex)

    def quota_readings(self, headers: Mapping[str, str]) -> Any:
        """Its reading."""
        return self.inner.quota_readings(headers)

    def secrets(self) -> tuple[str, ...]:
        """Its secrets."""
        return self.inner.secrets()


@define(eq=False)
class _Seen:
    """What was seen of a client."""

    calls: int = 0
    in_flight: int = 0
    peak: int = 0
    closed: int = 0
    results: list[Any] = field(factory=list)
    faults: list[str] = field(factory=list)


@define(eq=False)
class _Check:
    """One scene on one backend."""

    make: Callable[[], ModelAPI]
    scene: Scene
    play: Play
    backend: str
    seen: _Seen = field(factory=_Seen, init=False)
    done: list[str] = field(factory=list, init=False)

    async def run(self) -> list[str]:
        """Play the scene; what was checked."""
        try:
            async with self.play(), open_runtime():
                await getattr(self, f"_{self.scene}")(self._model())
        except Exception as error:
            found = _leaf(error)
            if isinstance(found, ProviderFault):
                raise found from found.__cause__
            raise ProviderFault(f"{self.backend}, {self.scene}: it raised {found!r}") from error
        if not self.seen.closed:
            self._fault("it was not closed with its runtime", "nothing outlives a runtime")
        if self.seen.faults:
            self._fault(self.seen.faults[0], "see ModelAPI.generate")
        return [f"{self.backend}, {self.scene}: {line}" for line in self.done]

    def _model(self) -> Model:
        def factory(**_: Any) -> ModelAPI:
            return _Watched(self.make(), self.seen)

        source = Source("checked", "model", cast("Any", factory), None, None, GenerateConfig(), {})
        return Model(source=source)

    def _fault(self, what: str, mend: str) -> None:
        raise ProviderFault(f"{self.backend}, {self.scene}: {what}. {mend[0].upper()}{mend[1:]}.")

    # -- the scenes

    async def _answer(self, model: Model) -> None:
        output = await model.generate([ChatMessageUser(content="Say hello")], config=ONE_CALL)
        self._check_output(output)
        if not output.message.text:
            self._fault("the answer has no text", "put it into the content of the message")
        self._check_call(model)
        self.done.append("an answer is an output that goes into a log and comes back the same")
        await self._check_together(model)
        await self._check_limit(model)

    async def _tool(self, model: Model) -> None:
        asked: list[ChatMessage] = [ChatMessageUser(content="What is 1 + 2? Use the tool.")]
        output = await model.generate(asked, tools=[ADD], config=ONE_CALL)
        self._check_output(output)
        calls = output.message.tool_calls or []
        if not calls or output.stop_reason != "tool_calls":
            self._fault(f"no tool call was read ({output.stop_reason})", "the stop reason of one is tool_calls")
        if len({call.id for call in calls}) < len(calls) or not all(call.id for call in calls):
            self._fault("calls have no ids of their own", "make ids where the vendor gives none")
        if any(call.function != ADD.name or not isinstance(call.arguments, dict) for call in calls):
            self._fault(f"the call is not read as one of {ADD.name}", "its arguments are by name")
        results = [ChatMessageTool(content="3", tool_call_id=call.id, function=call.function) for call in calls]
        after = await model.generate([*asked, output.message, *results], tools=[ADD], config=ONE_CALL)
        self._check_output(after)
        self.done.append("a tool call is read, and its result is taken")

    async def _rate_limit(self, model: Model) -> None:
        await self._retried(model, "a refusal for coming too fast", "raise RateLimitError, or say so in should_retry")

    async def _server_error(self, model: Model) -> None:
        await self._retried(model, "a passing fault", "raise TransientModelError, or say so in should_retry")

    async def _retried(self, model: Model, what: str, mend: str) -> None:
        try:
            output = await model.generate("Say hello", config=GenerateConfig(max_retries=3))
        except Exception as error:
            raise ProviderFault(f"{self.backend}, {self.scene}: {what} is final ({error!r}). {mend}") from error
        self._check_output(output)
        if self.seen.calls != 2:
            self._fault(f"{what} took {self.seen.calls} calls of generate instead of 2", "make one attempt a call")
        self.done.append(f"{what} is tried again by the engine, not by the provider")

    async def _bad_key(self, model: Model) -> None:
        error = await self._failed(model, GenerateConfig())
        if not isinstance(error, ModelGivenUp):
            self._fault(f"a refused key is {error!r}", "raise ModelGivenUp, or an error with the HTTP status 401")
        self._check_text(error, model)
        self.done.append("a refused key gives the model up, after one request")

    async def _bad_request(self, model: Model) -> None:
        error = await self._failed(model, GenerateConfig())
        if isinstance(error, ModelGivenUp):
            self._fault("a refused request gives the model up", "only keys, accounts and model names do")
        self._check_text(error, model)
        self.done.append("a refused request is final")

    async def _failed(self, model: Model, config: GenerateConfig) -> Exception:
        try:
            with anyio.fail_after(600):
                output = await model.generate("Say hello", config=config)
        except TimeoutError as error:
            raise ProviderFault(f"{self.backend}, {self.scene}: it is tried again and again") from error
        except Exception as error:
            if self.seen.calls != 1:
                self._fault(f"{self.seen.calls} requests were made", "what is final is not tried again")
            return error
        raise ProviderFault(f"{self.backend}, {self.scene}: an output came instead of an error: {output!r}")

    async def _stall(self, model: Model) -> None:
        began = anyio.current_time()
        with anyio.move_on_after(CANCEL_AFTER) as scope:
            await model.generate("Say hello", config=ONE_CALL)
        if not scope.cancelled_caught:
            self._fault("a call ended that nobody answered, or swallowed its cancellation", "let cancellations pass")
        if anyio.current_time() - began > CANCEL_AFTER + CANCEL_WITHIN:
            self._fault("a cancelled call went on", "shield nothing for longer than a moment")
        if self.seen.in_flight:
            self._fault("a cancelled call left something running", "keep tasks in a task group of the call")
        self.done.append("a cancelled call ends at once")
        try:
            await model.generate("Say hello", config=ONE_CALL.merge({"attempt_timeout": 3}))
        except ModelError as error:
            if "attempt_timeout" not in str(error):
                self._fault(f"an attempt that takes too long is {error!r}", "leave time limits to the engine")
        self.done.append("an attempt ends with its time limit")

    # -- parts of scenes

    async def _check_together(self, model: Model) -> None:
        """Several calls at once, no more than allowed."""
        limited = model.with_config(GenerateConfig(max_connections=2, max_retries=0))
        outputs: list[ModelOutput] = []

        async def one(i: int) -> None:
            outputs.append(await limited.generate(f"Say hello to {i}"))

        self.seen.peak = 0
        async with anyio.create_task_group() as group:
            for i in range(6):
                group.start_soon(one, i)
        if len(outputs) != 6:
            self._fault(f"of 6 calls at once {len(outputs)} were answered", "keep the state of a call in the call")
        if self.seen.peak > 2 and not model.api.composite:
            self._fault(f"{self.seen.peak} calls were in flight of 2 allowed", "do not call generate by yourself")
        if len({id(output) for output in outputs}) < 6:
            self._fault("several calls were given one object", "make an output for each call: callers change it")
        self.done.append("calls at once keep to the limit and do not share outputs")

    async def _check_limit(self, model: Model) -> None:
        """A limit of tokens is met by what the provider says of usage."""
        output = await model.generate("Say hello", config=ONE_CALL)
        if output.usage is None:
            self.done.append("usage is not reported, so limits of tokens and cost cannot hold")
            return
        if output.usage.total_tokens < output.usage.output_tokens or output.usage.output_tokens < 0:
            self._fault(f"the usage does not add up: {output.usage}", "total_tokens are all of them")
        with _expected(LimitExceededError) as met, token_limit(1):
            await model.generate("Say hello", config=ONE_CALL)
        if output.usage.total_tokens > 1 and not met:
            self._fault("a limit of tokens was not met", "report the usage of every answer")
        self.done.append("a limit of tokens holds")

    def _check_output(self, output: ModelOutput) -> None:
        if not output.choices:
            self._fault("an output has no choices", "an answer is at least one, else raise an error")
        for choice in output.choices:
            if choice.stop_reason not in get_args(StopReason):
                self._fault(f"{choice.stop_reason!r} is no stop reason", f"there are {', '.join(get_args(StopReason))}")
            if choice.message.role != "assistant":
                self._fault("the message is not an assistant's", "make a ChatMessageAssistant")
        back = ModelOutput.model_validate(json.loads(encode(output)))
        if encode(back) != encode(output):
            self._fault("the output is another after a log has kept it", "use the value classes and plain JSON in them")

    def _check_call(self, model: Model) -> None:
        result = self.seen.results[-1]
        call = result[1] if isinstance(result, tuple) else None
        if call is not None and not isinstance(call, ModelCall):
            self._fault(f"the raw call is {call!r}", "return (output, ModelCall) or the output alone")
        if call is not None:
            self._no_secrets(encode(call).decode(), model, "the raw call")

    def _check_text(self, error: BaseException, model: Model) -> None:
        if not str(error):
            self._fault("an error says nothing", "say what the vendor said")
        self._no_secrets(str(error), model, "an error")

    def _no_secrets(self, text: str, model: Model, where: str) -> None:
        if any(secret in text for secret in model.api.secrets()):
            self._fault(f"{where} holds a secret", "leave keys out; secrets() says which they are")


def _leaf(error: BaseException) -> BaseException:
    """The first exception of a group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@contextmanager
def _expected(kind: type[BaseException]) -> Iterator[list[BaseException]]:
    """Take an exception of a kind out of the block; it is in the list then."""
    met: list[BaseException] = []
    try:
        yield met
    except kind as error:
        met.append(error)
