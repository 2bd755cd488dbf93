"""Where the clients of a model come from: the provider's class and what it is made with."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, Final

from attrs import define, field

from proctor.errors import UsageError
from proctor.model.api import ModelAPI
from proctor.model.config import GenerateConfig

SECRET_ARGUMENTS: Final = ("key", "token", "secret", "password", "credential", "aws_")
PLAIN: Final = (str, int, float, bool, type(None))


@define(eq=False)
class Source:
    """Where the clients of a model come from. Shared by the copies of one description.

    Attributes:
        provider: registered name. model_name: what follows it.
        described: a client made when the description was made, so that a mistake shows at once. The first actor to
            need one takes it; later ones make their own.
    """

    provider: str
    model_name: str
    factory: type[ModelAPI]
    base_url: str | None
    api_key: str | None
    config: GenerateConfig
    arguments: dict[str, Any]
    described: ModelAPI = field(init=False)
    _taken: bool = field(default=False, init=False)

    def __attrs_post_init__(self) -> None:
        self.described = self._construct()

    @property
    def name(self) -> str:
        """``provider/model``."""
        return f"{self.provider}/{self.model_name}"

    @property
    def key(self) -> Hashable:
        """Equal for sources whose clients are alike."""
        return (self.factory, self.base_url, self.api_key, frozen_arguments(self.arguments))

    @property
    def actor_key(self) -> Hashable:
        """What an actor is looked up by: provider and what its limits hold for."""
        return (self.provider, self.described.connection_key())

    @property
    def public_arguments(self) -> dict[str, Any]:
        """The arguments as they may be logged: without keys, and without what has no text form."""
        return {
            name: value
            for name, value in self.arguments.items()
            if not any(word in name.lower() for word in SECRET_ARGUMENTS)
            and isinstance(value, (*PLAIN, list, tuple, dict))
        }

    def make(self) -> ModelAPI:
        """A client of one's own."""
        if not self._taken:
            self._taken = True
            return self.described
        return self._construct()

    def _construct(self) -> ModelAPI:
        try:
            made = self.factory(
                model_name=self.model_name,
                base_url=self.base_url,
                api_key=self.api_key,
                config=self.config,
                **self.arguments,
            )
        except TypeError as error:
            if error.__traceback__ is not None and error.__traceback__.tb_next is not None:
                raise  # from inside the constructor: a fault of the provider's, not of the arguments
            raise UsageError(f"{self.name}: the provider does not take these model arguments (-M): {error}") from error
        made.provider = self.provider
        return made


def frozen_arguments(arguments: Mapping[str, Any]) -> Hashable:
    """Arguments as a key: plain values by value, others by identity."""
    return tuple(sorted((name, value if isinstance(value, PLAIN) else id(value)) for name, value in arguments.items()))
