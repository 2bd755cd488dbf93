"""Options of a configuration that a vendor has no field for."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from proctor.model.config import GenerateConfig

SAMPLING: Final = ("logit_bias", "best_of", "prompt_logprobs", "verbosity")
OPENAI_ONLY: Final = (
    "frequency_penalty", "presence_penalty", "seed", "num_choices", "logprobs", "top_logprobs", "modalities",
)  # fmt: skip
UNSENT: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "anthropic": (*SAMPLING, *OPENAI_ONLY),
        "google": (*SAMPLING, "parallel_tool_calls", "effort", "fallback_models"),
        "bedrock": (*SAMPLING, *OPENAI_ONLY, "parallel_tool_calls", "fallback_models"),
    }
)
"""By provider."""


def unsent(provider: str, shown: str, config: GenerateConfig) -> list[str]:
    """A text for each option that is asked for and has no field there.

    Args:
        shown: the model, named in the texts.
    """
    asked = [name for name in UNSENT[provider] if getattr(config, name) is not None]
    return [f"{shown} has no {name}: not sent" for name in asked]
