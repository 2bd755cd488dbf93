"""The turn of one call at a paced model: one lease over all its attempts, and what is told to the pacer of each."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import Any, Final

from attrs import define

from proctor.actors import Lease
from proctor.model.actor import ModelShare
from proctor.model.exchange import Exchange
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelOutput
from proctor.model.pacing import Call, QuotaReading, Usage
from proctor.model.retry import Failure, Turn, Unpaced
from proctor.runtime import Runtime, SampleContext

CHARACTERS_A_TOKEN: Final = 4
PART: Final = 1000  # characters that a part of a message counts that is no text


@define(eq=False)
class PacedTurn:
    """The turn of a call at a paced model (`Turn`).

    Attributes:
        exchange: what the response of the attempt under way says; made anew for each.
    """

    share: ModelShare
    call: Call
    lease: Lease
    exchange: Exchange

    def __aenter__(self) -> Awaitable[Any]:
        self.share.check()
        return self.lease.__aenter__()

    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> Awaitable[bool | None]:
        return self.lease.__aexit__(kind, error, traceback)

    def succeeded(self, result: ModelOutput) -> None:
        said = result.usage
        if said is not None:
            usage = Usage(said.input_tokens, said.output_tokens)
        else:
            usage = Usage(self.call.input_tokens, len(result.completion) // CHARACTERS_A_TOKEN)
        self.share.admission.succeeded(self.call, self.share.now(), usage, self._quota())

    def failed(self, failure: Failure) -> None:
        self.share.admission.ended(self.call, self.share.now(), failure, self._quota())

    def again(self, failure: Failure) -> Awaitable[None]:
        share, quota = self.share, self._quota()

        def settle(now: float) -> None:
            share.admission.failed(self.call, now, failure, quota)
            share.retrying((share.admission.next_wakeup(now) or now) - now, self.call.group)

        return self.lease.requeue(settle)

    def _quota(self) -> Sequence[QuotaReading]:
        return self.exchange.readings(self.share.api)


def turn_of(
    share: ModelShare,
    runtime: Runtime,
    sample: SampleContext | None,
    *,
    order: tuple[int, ...] | None,
    messages: Sequence[ChatMessage],
    max_tokens: int | None,
    exchange: Exchange,
) -> Turn:
    """The turn of a call.

    Args:
        order: the call's place within its group. max_tokens: of its answer, None without a limit.
        exchange: where what its responses say is noted.
    """
    if share.api.composite:  # it calls other models, and takes no connection
        return Unpaced(nullcontext, share, runtime.random)
    group, weight = (None, 1.0) if sample is None else (sample.group, sample.weight)
    call = Call(group, order or (), weight, tokens_of(messages), max_tokens)
    if sample is not None and share.admission.expected:
        share.admission.called(sample.admission, share.now())
    return PacedTurn(share, call, share.limiter.lease(item=call), exchange)


def tokens_of(messages: Sequence[ChatMessage]) -> int:
    """What a conversation comes to, as far as its length says."""
    characters = 0
    for message in messages:
        content = message.content
        if isinstance(content, str):
            characters += len(content)
        else:
            characters += sum(len(text) if (text := getattr(part, "text", None)) else PART for part in content)
    return max(1, characters // CHARACTERS_A_TOKEN)
