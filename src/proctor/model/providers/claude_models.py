"""What is known of Claude models from their names, for every vendor that serves them.

A name that is not known counts as the newest model: new models take what the last ones took, so that one is usable
on the day it appears. The facts are those of Anthropic's model overview, its thinking, effort and prompt caching pages
and its migration guides (https://platform.claude.com/docs), as inspect_ai 0.3.285 applies them.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

from attrs import frozen

from proctor.model.config import GenerateConfig

Version: TypeAlias = tuple[int, int]
Off: TypeAlias = Literal["disabled", "between_tools"]

NEWEST: Final[Version] = (99, 0)
OLD_NAME: Final = re.compile(r"claude-(?:v?(\d)(?:[.:](\d))?(?![\d-]))|claude-(\d)(?:-(\d))?-[a-zA-Z]")
NAME: Final = re.compile(r"claude-([a-zA-Z]+)-(\d{1,2})(?:[-.](\d{1,2})(?![0-9A-Za-z]))?(?![0-9.])")
MAX_TOKENS: Final = 32_000  # of an answer when nobody says otherwise; Anthropic wants a number
OLD_MAX_TOKENS: Final = 4096
HIGH_EFFORT_TOKENS: Final = 64_000  # room that the migration guide wants at effort xhigh and max
EFFORT_TOKENS: Final[Mapping[str, int]] = MappingProxyType(
    {"minimal": 2048, "low": 4096, "medium": 10_000, "high": 16_000, "xhigh": 32_000, "max": 32_000}
)
"""The thinking budget for an effort, for models that take a budget only."""
UNCACHED: Final = ("claude-2", "claude-v2", "claude-instant", "claude-3-sonnet")


@frozen
class Claude:
    """A model.

    Attributes:
        name: as it was given. tier: opus, sonnet, haiku, …; empty where the name has none. version: major and minor.
    """

    name: str
    tier: str
    version: Version

    @property
    def thinks(self) -> bool:
        """Whether it can think before it answers."""
        return self.version >= (3, 7)

    @property
    def adaptive(self) -> bool:
        """Whether it decides itself how much to think, by an effort."""
        return self.version >= (4, 6)

    @property
    def adaptive_only(self) -> bool:
        """Whether a thinking budget and sampling parameters are refused."""
        return self.version >= (4, 7)

    @property
    def caches(self) -> bool:
        """Whether it takes prompt cache breakpoints."""
        return not any(name in self.name for name in UNCACHED)

    @property
    def inline_system(self) -> bool:
        """Whether it takes system messages within a conversation."""
        return self.version >= (4, 8) and "mythos-preview" not in self.name

    @property
    def refuses_forced_tools(self) -> bool:
        """Whether a tool choice other than ``auto`` and ``none`` is refused."""
        return self.version[0] == 5 and (
            (self.tier in {"opus", "sonnet"} and self.version >= (5, 5))
            or (self.tier in {"fable", "mythos"} and self.version >= (5, 1))
        )

    @property
    def binds_thinking(self) -> bool:
        """Whether thinking that is sent back must follow the very messages that it came from."""
        return self.version[0] == 5 and (
            (self.tier in {"opus", "sonnet", "haiku"} and self.version >= (5, 5))
            or (self.tier == "fable" and self.version >= (5, 1))
        )

    @property
    def off(self) -> Off | None:
        """How thinking is switched off where it is on by itself; None where it is off by itself or cannot be."""
        if not self.adaptive_only or (self.version[0] == 5 and self.tier not in {"opus", "sonnet", "haiku"}):
            return None
        if self.tier == "opus" and self.version >= (5, 5):
            return None
        return "between_tools" if self.tier == "sonnet" and self.version >= (5, 5) else "disabled"

    def effort(self, config: GenerateConfig) -> str | None:
        """The effort that a configuration's ``reasoning_effort`` asks of a model that thinks adaptively."""
        asked = config.reasoning_effort
        if asked is None or asked == "none" or not self.adaptive:
            return None
        return self.known_effort("low" if asked == "minimal" else asked)

    def known_effort(self, effort: str) -> str:
        """An effort that the model knows: the two highest came with later models."""
        if (effort == "xhigh" and not self.adaptive_only) or (effort == "max" and not self.adaptive):
            return "high"
        return effort

    def budget(self, config: GenerateConfig) -> int | None:
        """The thinking budget, in tokens, that a configuration asks for."""
        if not self.thinks:
            return None
        if config.reasoning_tokens is not None:
            return config.reasoning_tokens or None
        return None if self.adaptive else EFFORT_TOKENS.get(config.reasoning_effort or "")

    def is_thinking(self, config: GenerateConfig) -> bool:
        """Whether a configuration asks for thinking, and the model can."""
        return self.effort(config) is not None or self.budget(config) is not None

    def max_tokens(self, config: GenerateConfig) -> int:
        """The most tokens of an answer when nobody says otherwise: room for the answer and for the thinking."""
        if self.version < (3, 7):
            return OLD_MAX_TOKENS
        tokens = MAX_TOKENS + (EFFORT_TOKENS.get(self.effort(config) or "", 0) or self.budget(config) or 0)
        if config.effort in {"xhigh", "max"}:
            tokens = max(tokens, HIGH_EFFORT_TOKENS)
        return min(tokens, self._most_tokens())

    def _most_tokens(self) -> int:
        major, minor = self.version
        if major >= 5 or (self.version == (3, 7)) or (self.tier == "opus" and self.adaptive):
            return 128_000
        return 32_000 if self.tier == "opus" and minor < 5 else 64_000


@functools.cache
def claude(name: str) -> Claude:
    """What the name of a model says: Anthropic's own names, and Bedrock's and others' that hold one."""
    if "instant" in name:
        return Claude(name, "instant", (1, 0))
    if found := OLD_NAME.search(name):
        major, minor = (found[1], found[2]) if found[1] else (found[3], found[4])
        tier = next((word for word in ("opus", "sonnet", "haiku") if word in name), "")
        return Claude(name, tier, (int(major), int(minor or 0)))
    if found := NAME.search(name):
        return Claude(name, found[1].lower(), (int(found[2]), int(found[3] or 0)))
    return Claude(name, "", NEWEST)
