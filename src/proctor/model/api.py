"""What a provider of models implements, and how it is registered."""

from __future__ import annotations

import abc
import hashlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeVar

from attrs import frozen

from proctor import registry
from proctor.errors import UsageError
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall, ModelOutput
from proctor.model.pacing.headers import quota_readings
from proctor.model.pacing.values import QuotaReading, Signal
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.runtime.clock import utc_now
from proctor.runtime.settings import environ

DEFAULT_MAX_CONNECTIONS: Final = 10

A = TypeVar("A", bound="type[ModelAPI] | Callable[[], type[ModelAPI]]")


@frozen
class RetryDecision:
    """What `ModelAPI.should_retry` may answer instead of a bool.

    Attributes:
        kind: ``rate_limit`` or ``transient``. retry_after: seconds that the provider asked to wait.
    """

    retry: bool
    kind: Literal["rate_limit", "transient"] | None = None
    retry_after: float | None = None

    @classmethod
    def no(cls) -> RetryDecision:
        """Do not try again."""
        return cls(retry=False)

    @classmethod
    def transient(cls, retry_after: float | None = None) -> RetryDecision:
        """Try again; it may pass."""
        return cls(retry=True, kind="transient", retry_after=retry_after)

    @classmethod
    def rate_limit(cls, retry_after: float | None = None) -> RetryDecision:
        """Try again, slower."""
        return cls(retry=True, kind="rate_limit", retry_after=retry_after)


class ModelAPI(abc.ABC):
    """A client of one model of one provider. It belongs to a model actor and is closed with it.

    A subclass takes these parameters and may add its own, which come from ``-M name=value`` and from the keyword
    arguments of `get_model`. It checks them in ``__init__`` (a missing key, an unknown argument) and opens nothing
    there: what is bound to an event loop is made at the first `generate`.

    Attributes:
        composite: True for a provider that calls other models: it takes no connection of its own.
        reports_cost: True for a provider that says itself what a call cost (``usage.total_cost``).
        adaptive: whether pacing adapts the number of calls in flight; None: it does, unless the class has a
            `max_connections` of its own.
        signal: what tells that it is at its limit; None: what its base URL tells.
        reserves_max_tokens: it counts `max_tokens` against a quota when it admits a call, and corrects that afterwards.
    """

    composite: ClassVar[bool] = False
    reports_cost: ClassVar[bool] = False
    adaptive: bool | None = None
    signal: Signal | None = None
    reserves_max_tokens: bool = False

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        api_key_vars: Sequence[str] = (),
        config: GenerateConfig | None = None,
    ) -> None:
        self.model_name = model_name
        self.base_url = base_url
        self.api_key = api_key
        self.api_key_vars = list(api_key_vars)
        self.config = config or GenerateConfig()
        self.provider = ""  # the name it was looked up by; `get_model` sets it
        if not self.api_key:
            self.api_key = next((key for name in self.api_key_vars if (key := environ(name))), None)

    @abc.abstractmethod
    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput | tuple[ModelOutput | Exception, ModelCall]:
        """Make one attempt at a call: it is not retried here, and a cancellation ends it.

        Returns:
            The output, alone or with the raw call for the log. An exception with its raw call is raised by the caller.

        Raises:
            ModelError: of `proctor.errors`, which says whether another attempt may help. Other exceptions are judged
                by `should_retry`, by the HTTP status they carry, or by their type.
        """

    async def aclose(self) -> None:  # noqa: B027  nothing to close is the usual case
        """Close what is open. Called once, when no call is in flight."""

    def max_connections(self) -> int:
        """Calls in flight when nobody says otherwise."""
        return DEFAULT_MAX_CONNECTIONS

    @property
    def adapts(self) -> bool:
        """Whether pacing adapts the number of calls in flight."""
        if self.adaptive is not None:
            return self.adaptive
        return type(self).max_connections is ModelAPI.max_connections

    def quota_readings(self, headers: Mapping[str, str]) -> Sequence[QuotaReading]:
        """What the headers of a response say of quotas; the usual spellings are known."""
        return quota_readings(headers, now=utc_now())

    def max_tokens(self) -> int | None:
        """The most tokens of an answer when nobody says otherwise."""
        return None

    def connection_key(self) -> str:
        """What the limits hold for, within a provider: base URL, account and model."""
        return f"{self.base_url or ''}|{account(self.api_key)}|{self.model_name}"

    def should_retry(self, ex: Exception) -> bool | RetryDecision:
        """Whether another attempt may help after an exception that is not one of `proctor.errors`."""
        return False

    def secrets(self) -> tuple[str, ...]:
        """Texts that must never appear in a log or an error."""
        return (self.api_key,) if self.api_key else ()


def account(api_key: str | None) -> str:
    """A key's account as the limits know it: a salted hash, so that the key is nowhere but in the client."""
    if not api_key:
        return ""
    return hashlib.blake2b(api_key.encode(), digest_size=8, salt=b"proctor acct").hexdigest()


def modelapi(name: str) -> Callable[[A], A]:
    """Register a provider: ``@modelapi("mine")`` makes ``mine/model`` a model name.

    It decorates a subclass of `ModelAPI`, or a function that returns one (so that its imports can wait).
    """
    if not name or "/" in name:
        raise UsageError(f"@modelapi: {name!r} must be a name without a slash, the part of a model name before it")

    def register(value: A) -> A:
        registry.register("modelapi", name, value)
        return value

    return register


def provider_class(name: str) -> type[ModelAPI]:
    """The class of a registered provider.

    Raises:
        NotFoundError: there is none. UsageError: what is registered is not a `ModelAPI`.
    """
    found = registry.lookup("modelapi", name)
    if not inspect.isclass(found):
        found = found()
    if not (inspect.isclass(found) and issubclass(found, ModelAPI)):
        raise UsageError(f"the provider {name!r} is registered as {found!r}, which is no ModelAPI class")
    return found


def refuse_unknown(provider: str, arguments: dict[str, Any]) -> None:
    """Refuse model arguments that a provider does not know.

    Raises:
        UsageError: naming them.
    """
    if arguments:
        raise UsageError(f"{provider} does not know the model argument {', '.join(sorted(arguments))} (-M)")
