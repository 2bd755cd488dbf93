"""How a model is asked to generate: value classes with the field names and order of the log format.

Every field of `GenerateConfig` may be None, "not said here": configurations are merged, and the last that says
something wins. Values are checked where they are set, so that a wrong one is refused before anything is sent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, TypeAlias

from attrs import Attribute, define, field, fields_dict

from proctor.errors import OptionError
from proctor.model.portable import Portable
from proctor.model.schema import JSONSchema

Validator: TypeAlias = Callable[[Any, "Attribute[Any]", Any], None]


@define(kw_only=True)
class ResponseSchema(Portable):
    """A schema that the answer must follow.

    Attributes:
        name: letters, digits, ``_`` and ``-``, at most 64. strict: ask the provider to enforce it.
    """

    name: str
    json_schema: JSONSchema
    description: str | None = None
    strict: bool | None = None


@define(kw_only=True)
class BatchConfig(Portable):
    """Batched generation: sizes, and seconds between checks."""

    size: int | None = None
    max_size: int | None = None
    send_delay: float | None = None
    tick: float | None = None
    max_batches: int | None = None
    max_consecutive_check_failures: int | None = None


@define(kw_only=True)
class ImageOutput(Portable):
    """Images as an output modality, with the provider's own options."""

    options: dict[str, dict[str, Any]] | None = None


CACHE_EXPIRY: Final = re.compile(r"([1-9]\d*)([smhDWMYdwy])")
"""A number and a unit: seconds, minutes, hours, days, weeks, months of 30 days, years of 365."""


@define(kw_only=True)
class CachePolicy(Portable):
    """How long an answer may be reused.

    Attributes:
        expiry: such as ``12h`` or ``1W``; None for ever.
        per_epoch: whether each epoch has answers of its own. scopes: added to the key.
    """

    expiry: str | None = "1W"
    per_epoch: bool = True
    scopes: dict[str, str] = field(factory=dict)

    @staticmethod
    def from_string(expiry: str) -> CachePolicy | None:
        """The policy of an expiry such as ``12h``, None for a text that is none."""
        return CachePolicy(expiry=expiry) if CACHE_EXPIRY.fullmatch(expiry) else None


ADAPTIVE_MIN: Final = 10
ADAPTIVE_START: Final = 20
ADAPTIVE_MAX: Final = 100


@define(kw_only=True, init=False)
class AdaptiveConcurrency(Portable):
    """Bounds for the number of calls in flight, between which pacing moves.

    Attributes:
        min, max, start: the bounds and the first value; 10, 100 and 20, pulled within what is given.
        cooldown_seconds, decrease_factor, scale_up_percent: accepted for ported code; pacing needs none of them.
    """

    min: int
    max: int
    start: int
    cooldown_seconds: float
    decrease_factor: float
    scale_up_percent: float

    def __init__(
        self,
        *,
        min: int | None = None,
        max: int = ADAPTIVE_MAX,
        start: int | None = None,
        cooldown_seconds: float = 15.0,
        decrease_factor: float = 0.8,
        scale_up_percent: float = 0.05,
    ) -> None:
        low = (ADAPTIVE_MIN if max >= ADAPTIVE_MIN else max) if min is None else min
        first = sorted((low, ADAPTIVE_START, max))[1] if start is None else start
        if not 1 <= low <= first <= max:
            raise OptionError(
                f"adaptive_connections: 1 <= min <= start <= max is needed, got min={low}, start={first}, max={max}"
            )
        self.min, self.max, self.start = low, max, first
        self.cooldown_seconds = cooldown_seconds
        self.decrease_factor = decrease_factor
        self.scale_up_percent = scale_up_percent

    @classmethod
    def parse(cls, text: str) -> AdaptiveConcurrency:
        """Bounds written ``min-max`` or ``min-start-max``.

        Raises:
            OptionError: the text is neither, or the bounds are out of order.
        """
        try:
            numbers = [int(part) for part in text.split("-")]
        except ValueError:
            numbers = []
        if len(numbers) == 2:
            return cls(min=numbers[0], max=numbers[1])
        if len(numbers) == 3:
            return cls(min=numbers[0], start=numbers[1], max=numbers[2])
        raise OptionError(f"adaptive_connections: {text!r} is neither min-max nor min-start-max")


def _whole(least: int | None = None, most: int | None = None) -> Validator:
    """A whole number or None, within bounds."""

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int):
            raise OptionError(f"{attribute.name}: a whole number is needed, got {value!r}")
        _within(attribute.name, value, least, most)

    return check


def _real() -> Validator:
    """A finite number or None."""

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if value is None:
            return
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise OptionError(f"{attribute.name}: a number is needed, got {value!r}")

    return check


def _within(name: str, value: float, least: float | None, most: float | None) -> None:
    if least is not None and value < least:
        raise OptionError(f"{name}: must be at least {least}, got {value!r}")
    if most is not None and value > most:
        raise OptionError(f"{name}: must be at most {most}, got {value!r}")


def _kind(*kinds: type, what: str) -> Validator:
    """An instance of one of the classes or None."""

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if value is not None and not isinstance(value, kinds):
            raise OptionError(f"{attribute.name}: {what} is needed, got {value!r}")

    return check


def _one_of(*words: str) -> Validator:
    """One of the words or None."""

    def check(_: Any, attribute: Attribute[Any], value: Any) -> None:
        if value is not None and value not in words:
            raise OptionError(f"{attribute.name}: {value!r} is none of {', '.join(words)}")

    return check


def _adaptive(value: Any) -> Any:
    if isinstance(value, str):
        return AdaptiveConcurrency.parse(value)
    if isinstance(value, int) and value < 1 and not isinstance(value, bool):
        raise OptionError(f"adaptive_connections: must be at least 1, got {value!r}")
    return value


def _cache(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if (policy := CachePolicy.from_string(value)) is None:
        raise OptionError(f"cache: {value!r} is no time to keep answers; it is a number and a unit, as 12h or 1W")
    return policy


def _reasoning_history(value: Any) -> Any:
    if isinstance(value, bool):
        return "all" if value else "none"
    return value


_flag = _kind(bool, what="true or false")
_text = _kind(str, what="a text")
_list = _kind(list, tuple, what="a list")
_map = _kind(dict, what="a mapping")


@define(kw_only=True)
class GenerateConfig(Portable):
    """Options of a model call; None says nothing.

    Attributes:
        max_retries: attempts after the first; default unlimited.
        timeout: seconds for the whole call, retries and waits included; it interrupts.
        attempt_timeout: seconds for one attempt from the moment it is sent; default 600.
        stream_idle_timeout: seconds between two chunks of a stream.
        max_connections: calls in flight to one model on one account; a number switches adaptive pacing off.
        adaptive_connections: False, a maximum, ``min-max``, ``min-start-max`` or `AdaptiveConcurrency`.
        system_message: put before the input. max_tokens: of the answer.
        temperature, top_p, top_k, stop_seqs, best_of, frequency_penalty, presence_penalty, logit_bias, seed,
        num_choices, logprobs, top_logprobs, prompt_logprobs: sampling, where the provider has it.
        parallel_tool_calls, internal_tools, max_tool_output (bytes): tools.
        cache_prompt: the provider's prompt cache. fallback_models, fail_on_refusal: refusals.
        verbosity, effort, reasoning_effort, reasoning_mode, reasoning_tokens, reasoning_summary,
        reasoning_history: reasoning models.
        response_schema: the schema of the answer. extra_headers, extra_body: added to the request as they are.
        modalities: outputs beyond text. cache: reuse of answers. batch: batched generation.
    """

    max_retries: int | None = field(default=None, validator=_whole(0))
    timeout: int | None = field(default=None, validator=_whole(1))
    attempt_timeout: int | None = field(default=None, validator=_whole(1))
    stream_idle_timeout: int | None = field(default=None, validator=_whole(1))
    max_connections: int | None = field(default=None, validator=_whole(1))
    adaptive_connections: bool | int | AdaptiveConcurrency | None = field(
        default=None,
        converter=_adaptive,
        validator=_kind(bool, int, AdaptiveConcurrency, what="true, false, a number or bounds"),
    )
    system_message: str | None = field(default=None, validator=_text)
    max_tokens: int | None = field(default=None, validator=_whole(1))
    top_p: float | None = field(default=None, validator=_real())
    temperature: float | None = field(default=None, validator=_real())
    stop_seqs: list[str] | None = field(default=None, validator=_list)
    best_of: int | None = field(default=None, validator=_whole(1))
    frequency_penalty: float | None = field(default=None, validator=_real())
    presence_penalty: float | None = field(default=None, validator=_real())
    logit_bias: dict[int, float] | None = field(default=None, validator=_map)
    seed: int | None = field(default=None, validator=_whole())
    top_k: int | None = field(default=None, validator=_whole())
    num_choices: int | None = field(default=None, validator=_whole(1))
    logprobs: bool | None = field(default=None, validator=_flag)
    top_logprobs: int | None = field(default=None, validator=_whole(0))
    prompt_logprobs: int | None = field(default=None, validator=_whole(1, 20))
    parallel_tool_calls: bool | None = field(default=None, validator=_flag)
    internal_tools: bool | None = field(default=None, validator=_flag)
    max_tool_output: int | None = field(default=None, validator=_whole(0))
    cache_prompt: Literal["auto"] | bool | None = None
    fallback_models: list[str] | None = field(default=None, validator=_list)
    fail_on_refusal: bool | None = field(default=None, validator=_flag)
    verbosity: Literal["low", "medium", "high"] | None = field(default=None, validator=_one_of("low", "medium", "high"))
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = field(
        default=None, validator=_one_of("low", "medium", "high", "xhigh", "max")
    )
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = field(
        default=None, validator=_one_of("none", "minimal", "low", "medium", "high", "xhigh", "max")
    )
    reasoning_mode: Literal["standard", "pro"] | None = field(default=None, validator=_one_of("standard", "pro"))
    reasoning_tokens: int | None = field(default=None, validator=_whole(0))
    reasoning_summary: Literal["none", "concise", "detailed", "auto"] | None = field(
        default=None, validator=_one_of("none", "concise", "detailed", "auto")
    )
    reasoning_history: Literal["none", "all", "last", "auto"] | None = field(
        default=None, converter=_reasoning_history, validator=_one_of("none", "all", "last", "auto")
    )
    response_schema: ResponseSchema | None = None
    extra_headers: dict[str, str] | None = field(default=None, validator=_map)
    extra_body: dict[str, Any] | None = field(default=None, validator=_map)
    modalities: list[Literal["image"] | ImageOutput] | None = field(default=None, validator=_list)
    cache: bool | CachePolicy | None = field(
        default=None, converter=_cache, validator=_kind(bool, CachePolicy, what="true, false, a time or a CachePolicy")
    )
    batch: bool | int | BatchConfig | None = None

    @classmethod
    def from_options(cls, options: Mapping[str, Any]) -> GenerateConfig:
        """A configuration from options by name.

        Raises:
            OptionError: an option that there is not, or a value that is refused; the text names it.
        """
        unknown = sorted(set(options) - set(GENERATE_FIELDS))
        if unknown:
            raise OptionError(
                f"unknown generation option: {', '.join(unknown)}. For what only one provider knows use extra_body."
            )
        return cls(**options)

    def merge(self, other: GenerateConfig | Mapping[str, Any]) -> GenerateConfig:
        """A new configuration: what `other` says, and this one's where it says nothing.

        Raises:
            OptionError: `other` is a mapping with an option that there is not.
        """
        said = other if isinstance(other, GenerateConfig) else GenerateConfig.from_options(other)
        merged = object.__new__(GenerateConfig)
        for name in GENERATE_FIELDS:
            value = getattr(said, name)
            _put(merged, name, getattr(self, name) if value is None else value)
        return merged


SECRET_HEADER: Final = re.compile(r"auth|key|token|secret|cookie|password|credential", re.IGNORECASE)
GENERATE_FIELDS: Final = tuple(fields_dict(GenerateConfig))
_put: Final = object.__setattr__  # both sides were checked when they were made


def public_config(config: GenerateConfig) -> GenerateConfig:
    """The configuration as it may be logged: headers that may carry a key have their values replaced."""
    if not config.extra_headers:
        return config
    shown = {name: "[key]" if SECRET_HEADER.search(name) else value for name, value in config.extra_headers.items()}
    return config.merge({"extra_headers": shown})
