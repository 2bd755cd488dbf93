"""What an agent is: an async function of a conversation, which it goes on with until it is done."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from typing import Any, Final, ParamSpec, Protocol, overload, runtime_checkable

from attrs import evolve

from proctor import registry
from proctor.errors import UsageError
from proctor.model.messages import ChatMessage, ChatMessageAssistant
from proctor.model.output import ChatCompletionChoice, ModelOutput
from proctor.scorer.scoring import checked_async
from proctor.solver.conversation import Conversation

P = ParamSpec("P")

SPAN: Final = "agent"
"""The type of an agent's span in the transcript."""


class AgentState:
    """A conversation, and the last output of a model in it.

    Args:
        messages: the conversation; the message limit around it holds for it.
    """

    def __init__(self, *, messages: list[ChatMessage]) -> None:
        self._messages = Conversation(messages)
        self._output: ModelOutput | None = None

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation."""
        return self._messages

    @messages.setter
    def messages(self, messages: list[ChatMessage]) -> None:
        self._messages = messages if isinstance(messages, Conversation) else Conversation(messages)

    @property
    def output(self) -> ModelOutput:
        """The last output; until there is one, it is made of the last message of a model."""
        if self._output is None:
            said = (each for each in reversed(self._messages) if isinstance(each, ChatMessageAssistant))
            last = next(said, None)
            if last is None:
                return ModelOutput()
            choice = ChatCompletionChoice(message=last.model_copy(), stop_reason="stop")
            self._output = ModelOutput(model=last.model or "", choices=[choice])
        return self._output

    @output.setter
    def output(self, output: ModelOutput) -> None:
        self._output = output

    def __copy__(self) -> AgentState:
        made = AgentState(messages=self._messages)
        made._output = None if self._output is None else self._output.model_copy()
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> AgentState:
        made = AgentState(messages=deepcopy(self._messages, memo))
        made._output = deepcopy(self._output, memo)
        return made


@runtime_checkable
class Agent(Protocol):
    """Goes on with a conversation: it changes the state, or makes another, and returns it."""

    async def __call__(self, state: AgentState, *args: Any, **kwargs: Any) -> AgentState: ...


@overload
def agent(func: Callable[P, Agent]) -> Callable[P, Agent]: ...
@overload
def agent(
    func: None = None, *, name: str | None = None, description: str | None = None
) -> Callable[[Callable[P, Agent]], Callable[P, Agent]]: ...
def agent(func: Callable[P, Agent] | None = None, *, name: str | None = None, description: str | None = None) -> Any:
    """Register a function that returns an agent.

    Args:
        name: default the function's own. description: for models that may call it (`as_tool`, `handoff`).
    """

    def decorate(factory: Callable[P, Agent]) -> Callable[P, Agent]:
        known_as = name or str(getattr(factory, "__name__", "agent"))
        shown: dict[str, str] = {}

        def finish(made: Agent) -> Agent:
            inner = registry.info_of(made)
            shown.clear()
            if inner is not None:
                shown.update({key: inner.metadata[key] for key in ("name", "description") if key in inner.metadata})
            return checked_async(made, "agent", known_as, "state")

        make: Callable[P, Agent] = registry.registered("agent", factory, name=known_as, finish=finish)

        def decorated(*args: P.args, **kwargs: P.kwargs) -> Agent:
            made = make(*args, **kwargs)
            own = {key: value for key, value in (("name", name), ("description", description)) if value}
            _describe(made, {**shown, **own})
            return made

        decorated.__wrapped__ = factory  # type: ignore[attr-defined]  # its signature and its text
        decorated.__name__, decorated.__doc__ = known_as, factory.__doc__
        found = registry.info_of(make)
        assert found is not None
        registry.tag(decorated, found)
        registry.register("agent", known_as, decorated)
        return decorated

    return decorate if func is None else decorate(func)


def _describe(agent: Agent, said: dict[str, str]) -> None:
    info = registry.info_of(agent)
    assert info is not None
    registry.tag(agent, evolve(info, metadata={**info.metadata, **said}))


def agent_with(agent: Agent, *, name: str | None = None, description: str | None = None) -> Agent:
    """Change what an agent is called and how it is described, in place, and return it."""
    if registry.info_of(agent) is None:
        registry.tag(agent, registry.RegistryInfo("agent", str(getattr(agent, "__name__", "agent"))))
    _describe(agent, {key: value for key, value in (("name", name), ("description", description)) if value})
    return agent


def is_agent(value: Any) -> bool:
    """Whether it was made by a function that `@agent` decorates."""
    info = registry.info_of(value)
    return info is not None and info.kind == "agent"


def agent_name(agent: Any) -> str:
    """What an agent is called in transcripts and by other agents.

    Raises:
        UsageError: nothing that `@agent` decorates has made it.
    """
    info = registry.info_of(agent)
    if info is None or info.kind != "agent":
        raise UsageError(f"{agent!r} is no agent: decorate with @agent the function that returns it")
    return str(info.metadata.get("name") or info.name)


def agent_description(agent: Any) -> str | None:
    """How an agent is described to other agents, None when nothing is said."""
    info = registry.info_of(agent)
    said = None if info is None else info.metadata.get("description")
    return None if said is None else str(said)
