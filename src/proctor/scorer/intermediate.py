"""`score`: the scorers of the running task, before its end."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar, Token
from copy import copy
from typing import TYPE_CHECKING, Any, Final

from attrs import define, field

from proctor.errors import UsageError
from proctor.log.events import ScoreEvent
from proctor.log.transcript import transcript

if TYPE_CHECKING:
    from proctor.log.scores import Score
    from proctor.scorer.target import Target

_scoring: Final[ContextVar[use_scorers | None]] = ContextVar("proctor_scorers", default=None)


@define(eq=False)
class use_scorers:  # noqa: N801  # reads as the function it stands for
    """``with use_scorers(scorers, target):`` what `score` asks, in this task and in those started below."""

    scorers: Mapping[str, Any]
    target: Target
    _token: Token[use_scorers | None] | None = field(default=None, init=False)

    def __enter__(self) -> None:
        self._token = _scoring.set(self)

    def __exit__(self, *exc: object) -> None:
        if self._token is not None:
            _scoring.reset(self._token)


async def score(conversation: Any) -> list[Score]:
    """Score a conversation with the scorers of the running task. The scores are noted as intermediate ones.

    Args:
        conversation: a `TaskState`, or an `AgentState`, whose messages and output are scored.

    Returns:
        A score of each scorer that gave one.

    Raises:
        UsageError: no task is running, or it has no scorers.
    """
    from proctor.solver.state import TaskState, sample_state

    scoring, running = _scoring.get(), sample_state()
    if scoring is None or running is None or not scoring.scorers:
        raise UsageError("score() works while a task with scorers is running: this one has none")
    if isinstance(conversation, TaskState):
        state = conversation
    else:
        state = copy(running)
        state.messages, state.output = conversation.messages, conversation.output
    found = []
    for name, scorer in scoring.scorers.items():
        given: Score | None = await scorer(state, scoring.target)
        if given is not None:
            found.append(given)
            transcript().add(ScoreEvent(score=given, target=scoring.target.target, intermediate=True, scorer=name))
    return found
