"""What a call is expected to cost, before it is known.

Input is counted before it is sent, by a tokenizer or by its length; how that compares with what the provider counts is
learned as it goes: a ratio, and what every call has beside what was counted (tool definitions, a template). Output is
expected to be what it was on average.
"""

from __future__ import annotations

from typing import Final

from attrs import define, field

from proctor.model.pacing.values import Call, Usage

UNSEEN_OUTPUT: Final = 250.0  # tokens expected of an answer when nothing is known at all
UNSEEN_SHARE: Final = 0.25  # of its limit, when only that is known
LATEST: Final = 0.02  # weight of the latest call in a mean, once there were many
DOUBTS: Final = 2.0  # deviations of an input's size that are kept free for it
MOST_OFF: Final = 4.0  # times its count that an input is taken to come to at most


@define(eq=False)
class Estimates:
    """Means over the calls so far.

    Attributes:
        reserves: the provider counts a call's limit of output until it is complete.
        input: mean tokens of input, as counted here. output: mean tokens of output, 0 before any was seen.
        ratio: what an input comes to by its count. doubt: how much it deviates from that, on average.
        extra: tokens of input that a call has beyond that, on average; never less than none.
    """

    reserves: bool = field(default=False, init=False)
    input: float = field(default=0.0, init=False)
    output: float = field(default=0.0, init=False)
    ratio: float = field(default=1.0, init=False)
    doubt: float = field(default=0.0, init=False)
    extra: float = field(default=0.0, init=False)
    _inputs: int = field(default=0, init=False)
    _outputs: int = field(default=0, init=False)

    def tokens(self, call: Call) -> float:
        """Tokens of input to expect."""
        return call.input_tokens * self.ratio + self.extra

    def tokens_at_most(self, input_tokens: float) -> float:
        """Tokens of input that are rarely exceeded."""
        return input_tokens * (self.ratio + DOUBTS * self.doubt) + self.extra

    def typical_output(self, max_output_tokens: int | None) -> float:
        """Tokens of output to expect."""
        if self._outputs:
            return self.output
        return UNSEEN_OUTPUT if max_output_tokens is None else UNSEEN_SHARE * max_output_tokens

    def needed_output(self, max_output_tokens: int | None) -> float:
        """Tokens of output that must be there when a call is sent."""
        if self.reserves and max_output_tokens is not None:
            return max_output_tokens
        return self.typical_output(max_output_tokens)

    def sent(self, call: Call) -> None:
        """A call is sent."""
        self._inputs += 1
        self.input += max(1 / self._inputs, LATEST) * (call.input_tokens - self.input)

    def seen(self, call: Call, usage: Usage) -> None:
        """What a call came to."""
        self._outputs += 1
        self.output += max(1 / self._outputs, LATEST) * (usage.output_tokens - self.output)
        if call.input_tokens > 0 and usage.input_tokens > 0:
            off = min(MOST_OFF, usage.input_tokens / call.input_tokens) - self.ratio
            self.ratio += LATEST * off
            self.doubt += LATEST * (abs(off) - self.doubt)
            beyond = usage.input_tokens - call.input_tokens * self.ratio
            self.extra = max(0.0, self.extra + max(1 / self._outputs, LATEST) * (beyond - self.extra))
