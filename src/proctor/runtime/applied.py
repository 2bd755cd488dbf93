"""What users write: ``with token_limit(n):`` and its like, several at once, and the limits of the running sample."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from attrs import define, frozen

from proctor.errors import LimitExceededError, OptionError, UsageError
from proctor.runtime.blocks import (
    CostBlock,
    Limit,
    MessageBlock,
    TimeBlock,
    TokenBlock,
    TurnBlock,
    WorkingBlock,
)
from proctor.runtime.sample_limits import current_sample
from proctor.runtime.tokens import TokenLimit, plain_limit


def token_limit(limit: int | str | TokenLimit | None, type: str = "all") -> TokenBlock:
    """Limit the tokens that model calls of a block use.

    Args:
        limit: None for any number. Also a text (``500k``, ``output:100k``) or a `TokenLimit`.
        type: which tokens count: ``all``, ``output``, or a formula such as ``(input*0.1)+output``.

    Raises:
        OptionError: the limit or the type is refused.
    """
    if limit is not None and not isinstance(limit, int):
        limit = plain_limit(limit)
    if isinstance(limit, TokenLimit):
        if type != "all":
            raise OptionError("token limit: give the type once, in the limit or beside it")
        return TokenBlock(limit.tokens, limit.type)
    return TokenBlock(limit, type)


def cost_limit(limit: float | None) -> CostBlock:
    """Limit what model calls of a block cost, in dollars; the models' prices must be known (`model_cost_config`).

    Args:
        limit: None for any amount.
    """
    return CostBlock(limit)


def turn_limit(limit: int | None) -> TurnBlock:
    """Limit how many answers models give in a block: a call after the last one is not sent.

    Args:
        limit: None for any number.
    """
    return TurnBlock(limit)


def message_limit(limit: int | None) -> MessageBlock:
    """Limit the messages of the conversations of a block, also those that were there before.

    Args:
        limit: None for any number. Of nested ones the innermost counts.
    """
    return MessageBlock(limit)


def time_limit(limit: float | None) -> TimeBlock:
    """Limit the seconds that a block takes: it is cancelled, and the ``with`` statement raises.

    Args:
        limit: None for any time.
    """
    return TimeBlock(limit)


def working_limit(limit: float | None) -> WorkingBlock:
    """Limit the seconds that a block works: waiting for a turn or for a retry is no work. As `time_limit` else.

    Args:
        limit: None for any time.
    """
    return WorkingBlock(limit)


@define(eq=False)
class LimitScope:
    """What became of the limits of an `apply_limits` block.

    Attributes:
        limit_error: the error of the one that was met, None when none was.
    """

    limit_error: LimitExceededError | None = None


@contextmanager
def apply_limits(limits: Sequence[Limit], catch_errors: bool = False) -> Iterator[LimitScope]:
    """Several limits on one block, the first outermost.

    Args:
        limits: made by `token_limit` and the like.
        catch_errors: keep the error of one of these in `LimitScope.limit_error` instead of raising it. Errors of
            other limits, such as the sample's, are raised in any case.
    """
    scope = LimitScope()
    try:
        with ExitStack() as stack:
            for limit in limits:
                stack.enter_context(limit)
            yield scope
    except (LimitExceededError, BaseExceptionGroup) as error:
        scope.limit_error = _error_of(limits, error)
        if not catch_errors or scope.limit_error is None:
            raise


@frozen(eq=False, kw_only=True)
class SampleLimits:
    """The limits of a sample, each with what is allowed and what has been used."""

    token: TokenBlock
    cost: CostBlock
    message: MessageBlock
    turn: TurnBlock
    working: WorkingBlock
    time: TimeBlock


def sample_limits() -> SampleLimits:
    """The limits of the running sample; in its scorers, as they were when its solvers ended.

    Raises:
        UsageError: no sample is running.
    """
    sample = current_sample()
    if sample is None or sample.limits is None:
        raise UsageError("sample_limits() was called outside of a running sample")
    limits: SampleLimits = sample.limits
    return limits


def _error_of(limits: Sequence[Limit], error: BaseException) -> LimitExceededError | None:
    """The error of one of these limits, alone or as what a nursery's group is made of."""
    if isinstance(error, BaseExceptionGroup):
        found = [_error_of(limits, each) for each in error.exceptions]
        return found[0] if all(found) else None
    own = isinstance(error, LimitExceededError) and any(error.source is limit for limit in limits)
    return error if own and isinstance(error, LimitExceededError) else None
