"""`TaskState`: what the solvers of a sample work on."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, Final, TypeVar

from proctor.dataset.sample import metadata_as
from proctor.log.records import Score
from proctor.model.messages import ChatMessage, ChatMessageUser
from proctor.model.output import ModelOutput
from proctor.model.toolcall import ToolChoice
from proctor.runtime import applied as limits
from proctor.runtime.applied import SampleLimits
from proctor.runtime.blocks import check_messages, check_used
from proctor.runtime.runtime import new_id
from proctor.runtime.sample_limits import current_sample
from proctor.scorer.target import Target
from proctor.solver.choices import Choices
from proctor.solver.conversation import Conversation
from proctor.solver.store import Store
from proctor.solver.using import Using

M = TypeVar("M")


class TaskState:
    """The state of one sample in one epoch. Solvers change it, or return another in its place.

    Args:
        model: the evaluated model's name.
        sample_id: the sample's id. epoch: from 1.
        input: of the sample; not to be changed.
        messages: the conversation, which belongs to the state.
        target: what the scorers compare with.
        choices: of a multiple-choice question.
        output: the last output of the model; default an empty one.
        message_limit, token_limit, cost_limit: the sample's. token_limit_type: which tokens count (`token_limit`).
        completed: whether no further solver is to run.
        metadata: of the sample, shared with no other state.
        store: values to begin with, copied.
        scores: given before scorers run.
        sample_uuid: names this run of the sample; default a new id.

    Attributes:
        tools, tool_choice: what the model is offered.
    """

    def __init__(
        self,
        model: Any,
        sample_id: int | str,
        epoch: int,
        input: str | list[ChatMessage],
        messages: list[ChatMessage],
        target: Target | None = None,
        choices: Sequence[str] | None = None,
        output: ModelOutput | None = None,
        message_limit: int | None = None,
        token_limit: int | None = None,
        token_limit_type: str = "all",  # noqa: S107  # tokens of a model
        cost_limit: float | None = None,
        completed: bool = False,
        metadata: dict[str, Any] | None = None,
        store: dict[str, Any] | None = None,
        scores: dict[str, Score] | None = None,
        sample_uuid: str | None = None,
    ) -> None:
        self._model, self._sample_id, self._epoch, self._input = model, sample_id, epoch, input
        self._target = Target("") if target is None else target
        self._message_block = limits.message_limit(message_limit)
        self._token_block = limits.token_limit(token_limit, token_limit_type)
        self._cost_block = limits.cost_limit(cost_limit)
        self._store = Store(store)
        self._uuid = sample_uuid or new_id()
        self._tools: list[Any] = []
        self.tool_choice: ToolChoice | None = None
        self._messages = Conversation(messages)
        self.choices = Choices(choices or ())
        self.output = ModelOutput(model=str(model)) if output is None else output
        self.completed = completed
        self.metadata = {} if metadata is None else metadata
        self.scores = scores

    @property
    def model(self) -> Any:
        """The evaluated model's name."""
        return self._model

    @property
    def sample_id(self) -> int | str:
        """The sample's id."""
        return self._sample_id

    @property
    def epoch(self) -> int:
        """Which epoch, from 1."""
        return self._epoch

    @property
    def uuid(self) -> str:
        """Names this run of the sample."""
        return self._uuid

    @property
    def input(self) -> str | list[ChatMessage]:
        """The sample's input."""
        return self._input

    @property
    def input_text(self) -> str:
        """The sample's input as text: of a conversation the last user message, of one without text its kinds of
        content, as in ``[image]``.

        Raises:
            ValueError: the input has no user message.
        """
        if isinstance(self._input, str):
            return self._input
        message = _last_user_message(self._input, "the sample's input")
        if message.text or isinstance(message.content, str):
            return message.text
        return " ".join(f"[{part.type}]" for part in message.content if part.type != "text")

    @property
    def user_prompt(self) -> ChatMessageUser:
        """The last user message of the conversation; its text may be changed.

        Raises:
            ValueError: there is none.
        """
        return _last_user_message(self.messages, "the conversation")

    @property
    def target(self) -> Target:
        """What the scorers compare with."""
        return self._target

    @property
    def store(self) -> Store:
        """Values that the sample's solvers, tools and scorers share."""
        return self._store

    @property
    def tools(self) -> list[Any]:
        """The tools that the model is offered."""
        return self._tools

    @tools.setter
    def tools(self, tools: Sequence[Any]) -> None:
        self._tools = [tool.as_tool() if hasattr(tool, "as_tool") else tool for tool in tools]

    @property
    def messages(self) -> list[ChatMessage]:
        """The conversation; the sample's message limit holds for it."""
        return self._messages

    @messages.setter
    def messages(self, messages: list[ChatMessage]) -> None:
        check_messages(len(messages))
        self._messages = messages if isinstance(messages, Conversation) else Conversation(messages)

    @property
    def message_limit(self) -> int | None:
        """The most messages that the sample's conversations may have. Setting it ends the sample if there are more."""
        return _whole(self._message_block.limit)

    @message_limit.setter
    def message_limit(self, messages: int | None) -> None:
        self._message_block.limit = messages
        check_messages(len(self._messages))

    @property
    def token_limit(self) -> int | None:
        """The most tokens that the sample may use. Setting it ends the sample if it has used more."""
        return _whole(self._token_block.limit)

    @token_limit.setter
    def token_limit(self, tokens: int | None) -> None:
        self._token_block.limit = tokens
        check_used()

    @property
    def token_limit_type(self) -> str:
        """Which tokens count towards the token limit."""
        return self._token_block.type

    @property
    def cost_limit(self) -> float | None:
        """The most dollars that the sample may cost. Setting it ends the sample if it has cost more."""
        return self._cost_block.limit

    @cost_limit.setter
    def cost_limit(self, cost: float | None) -> None:
        self._cost_block.limit = cost
        check_used()

    @property
    def token_usage(self) -> int:
        """Tokens the sample has used so far."""
        sample = current_sample()
        return 0 if sample is None else sum(usage.total_tokens for usage in sample.usage.values())

    @property
    def cost_usage(self) -> float:
        """What the sample has cost so far, in dollars."""
        sample = current_sample()
        return 0.0 if sample is None else sum(usage.total_cost or 0.0 for usage in sample.usage.values())

    def metadata_as(self, metadata_cls: type[M]) -> M:
        """The metadata as an instance of a class with the fields that it has.

        Raises:
            ValueError: it does not fit the class.
        """
        return metadata_as(self.metadata, metadata_cls)

    def store_as(self, model_cls: type[M], instance: str | None = None) -> M:
        """The store seen through a model class that is made from a store."""
        make: Any = model_cls
        made: M = make(store=self.store, instance=instance)
        return made

    def __repr__(self) -> str:
        return f"TaskState(sample_id={self._sample_id!r}, epoch={self._epoch}, {len(self.messages)} messages)"


def state_limits(
    state: TaskState, *, turns: int | None = None, seconds: float | None = None, working: float | None = None
) -> SampleLimits:
    """The limits of the sample that begins with `state`; those on messages, tokens and cost can be set on it."""
    return SampleLimits(
        token=state._token_block,
        cost=state._cost_block,
        message=state._message_block,
        turn=limits.turn_limit(turns),
        working=limits.working_limit(working),
        time=limits.time_limit(seconds),
    )


def _whole(limit: float | None) -> int | None:
    return None if limit is None else int(limit)


def _last_user_message(messages: Sequence[ChatMessage], where: str) -> ChatMessageUser:
    for message in reversed(messages):
        if isinstance(message, ChatMessageUser):
            return message
    raise ValueError(f"there is no user message in {where}")


_state: Final[ContextVar[TaskState | None]] = ContextVar("proctor_state", default=None)


def sample_state() -> TaskState | None:
    """The state of the running sample, None outside of one."""
    return _state.get()


def use_state(current: TaskState) -> Using[TaskState]:
    """``with use_state(state):`` makes it the one that `sample_state` finds, in this task and those started below."""
    return Using(_state, current)


def replace_state(state: TaskState) -> None:
    """Make `state` the current one of this task from now on: a solver may have returned another than it was given."""
    _state.set(state)
