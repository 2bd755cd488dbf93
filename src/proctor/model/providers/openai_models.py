"""What OpenAI's models take, by their names (developers.openai.com/api/docs/models and /guides/reasoning)."""

from __future__ import annotations

import functools
import re
from typing import Final

from attrs import frozen

from proctor.model.config import GenerateConfig

# One digit before the point: Azure's gpt-35-turbo is no thirty-fifth version.
VERSION: Final = re.compile(r"gpt-(?P<major>[1-9])(?:\.(?P<minor>\d+)|(?!\d))")
O_SERIES: Final = re.compile(r"(?:^|[^a-z])o\d+(?:$|[^a-z0-9])|^o\d+")
NOT_CHAT: Final = ("embedding", "whisper", "dall-e", "tts", "moderation", "image-1", "sora")
ALWAYS_REASON: Final = ("gpt-6-astra", "gpt-6.1-sol")


@frozen(kw_only=True)
class OpenAIModel:
    """What one model takes.

    Attributes:
        o_series: o1, o3, o4-mini, … gpt: a gpt of any version.
        frontier: gpt-5 or later, or a name that no rule knows: one that is not released yet.
        reasons: it has options of reasoning at all.
        always_reasons: reasoning cannot be switched off. reasons_by_default: it reasons when no effort is named.
        knows_none: an effort of ``none`` switches reasoning off. knows_max: it has the effort ``max``.
        responses: the Responses API is its better one.
    """

    o_series: bool
    gpt: bool
    frontier: bool
    reasons: bool
    always_reasons: bool
    reasons_by_default: bool
    knows_none: bool
    knows_max: bool
    responses: bool

    def reasoning(self, config: GenerateConfig) -> bool:
        """Whether it reasons when asked so: then it takes no temperature, top_p and logprobs."""
        if not self.reasons:
            return False
        effort = config.reasoning_effort
        if self.always_reasons or config.reasoning_mode == "pro":
            return True
        if not self.knows_none:
            return False
        return self.reasons_by_default if effort is None else effort != "none"


@functools.cache
def openai_model(name: str, *, deployed: bool = False) -> OpenAIModel:
    """What the model of a name takes; hosting prefixes and deployments named after a model are seen through.

    Args:
        deployed: the name is of a customer's choice: one that no rule knows says nothing.
    """
    name = name.lower()
    found = VERSION.search(name)
    version = (int(found["major"]), int(found["minor"] or 0)) if found else None
    o_series = bool(O_SERIES.search(name)) and "gpt" not in name
    special = any(word in name for word in ("codex", "deep-research"))
    known = found or o_series or special or deployed or "gpt" in name or any(word in name for word in NOT_CHAT)
    unknown = not known
    talks_only = "-chat" in name  # gpt-5-chat and the like do not reason
    since_5 = version is not None and version >= (5, 0)
    since_5_1 = version is not None and version >= (5, 1)
    return OpenAIModel(
        o_series=o_series,
        gpt="gpt" in name,
        frontier=since_5 or unknown,
        reasons=o_series or "codex" in name or ((since_5 or unknown) and not talks_only),
        always_reasons=o_series or (since_5 and not since_5_1) or any(word in name for word in ALWAYS_REASON),
        reasons_by_default=version is not None and version >= (5, 5),
        knows_none=since_5_1 or unknown,
        knows_max=(version is not None and version >= (5, 6)) or unknown,
        responses=o_series or special or since_5 or unknown,
    )
