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

from attrs import define, evolve, field

from proctor.actors import Limiter, Ref
from proctor.errors import UsageError
from proctor.model.actor import ModelState, model_actor
from proctor.model.api import ModelAPI, provider_class
from proctor.model.config import GenerateConfig
from proctor.model.connections import Connections, asked, ceiling_of, provided, signal_of
from proctor.model.generation import Generation, chosen, input_messages, offered_tools, played_back
from proctor.model.http import public_url
from proctor.model.messages import ChatMessage, ChatMessageUser
from proctor.model.output import ModelOutput
from proctor.model.quota import UNDECLARED, PacingOptions
from proctor.model.recall import through_cache
from proctor.model.source import Source, frozen_arguments
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.runtime import Runtime, current_runtime, open_runtime
from proctor.runtime.blocks import check_messages
from proctor.runtime.settings import eval_option
from proctor.tool.definition import Tool, ToolDef, ToolSource
from proctor.tool.execution import execute_tools

_evaluated: Final[ContextVar[Model | None]] = ContextVar("proctor_evaluated_model", default=None)
_roles: Final[ContextVar[Mapping[str, Model | Sequence[Model]] | None]] = ContextVar("proctor_roles", default=None)
# A cache, not a state: what it holds could be made again, and it dies with its runtime.
_memo: Final[WeakKeyDictionary[Runtime, dict[Hashable, Model]]] = WeakKeyDictionary()


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
        return self._source.public_arguments

    def with_config(self, config: GenerateConfig, *, role: str | None = None) -> Model:
        """The same model, asked otherwise: it shares clients and limits with this one."""
        return evolve(self, config=config, role=role or self.role)

    def connections(self) -> Connections:
        """Calls in flight, as its own configuration asks for it, else the provider."""
        api = self._source.described
        return asked(self.config, api) or provided(api)

    def max_connections(self) -> int:
        """The most calls in flight that there can be by its own configuration and its provider."""
        held, api = self.connections(), self._source.described
        return held.fixed or held.most or ceiling_of(api.signal or signal_of(api.base_url))

    def limiter_nowait(self, runtime: Runtime) -> Limiter | None:
        """The limiter of its connections, None while it has not been called in this runtime."""
        ref = runtime.find("models", self._source.actor_key)
        return None if ref is None else ref.limiter

    @asynccontextmanager
    async def held(
        self, runtime: Runtime, declared: PacingOptions = UNDECLARED, *, ceiling: int | None = None
    ) -> AsyncIterator[Ref[ModelState]]:
        """Hold the limits of its configuration while a task runs; of several tasks the smallest limit counts.

        Args:
            declared: the quotas that the task declares. ceiling: the most connections where pacing adapts them.
        """
        ref = await model_actor(runtime, self._source)
        await ref.started()
        wanted = self.connections()
        if wanted.fixed is None and ceiling is not None:
            wanted = evolve(wanted, most=min(ceiling, wanted.most or ceiling))
        with ref.state.share.asked(wanted, declared):
            yield ref

    async def generate(
        self,
        input: str | list[ChatMessage],
        tools: Sequence[Tool | ToolDef | ToolInfo | ToolSource] | ToolSource = (),
        tool_choice: ToolChoice | None = None,
        config: GenerateConfig | None = None,
        cache: Any = False,
    ) -> ModelOutput:
        """Call the model.

        Args:
            input: a user's text or the messages.
            tools: that the model may call. tool_choice: which; default ``auto`` where there are tools. A choice that
                names one leaves out the others.
            config: goes before the model's own.
            cache: True or a `CachePolicy`: use an answer again that the same call was given earlier, and keep this
                one; default what the configuration says.

        Returns:
            The output; its message has an id and ``source="generate"``.

        Raises:
            ModelGivenUp: the key was refused, the model is unknown, or its server was never reached.
            ModelError: of the kind that fits, or the provider's own exception.
            LimitExceededError: a limit of messages, tokens, turns or cost allows no further call, or was exceeded by
                this one; its `output` is the answer then.
        """
        runtime = current_runtime()
        if runtime is None:
            async with open_runtime() as runtime:
                return await self.generate(input, tools, tool_choice, config, cache)
        check_messages(1 if isinstance(input, str) else len(input), another=True)
        merged = self.config if config is None else self.config.merge(config)
        messages = input_messages(input, merged, runtime)
        offered = await offered_tools(tools, tool_choice)
        infos = [each if isinstance(each, ToolInfo) else each.info for each in offered]
        defined = {each.name: each for each in offered if isinstance(each, ToolDef)}
        ref = await model_actor(runtime, self._source)
        choice = chosen(tool_choice, offered)
        generation = Generation(
            self._source,
            self.role,
            runtime,
            ref,
            played_back(messages, defined),
            infos,
            choice,
            merged,
            defined=defined,
        )
        if cache or merged.cache:
            return await through_cache(generation, cache)
        return await generation.run()

    async def generate_loop(
        self,
        input: str | list[ChatMessage],
        tools: Sequence[Tool | ToolDef | ToolSource] | ToolSource = (),
        config: GenerateConfig | None = None,
        cache: Any = False,
    ) -> tuple[list[ChatMessage], ModelOutput]:
        """Call the model, run the tools it asks for, and call it again, until it asks for none.

        Args:
            input, config, cache: as of `generate`. tools: that the model may call.

        Returns:
            The messages that were added to the input, and the last output.

        Raises:
            Exception: as `generate`, and what a tool raised that is not for the model.
        """
        messages: list[ChatMessage] = (
            [ChatMessageUser(content=input, source="input")] if isinstance(input, str) else list(input)
        )
        given = len(messages)
        merged = self.config if config is None else self.config.merge(config)
        while True:
            output = await self.generate(messages, tools, None, config, cache)
            messages.append(output.message)
            if not output.message.tool_calls:
                return messages[given:], output
            made, handed = await execute_tools(messages, tools, merged.max_tool_output)
            messages.extend(made)
            output = handed or output


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
    key = (chosen, role, repr(config), base_url, api_key, frozen_arguments(model_args))
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
