"""Every public exception of proctor.

::

    Exception
    ├─ ProctorError                     anything proctor raises on purpose
    │  ├─ UsageError                    a mistake a user can mend: says what, where, what to do
    │  │  ├─ OptionError                an option's value is refused (also a ValueError)
    │  │  ├─ NotFoundError              a task, model, provider, solver, file … by a name that nothing has
    │  │  ├─ MissingKeyError            no API key of a model's provider was given
    │  │  ├─ DatasetError               a dataset that cannot be read: file, row, column
    │  │  ├─ TaskFileError              a task file that cannot be loaded
    │  │  └─ LogError                   a log that cannot be read or written
    │  ├─ KernelError                   the actor library
    │  │  ├─ RankError                  leases asked for out of order, before queueing
    │  │  ├─ DeadlockError              a wait that can never end, with the names
    │  │  ├─ LeaseMisuse                a lease left twice, out of order or in another task
    │  │  ├─ LeaseRevoked               the limiter took a revocable lease back
    │  │  ├─ LimiterClosed              the limiter is closed, with its cause
    │  │  ├─ ActorGone                  the actor died or was stopped, with its cause
    │  │  ├─ SelfAsk                    an actor asked itself
    │  │  └─ MailboxFull                a bounded mailbox has no room for a tell
    │  ├─ SampleEnded                   a lease asked for, or held, below a sample that has ended
    │  ├─ ModelError                    a model call's final failure
    │  │  ├─ ModelGivenUp               key refused or model unknown: its tasks end with this message
    │  │  ├─ RateLimitError             429 and the providers' overload codes
    │  │  └─ TransientModelError        408, 5xx, connection errors, attempts that timed out
    │  ├─ LimitExceededError            a sample's message, token, turn, time, working or cost limit
    │  ├─ ToolError                     a tool's own failure, shown to the model
    │  │  ├─ ToolParsingError           a call whose arguments cannot be read or do not fit
    │  │  └─ ToolApprovalError          a call that was not approved
    │  ├─ ProcessTimeout                a command whose time was over, with its output so far (also a TimeoutError)
    │  ├─ OutputLimitExceededError      a sandbox's output, or a file in it, is too large
    │  ├─ SandboxUnavailableError       the sandbox is no longer there: its sample is an error
    │  └─ Fault                         raise it (or a subclass) in an actor to be restarted
    └─ ExceptionGroup
       └─ SupervisorExhausted           restarts used up: a group of every cause
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


class ProctorError(Exception):
    """The root of what proctor raises on purpose."""


class UsageError(ProctorError):
    """A mistake that the user can mend. The text says what was wrong, where, and what to do."""


class OptionError(UsageError, ValueError):
    """The value of an option is refused; the text names the option."""


class NotFoundError(UsageError, LookupError):
    """No task, model, provider, solver, scorer or file has this name."""


class MissingKeyError(UsageError):
    """No API key of a model's provider was given; the text says where one is looked for."""


class DatasetError(UsageError):
    """A dataset cannot be read; the text names file, row and column."""


class TaskFileError(UsageError):
    """A task file cannot be loaded or holds no task."""


class LogError(UsageError):
    """A log cannot be read or written."""


class KernelError(ProctorError):
    """The root of the actor library's errors."""


class RankError(KernelError):
    """A lease was asked for out of rank order; raised before queueing."""


class DeadlockError(KernelError):
    """A wait that can never end; the text names holders and waiters."""


class LeaseMisuse(KernelError, RuntimeError):
    """A lease was left twice, out of order, in another task or across a generator's yield."""


class LeaseRevoked(KernelError):
    """The limiter took a revocable lease back.

    Attributes:
        reason: why, as given to `Limiter.revoke`.
    """

    def __init__(self, reason: object) -> None:
        super().__init__(str(reason))
        self.reason = reason


class LimiterClosed(KernelError):
    """The limiter is closed; `__cause__` is the cause given to `Limiter.close`."""


class ActorGone(KernelError):
    """The actor died or was stopped; `__cause__` says of what."""


class SelfAsk(KernelError, RuntimeError):
    """An actor asked itself, which could never be answered."""


class MailboxFull(KernelError):
    """A bounded mailbox has no room for a tell."""


class SampleEnded(ProctorError):
    """A lease was asked for, or still held, below a sample that has ended."""


class ModelError(ProctorError):
    """A model call failed for good.

    Attributes:
        status: the HTTP status, None when there was none.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class ModelGivenUp(ModelError):
    """The key was refused or the model is unknown: one request, one message, other models go on."""


class RateLimitError(ModelError):
    """The provider said that calls come too fast.

    Attributes:
        retry_after: seconds it asked us to wait, None when it did not say.
    """

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after


class TransientModelError(ModelError):
    """A failure that a later attempt may not meet: 408, 5xx, connection errors, a timed-out attempt.

    Attributes:
        retry_after: seconds the provider asked us to wait, None when it did not say.
    """

    def __init__(self, message: str, *, status: int | None = None, retry_after: float | None = None) -> None:
        super().__init__(message, status=status)
        self.retry_after = retry_after


class LimitExceededError(ProctorError):
    """A limit of a sample or of a block was reached. It ends the sample in order; it is no error of it.

    Attributes:
        type: message, token, turn, time, working, cost, operator or custom.
        value: what was used. limit: what was allowed, in the limit's own unit (seconds, tokens, messages, dollars).
        message: the text.
        source: the limit that was met, as `token_limit` and the like made it; None for one that is no such object.
        output: the model's answer whose usage met the limit, None when no call was made.
    """

    def __init__(
        self, type: str, *, value: float, limit: float, message: str | None = None, source: object = None
    ) -> None:
        self.message = message or f"{type} limit of {limit:,} exceeded: {value:,}"
        super().__init__(self.message)
        self.type, self.value, self.limit, self.source = type, value, limit, source
        self.output: Any = None


class ToolError(ProctorError):
    """A tool's own failure; its text is what the model is shown.

    Attributes:
        message: the text.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class ToolParsingError(ToolError):
    """The arguments of a tool call cannot be read, or do not fit the tool's parameters."""


class ToolApprovalError(ToolError):
    """A tool call was not approved."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or "The tool call was not approved.")


class OutputLimitExceededError(ProctorError):
    """More came out of a sandbox than is taken.

    Attributes:
        limit_str: the limit in words. truncated_output: what was kept, None when nothing was.
    """

    def __init__(self, limit_str: str, truncated_output: str | None = None) -> None:
        super().__init__(f"the sandbox gave more than the limit of {limit_str}")
        self.limit_str, self.truncated_output = limit_str, truncated_output


class SandboxUnavailableError(ProctorError, RuntimeError):
    """The sandbox is no longer there, or could not be asked; the text says what is known of its end."""


class ProcessTimeout(ProctorError, TimeoutError):
    """A command ran for longer than it may and was ended.

    Attributes:
        stdout, stderr: what it had written, as text or bytes, whichever was asked for.
        truncated: by stream the bytes it wrote in all, for those of which only the end was kept.
    """

    def __init__(self, message: str, *, stdout: Any, stderr: Any, truncated: Mapping[str, int]) -> None:
        super().__init__(message)
        self.stdout, self.stderr, self.truncated = stdout, stderr, truncated


class Fault(ProctorError):
    """A declared fault: an actor that dies of one is restarted by its supervisor."""


class SupervisorExhausted(ExceptionGroup[Exception]):
    """A supervisor has used up its restarts; the group holds every cause, oldest first."""

    def derive(self, excs: Sequence[Exception]) -> SupervisorExhausted:  # type: ignore[override]
        return SupervisorExhausted(self.message, list(excs))


def with_notes(error: BaseException, *notes: Any) -> BaseException:
    """Add notes to `error` unless it has them, and return it: context without wrapping."""
    present = getattr(error, "__notes__", ())
    for note in notes:
        if str(note) not in present:
            error.add_note(str(note))
    return error


__all__ = [
    "ActorGone",
    "DatasetError",
    "DeadlockError",
    "Fault",
    "KernelError",
    "LeaseMisuse",
    "LeaseRevoked",
    "LimitExceededError",
    "LimiterClosed",
    "LogError",
    "MailboxFull",
    "MissingKeyError",
    "ModelError",
    "ModelGivenUp",
    "NotFoundError",
    "OptionError",
    "OutputLimitExceededError",
    "ProctorError",
    "RankError",
    "RateLimitError",
    "SampleEnded",
    "SandboxUnavailableError",
    "SelfAsk",
    "SupervisorExhausted",
    "TaskFileError",
    "ToolApprovalError",
    "ToolError",
    "ToolParsingError",
    "TransientModelError",
    "UsageError",
    "with_notes",
]
