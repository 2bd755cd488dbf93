"""`get_model` and `Model`: a description of a model that can be made anywhere, and the call of it.

A `Model` holds no connection and belongs to no event loop. `generate` looks up, in the runtime around it, the actor
that owns the clients and the limits of the model; without a runtime it opens one for the call.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Hashable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar
from typing import Any, Final
from weakref import WeakKeyDictionary

import anyio
from attrs import define, evolve, field

from proctor.actors import Limiter, Ref
from proctor.errors import ModelError, UsageError
from proctor.log.events import ModelEvent
from proctor.log.transcript import transcript
from proctor.model.actor import ModelState, connection, model_actor
from proctor.model.api import ModelAPI, provider_class
from proctor.model.config import AdaptiveConcurrency, GenerateConfig, public_config
from proctor.model.failures import Kind, classify, scrub
from proctor.model.http import public_url
from proctor.model.messages import ChatMessage, ChatMessageSystem, ChatMessageUser
from proctor.model.output import ModelCall, ModelOutput
from proctor.model.retry import NoMarks, Retries, RetryPolicy
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.runtime import Runtime, current_runtime, current_sample, open_runtime
from proctor.runtime.clock import utc_now
from proctor.runtime.settings import eval_option

_evaluated: Final[ContextVar[Model | None]] = ContextVar("proctor_evaluated_model", default=None)
_roles: Final[ContextVar[Mapping[str, Model | Sequence[Model]] | None]] = ContextVar("proctor_roles", default=None)
_log_calls: Final[ContextVar[bool]] = ContextVar("proctor_log_model_api", default=False)
# A cache, not a state: what it holds could be made again, and it dies with its runtime.
_memo: Final[WeakKeyDictionary[Runtime, dict[Hashable, Model]]] = WeakKeyDictionary()

SECRET_ARGUMENTS: Final = ("key", "token", "secret", "password", "credential", "aws_")
PLAIN: Final = (str, int, float, bool, type(None))


@define(eq=False)
class Source:
    """Where the clients of a model come from. Shared by the copies of one description.

    Attributes:
        provider: registered name. model_name: what follows it.
        described: a client made when the description was made, so that a mistake shows at once. The first actor to
            need one takes it; later ones make their own.
    """

    provider: str
    model_name: str
    factory: type[ModelAPI]
    base_url: str | None
    api_key: str | None
    config: GenerateConfig
    arguments: dict[str, Any]
    described: ModelAPI = field(init=False)
    _taken: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.described = self._construct()

    @property
    def name(self) -> str:
        """``provider/model``."""
        return f"{self.provider}/{self.model_name}"

    @property
    def key(self) -> Hashable:
        """Equal for sources whose clients are alike."""
        return (self.factory, self.base_url, self.api_key, _frozen(self.arguments))

    @property
    def actor_key(self) -> Hashable:
        """What an actor is looked up by: provider and what its limits hold for."""
        return (self.provider, self.described.connection_key())

    @property
    def default_limit(self) -> int:
        """Connections when nobody asks for a number."""
        return self.described.max_connections()

    def make(self) -> ModelAPI:
        """A client of one's own."""
        if not self._taken:
            self._taken = True
            return self.described
        return self._construct()

    def _construct(self) -> ModelAPI:
        try:
            made = self.factory(
                model_name=self.model_name,
                base_url=self.base_url,
                api_key=self.api_key,
                config=self.config,
                **self.arguments,
            )
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise  # from inside the constructor: a fault of the provider's, not of the arguments
            raise UsageError(f"{self.name}: the provider does not take these model arguments (-M): {error}") from error
        made.provider = self.provider
        return made


def _frozen(arguments: Mapping[str, Any]) -> Hashable:
    """Arguments as a key: plain values by value, others by identity."""
    return tuple(sorted((name, value if isinstance(value, PLAIN) else id(value)) for name, value in arguments.items()))


@define(eq=False, repr=False)
class Model:
    """A model that can be called: what it is and how it is asked. Made by `get_model`.

    Attributes:
        config: used where a call says nothing. role: what it is called as (``grader``), None for the evaluated one.
    """

    _source: Source = field(alias="source")
    config: GenerateConfig = field(factory=GenerateConfig)
    role: str | None = None

    def __str__(self) -> str:
        return self._source.name

    def __repr__(self) -> str:
        return f"Model({self._source.name!r})"

    @property
    def provider(self) -> str:
        """The provider's registered name."""
        return self._source.provider

    @property
    def name(self) -> str:
        """The name without the provider."""
        return self._source.model_name

    @property
    def api(self) -> ModelAPI:
        """The provider's object that this description was made with."""
        return self._source.described

    @property
    def base_url(self) -> str | None:
        """Where it is called, as it may be shown; None where the provider has only one place."""
        url = self._source.described.base_url
        return None if url is None else public_url(url)

    @property
    def model_args(self) -> dict[str, Any]:
        """The provider's own arguments."""
        return dict(self._source.arguments)

    @property
    def public_args(self) -> dict[str, Any]:
        """The provider's own arguments as they may be logged: without keys, and without what has no text form."""
        return {
            name: value
            for name, value in self._source.arguments.items()
            if not any(word in name.lower() for word in SECRET_ARGUMENTS)
            and isinstance(value, (*PLAIN, list, tuple, dict))
        }

    def with_config(self, config: GenerateConfig, *, role: str | None = None) -> Model:
        """The same model, asked otherwise: it shares clients and limits with this one."""
        return evolve(self, config=config, role=role or self.role)

    def max_connections(self) -> int:
        """Calls in flight that its own configuration asks for, else the provider's number."""
        default = self._source.default_limit
        return asked_limit(self.config, default) or default

    def limiter_nowait(self, runtime: Runtime) -> Limiter | None:
        """The limiter of its connections, None while it has not been called in this runtime."""
        ref = runtime.find("models", self._source.actor_key)
        return None if ref is None else ref.limiter

    @asynccontextmanager
    async def held(self, runtime: Runtime) -> AsyncIterator[Ref[ModelState]]:
        """Hold the limits of its configuration while a task runs; of several tasks the smallest limit counts."""
        ref = await model_actor(runtime, self._source)
        share = ref.state.share
        with share.asked(asked_limit(self.config, share.default)):
            yield ref

    async def generate(
        self,
        input: str | list[ChatMessage],
        tools: Sequence[ToolInfo] = (),
        tool_choice: ToolChoice | None = None,
        config: GenerateConfig | None = None,
        cache: Any = False,
    ) -> ModelOutput:
        """Call the model.

        Args:
            input: a user's text or the messages.
            tools: that the model may call. tool_choice: which; default ``auto`` where there are tools.
            config: goes before the model's own.
            cache: accepted; answers are not reused.

        Returns:
            The output; its message has an id and ``source="generate"``.

        Raises:
            ModelGivenUp: the key was refused, the model is unknown, or its server was never reached.
            ModelError: of the kind that fits, or the provider's own exception.
        """
        runtime = current_runtime()
        if runtime is None:
            async with open_runtime() as runtime:
                return await self.generate(input, tools, tool_choice, config, cache)
        merged = self.config if config is None else self.config.merge(config)
        messages = _messages(input, merged, runtime)
        offered = _offered(tools, tool_choice)
        ref = await model_actor(runtime, self._source)
        return await _Generation(self, runtime, ref, messages, offered, _choice(tool_choice, offered), merged).run()


@define(eq=False)
class _Generation:
    """One call of `Model.generate`."""

    model: Model
    runtime: Runtime
    ref: Ref[ModelState]
    messages: list[ChatMessage]
    tools: list[ToolInfo]
    tool_choice: ToolChoice
    config: GenerateConfig
    call: ModelCall | None = None

    async def run(self) -> ModelOutput:
        sample = current_sample()
        order = None
        if sample is not None:
            order = sample.order()
            sample.calls += 1
        source = self.model._source
        share = self.ref.state.share
        retries = Retries(
            model=str(self.model),
            policy=RetryPolicy.of(self.config),
            attempt=self._attempt,
            lease=connection(share, sample, order, composite=source.described.composite),
            judge=self._judge,
            health=share,
            chance=self.runtime.random,
            marks=NoMarks() if sample is None else sample.working,
        )
        began = anyio.current_time()
        event = self._event()
        into = transcript()
        into.add(event)
        try:
            with share.asked(asked_limit(self.config, share.default)):
                output = await retries.run()
        except BaseException as error:
            scrub(error, self.model.api.secrets())
            self._close(event, retries, error)
            into.updated(event)
            raise
        now = anyio.current_time()
        output.time = now - began
        event.working_time = now - retries.sent_at
        for choice in output.choices:
            choice.message.id = choice.message.id or self.runtime.new_id()
        event.output = output
        self._close(event, retries, None)
        into.updated(event)
        if sample is not None and output.usage is not None:
            sample.record_usage(str(self.model), self.model.role, output.usage)
        return output

    async def _attempt(self) -> ModelOutput:
        await self.ref.started()
        api = self.ref.state.client(self.model._source)
        result = await api.generate(self.messages, self.tools, self.tool_choice, self.config)
        output, self.call = result if isinstance(result, tuple) else (result, None)
        if isinstance(output, Exception):
            raise output
        if not isinstance(output, ModelOutput):
            raise ModelError(f"{self.model}: the provider returned {type(output).__name__}, not a ModelOutput")
        return output

    def _judge(self, error: Exception) -> Kind:
        return classify(error, self.model.api)

    def _event(self) -> ModelEvent:
        return ModelEvent(
            model=str(self.model),
            role=self.model.role,
            input=list(self.messages),
            tools=self.tools,
            tool_choice=self.tool_choice,
            config=public_config(self.config),
            output=ModelOutput(model=self.model.name),
            pending=True,
        )

    def _close(self, event: ModelEvent, retries: Retries[Any], error: BaseException | None) -> None:
        event.completed = utc_now()
        event.retries = retries.failed if error is None else max(0, retries.failed - 1)
        if error is not None:
            event.error = (str(error) or type(error).__name__) if isinstance(error, Exception) else "cancelled"
        if self.call is not None and (error is not None or _log_calls.get()):
            event.call = self.call


def _messages(input: str | list[ChatMessage], config: GenerateConfig, runtime: Runtime) -> list[ChatMessage]:
    messages: list[ChatMessage]
    if isinstance(input, str):
        messages = [ChatMessageUser(id=runtime.new_id(), content=input, source="input")]
    else:
        messages = list(input)
    if config.system_message:
        messages.insert(0, ChatMessageSystem(id=runtime.new_id(), content=config.system_message))
    if not messages:
        raise UsageError("a model needs at least one message as its input")
    return messages


def _offered(tools: Sequence[Any], choice: ToolChoice | None) -> list[ToolInfo]:
    if choice == "none":
        return []
    offered = []
    for tool in tools:
        if not isinstance(tool, ToolInfo):
            raise UsageError(f"tools must be ToolInfo (name, description, parameters), not {tool!r}")
        offered.append(tool)
    return offered


def _choice(choice: ToolChoice | None, tools: list[ToolInfo]) -> ToolChoice:
    if not tools:
        return "none"
    return "auto" if choice is None else choice


def asked_limit(config: GenerateConfig, default: int) -> int | None:
    """The number of connections that a configuration asks for; None when it leaves that to the provider.

    Bounds for adaptive pacing hold a default that is above them.
    """
    if config.max_connections is not None:
        return config.max_connections
    adaptive = config.adaptive_connections
    if adaptive is None or isinstance(adaptive, bool):
        return None
    most = adaptive.max if isinstance(adaptive, AdaptiveConcurrency) else adaptive
    return most if most < default else None


@contextmanager
def evaluated_model(model: Model | None) -> Iterator[None]:
    """What `get_model()` without a name gives within the block."""
    token = _evaluated.set(model)
    try:
        yield
    finally:
        _evaluated.reset(token)


@contextmanager
def roles(models: Mapping[str, Model | Sequence[Model]]) -> Iterator[None]:
    """What `get_model(role=...)` gives within the block."""
    token = _roles.set(dict(models))
    try:
        yield
    finally:
        _roles.reset(token)


def model_roles() -> dict[str, Model | Sequence[Model]]:
    """The models by role, as they are set just now."""
    return dict(_roles.get() or {})


@contextmanager
def log_model_api(wanted: bool) -> Iterator[None]:
    """Whether the raw request and response of successful calls go into the log (those of failed ones always do)."""
    token = _log_calls.set(wanted)
    try:
        yield
    finally:
        _log_calls.reset(token)


def get_model(
    model: str | Model | None = None,
    *,
    role: str | None = None,
    required: bool = False,
    default: str | Model | None = None,
    config: GenerateConfig | None = None,
    base_url: str | None = None,
    api_key: str | None = None,
    memoize: bool = True,
    **model_args: Any,
) -> Model:
    """A model by name. Within a runtime the same arguments give the same object.

    Args:
        model: ``provider/name``; a `Model` is returned as it is. None: the model of `role`, else `default`, else the
            evaluated model, else the first of ``PROCTOR_EVAL_MODEL`` (``INSPECT_EVAL_MODEL``).
        role: what the evaluation may bind to a model of its own, such as ``grader``.
        required: a role that is not bound is an error.
        config: used where a call says nothing. base_url, api_key: go before the environment's.
        memoize: False makes a new object in any case.
        model_args: the provider's own.

    Raises:
        UsageError: no model is named, its provider is unknown, or the provider refuses an argument.
    """
    if isinstance(model, Model):
        return model
    config = config or GenerateConfig()
    if role is not None and (bound := _bound(role)) is not None:
        return bound.with_config(config.merge(bound.config), role=role)
    if role is not None and required and default is None:
        raise UsageError(f"no model has the role {role!r}; give it one (model_roles={{{role!r}: 'provider/name'}})")
    chosen = model or default or _evaluated.get() or _from_environment()
    if isinstance(chosen, Model):
        return chosen if role is None or chosen is _evaluated.get() else chosen.with_config(chosen.config, role=role)
    runtime = current_runtime() if memoize else None
    if runtime is None:
        return _make(chosen, role, config, base_url, api_key, model_args)
    known = _memo.setdefault(runtime, {})
    key = (chosen, role, repr(config), base_url, api_key, _frozen(model_args))
    if key not in known:
        known[key] = _make(chosen, role, config, base_url, api_key, model_args)
    return known[key]


def _bound(role: str) -> Model | None:
    found = (_roles.get() or {}).get(role)
    return found if found is None or isinstance(found, Model) else found[0]


def _from_environment() -> str:
    named, _ = eval_option("model")
    if named is None:
        raise UsageError("no model was given: name one (get_model('provider/name'), --model) or set PROCTOR_EVAL_MODEL")
    return named.split(",")[0].strip()


def _make(
    name: str,
    role: str | None,
    config: GenerateConfig,
    base_url: str | None,
    api_key: str | None,
    arguments: dict[str, Any],
) -> Model:
    provider, slash, rest = name.partition("/")
    if not slash or not provider or not rest:
        raise UsageError(f"model {name!r}: a name is provider/model, such as openai-api/service/model or mock/any")
    source = Source(provider, rest, provider_class(provider), base_url, api_key, config, dict(arguments))
    return Model(source=source, config=config, role=role)
