"""What decorators register: tasks, solvers, scorers, metrics, tools, model providers, displays, by name.

The one module-level table of proctor. It holds values only: names, factories and the arguments an object was
made with. Built-in providers and displays are listed by *address* (``module:attribute``) and imported at first
use, so that ``import proctor`` stays fast; installed packages add theirs through the entry-point group
``proctor``, which is read the first time a name is not found.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, Literal, ParamSpec, TypeVar, cast

from attrs import field, frozen

from proctor.errors import NotFoundError

Kind = Literal[
    "task", "solver", "scorer", "metric", "score_reducer", "tool", "agent", "modelapi", "sandboxenv", "hooks",
    "approver", "display",
]  # fmt: skip

P = ParamSpec("P")
T = TypeVar("T")

BUILTIN: Final[Mapping[tuple[str, str], str]] = MappingProxyType(
    {
        ("modelapi", "openai"): "proctor.model.providers.openai:OpenAIAPI",
        ("modelapi", "openai-api"): "proctor.model.providers.openai_compatible:OpenAICompatibleAPI",
        ("modelapi", "azureai"): "proctor.model.providers.azureai:AzureAIAPI",
        ("modelapi", "mistral"): "proctor.model.providers.mistral:MistralAPI",
        ("modelapi", "grok"): "proctor.model.providers.grok:GrokAPI",
        ("modelapi", "together"): "proctor.model.providers.compatible_family:TogetherAPI",
        ("modelapi", "groq"): "proctor.model.providers.compatible_family:GroqAPI",
        ("modelapi", "openrouter"): "proctor.model.providers.compatible_family:OpenRouterAPI",
        ("modelapi", "fireworks"): "proctor.model.providers.compatible_family:FireworksAPI",
        ("modelapi", "deepseek"): "proctor.model.providers.compatible_family:DeepSeekAPI",
        ("modelapi", "vllm"): "proctor.model.providers.compatible_family:VLLMAPI",
        ("modelapi", "ollama"): "proctor.model.providers.compatible_family:OllamaAPI",
        ("modelapi", "replay"): "proctor.log.replay:ReplayAPI",
        ("modelapi", "none"): "proctor.model.providers.none:NoModelAPI",
        ("modelapi", "llama-cpp"): "proctor.model.providers.llama_cpp:LlamaCppAPI",
        ("modelapi", "anthropic"): "proctor.model.providers.anthropic:AnthropicAPI",
        ("modelapi", "google"): "proctor.model.providers.google:GoogleAPI",
        ("modelapi", "bedrock"): "proctor.model.providers.bedrock:BedrockAPI",
        ("modelapi", "mock"): "proctor.model.providers.mock:MockAPI",
        ("modelapi", "fake"): "proctor.testing.fake_model:FakeAPI",
        ("modelapi", "mockllm"): "proctor.model.providers.mock:MockAPI",
        ("sandboxenv", "local"): "proctor.sandbox.local:LocalSandbox",
        ("sandboxenv", "bubblewrap"): "proctor.sandbox.bubblewrap:BubblewrapSandbox",
        ("sandboxenv", "docker"): "proctor.sandbox.container:DockerSandboxEnvironment",
        ("sandboxenv", "podman"): "proctor.sandbox.container:PodmanSandboxEnvironment",
        ("sandboxenv", "fake"): "proctor.testing.fake_sandbox:FakeSandboxEnvironment",
        ("tool", "bash"): "proctor.tool.commands:bash",
        ("tool", "bash_session"): "proctor.tool.sessions:bash_session",
        ("tool", "python"): "proctor.tool.commands:python",
        ("tool", "text_editor"): "proctor.tool.editor:text_editor",
        ("tool", "think"): "proctor.tool.thinking:think",
        ("display", "plain"): "proctor.display.plain:show",
        ("display", "rich"): "proctor.display.rich:show",
        ("display", "log"): "proctor.display.log:show",
        ("display", "none"): "proctor.display.none:show",
    }
)
ATTRIBUTE: Final = "__proctor_info__"
WORDS: Final[Mapping[str, str]] = MappingProxyType(
    {"modelapi": "model provider", "score_reducer": "reducer", "sandboxenv": "sandbox"}
)
"""What a kind is called in messages, where the field has another word for it."""

_table: dict[tuple[str, str], Any] = {}


@frozen
class RegistryInfo:
    """Where an object made by a registered factory comes from.

    Attributes:
        kind: solver, scorer, … ; name: as registered.
        params: every argument with its value, defaults included; passed: only those the caller gave.
        metadata: what the decorator was given besides a name.
    """

    kind: Kind
    name: str
    params: Mapping[str, Any] = field(factory=dict)
    passed: Mapping[str, Any] = field(factory=dict)
    metadata: Mapping[str, Any] = field(factory=dict)


def register(kind: Kind, name: str, value: Any) -> None:
    """Put `value` under a name; a later registration of the same name replaces the earlier one."""
    _table[kind, name] = value


def names(kind: Kind) -> list[str]:
    """The names known for a kind, built-in and registered, sorted."""
    return sorted({name for k, name in [*_table, *BUILTIN] if k == kind})


def lookup(kind: Kind, name: str) -> Any:
    """What is registered under a name.

    Raises:
        NotFoundError: nothing is; the text lists near or all names.
    """
    found = _find(kind, name)
    if found is None:
        _load_entry_points()
        found = _find(kind, name)
    if found is None:
        raise NotFoundError(unknown(WORDS.get(kind, kind), name, names(kind)))
    return found


def _find(kind: Kind, name: str) -> Any:
    found = _table.get((kind, name))
    if found is None and (address := BUILTIN.get((kind, name))) is not None:
        module, _, attribute = address.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        _table.setdefault((kind, name), found)
    return found


@functools.cache
def _load_entry_points() -> None:
    from importlib.metadata import entry_points

    for point in entry_points(group="proctor"):
        point.load()


def tag(value: Any, info: RegistryInfo) -> None:
    """Remember on an object which registered factory made it, with which arguments."""
    setattr(value, ATTRIBUTE, info)


def info_of(value: Any) -> RegistryInfo | None:
    """What `tag` remembered, None for an object that no registered factory made."""
    return cast("RegistryInfo | None", getattr(value, ATTRIBUTE, None))


def registered(
    kind: Kind,
    factory: Callable[P, T],
    *,
    name: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    finish: Callable[[T], T] | None = None,
) -> Callable[P, T]:
    """Register `factory` and return it wrapped so that what it makes is tagged with its name and arguments.

    Args:
        name: default the factory's own name.
        metadata: kept in the `RegistryInfo` of the factory and of what it makes.
        finish: applied to each made object before it is tagged (to check or adapt it).
    """
    known_as = name or cast("Any", factory).__name__
    signature = inspect.signature(factory)

    @functools.wraps(factory)
    def make(*args: P.args, **kwargs: P.kwargs) -> T:
        bound = signature.bind(*args, **kwargs)
        passed = _flatten(signature, bound.arguments)
        bound.apply_defaults()
        made = factory(*args, **kwargs)
        if finish is not None:
            made = finish(made)
        tag(made, RegistryInfo(kind, known_as, _flatten(signature, bound.arguments), passed, metadata or {}))
        return made

    tag(make, RegistryInfo(kind, known_as, {}, {}, metadata or {}))
    register(kind, known_as, make)
    return make


def _flatten(signature: inspect.Signature, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Bound arguments by name, those of ``**kwargs`` among them."""
    out: dict[str, Any] = {}
    for key, value in arguments.items():
        if signature.parameters[key].kind is inspect.Parameter.VAR_KEYWORD:
            out.update(value)
        else:
            out[key] = value
    return out


def unknown(what: str, name: str, known: Iterable[str]) -> str:
    """The text that says that no `what` is called `name`, with near names or all of them."""
    listed = sorted(known)
    near = difflib.get_close_matches(name, listed, n=3)
    hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(listed) or 'none'}"
    return f"no {what} is called {name!r}; {hint}"
